//! The link between the Lease and the gate.
#![allow(clippy::unwrap_used)]

use ringside_ring::Moment;
use ringside_runtime::{
    admin::{Health, Probe},
    clock::{Clock, TokioClock},
};

use super::*;

const VALIDITY: Duration = Duration::from_secs(12);

struct Scene {
    shard: Shard,
    identity: Identity,
    health: Health,
    clock: Arc<TokioClock>,
}

impl Scene {
    fn new() -> Self {
        let health = Health::new();
        let shard = Shard {
            ring: "example".parse().unwrap(),
            namespace: "ns".into(),
            lease_duration: Duration::from_secs(15),
            grace: Duration::from_secs(2),
            weight: None,
            gate: Gate::new(),
            check: health.check("lease", Probe::Ready),
        };
        let identity = Identity { shard: "me".parse().unwrap(), instance: "u1".into(), token_pod: Some("me".into()) };
        Self { shard, identity, health, clock: Arc::new(TokioClock::start()) }
    }

    fn until(&self) -> Option<Moment> {
        Some(self.clock.now() + VALIDITY)
    }
}

/// Nobody says that the Lease is lost: the keeper hangs, and so does its news.
#[tokio::test(start_paused = true)]
async fn a_validity_that_runs_out_cuts_what_passed_and_readiness() {
    let scene = Scene::new();
    let (validity, tenure) = Tenure::manual(scene.clock.clone());
    let release = Shutdown::new();
    let minding = scene.shard.mind_the_gate(&tenure, &scene.identity, &release);
    let story = async {
        validity.set(scene.until());
        let term = scene.shard.gate.pass(Duration::from_secs(1)).await.unwrap();
        assert_eq!(term.shard, scene.identity.shard);
        tokio::time::timeout(VALIDITY - Duration::from_secs(1), term.over()).await.unwrap_err();
        assert!(scene.health.failures(Probe::Ready).is_empty());
        tokio::time::timeout(Duration::from_secs(2), term.over()).await.unwrap();
        assert!(scene.shard.gate.pass(Duration::from_secs(1)).await.is_err());
        assert!(scene.health.failures(Probe::Ready)[0].contains("shard 'me' is not held"));

        validity.set(scene.until());
        scene.shard.gate.pass(Duration::from_secs(1)).await.unwrap();
    };
    tokio::select! {
        () = minding => unreachable!("nobody asked for the end"),
        () = story => {}
    }
}

#[test]
fn the_lease_says_which_instance_holds_it_and_whose_token_it_has() {
    let scene = Scene::new();
    let terms = scene.shard.terms(&scene.identity);
    let of = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(terms.annotations, of(&[("ringside.dev/instance", "u1")]));
    let labels = [("alpha.sharding.timebertt.dev/clusterring", "example"), ("ringside.dev/token-pod", "me")];
    assert_eq!(terms.labels, of(&labels));
}

#[test]
fn the_lease_says_a_weight_only_where_it_was_given() {
    let mut scene = Scene::new();
    assert!(!scene.shard.facts().contains_key(LEASE_WEIGHT), "what a person wrote there stays");
    scene.shard.weight = Some("0.5".parse().unwrap());
    assert_eq!(scene.shard.facts()[LEASE_WEIGHT].as_deref(), Some("0.5"));
}
