//! The link between the Lease and the gate.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use futures::FutureExt as _;
use ringside_ring::Moment;
use ringside_runtime::{
    admin::{Health, Probe},
    clock::{Clock, TokioClock},
};

use super::*;
use crate::{controller::Mode, election::waits::Waits, policy::Policy, views::Views};

const VALIDITY: Duration = Duration::from_secs(12);

struct Scene {
    shard: Shard,
    identity: Identity,
    health: Health,
    clock: Arc<TokioClock>,
    knowledge: watch::Sender<RingState>,
}

impl Scene {
    fn new() -> Self {
        let health = Health::new();
        let knowledge = watch::Sender::new(RingState::Known(Arc::default()));
        let shard = Shard {
            config: Config::of(&["--ring", "example"]),
            namespace: "ns".into(),
            controller: Controller::new(
                Mode::Watching,
                Duration::from_secs(15),
                (Views::new(), Waits::default()),
                false,
                health.check("controller", Probe::Note),
            ),
            gate: Gate::new(),
            check: health.check("lease", Probe::Ready),
            admitted: health.check("admitted", Probe::Ready),
            knowledge: knowledge.subscribe(),
            newest: watch::Sender::default(),
        };
        let identity = Identity { shard: "me".parse().unwrap(), instance: "u1".into(), token_pod: Some("me".into()) };
        Self { shard, identity, health, clock: Arc::new(TokioClock::start()), knowledge }
    }

    fn until(&self) -> Option<Moment> {
        Some(self.clock.now() + VALIDITY)
    }
}

/// No task says that the Lease is lost: the keeper hangs, and so does its news.
#[tokio::test(start_paused = true)]
async fn a_validity_that_runs_out_cuts_what_passed_and_readiness() {
    let scene = Scene::new();
    let (validity, lease_handle) = LeaseHandle::manual(scene.clock.clone());
    let release = Shutdown::new();
    let minding = scene.shard.publish_lease_state(&lease_handle, &scene.identity, &release);
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
        () = minding => unreachable!("the test did not ask for the end"),
        () = story => {}
    }
}

/// The sharder admits one instance of a name, by the Lease.
#[tokio::test(start_paused = true)]
async fn new_instance_works_once_its_lease_admits_it_and_ends_when_another_is_admitted() {
    let scene = Scene::new();
    let (lease, lease_handle) = LeaseHandle::manual(scene.clock.clone());
    let release = Shutdown::new();
    let minding = scene.shard.publish_lease_state(&lease_handle, &scene.identity, &release);
    let story = async {
        let passes = || scene.shard.gate.pass(Duration::from_secs(1));
        let admits = Policy { admits_instances: true, ..Policy::default() };
        scene.knowledge.send_replace(RingState::Unknown("not read yet".to_owned()));
        lease.set(Some(scene.clock.now() + 100 * VALIDITY));
        assert!(passes().await.is_err(), "nothing says yet whether the sharder admits instances");
        scene.knowledge.send_replace(RingState::Known(Arc::new(admits)));
        for annotations in [[("ringside.dev/other", "x")], [("ringside.dev/admitted", "u0")]] {
            lease.annotate(annotations);
            assert!(passes().await.is_err(), "{annotations:?}");
            assert!(scene.health.failures(Probe::Ready)[0].starts_with("admitted: the sharder has not admitted"));
        }
        lease.annotate([("ringside.dev/admitted", "u1")]);
        let term = passes().await.unwrap();
        assert!(scene.health.failures(Probe::Ready).is_empty());
        scene.knowledge.send_replace(RingState::Unknown("gone".to_owned()));
        lease.annotate([]);
        passes().await.expect("neither says that another one works");
        lease.annotate([("ringside.dev/admitted", "u2")]);
        assert!(!term.is_on(), "in the same moment");
        term.over().await;
        assert!(passes().await.is_err());
    };
    tokio::select! {
        () = minding => unreachable!("nothing asked for the end"),
        () = story => {}
    }
}

/// As beside a sharder of another make.
#[tokio::test(start_paused = true)]
async fn instance_works_where_no_instances_are_admitted_until_that_begins() {
    let scene = Scene::new();
    let (lease, lease_handle) = LeaseHandle::manual(scene.clock.clone());
    let release = Shutdown::new();
    let minding = scene.shard.publish_lease_state(&lease_handle, &scene.identity, &release);
    let story = async {
        lease.set(scene.until());
        let term = scene.shard.gate.pass(Duration::from_secs(1)).await.unwrap();
        let admits = Policy { admits_instances: true, ..Policy::default() };
        scene.knowledge.send_replace(RingState::Known(Arc::new(admits)));
        term.over().await;
    };
    tokio::select! {
        () = minding => unreachable!("nothing asked for the end"),
        () = story => {}
    }
}

#[test]
fn the_lease_says_which_instance_holds_it_and_whose_token_it_has() {
    let scene = Scene::new();
    let terms = scene.shard.terms(&scene.identity, watch::channel(Facts::new()).1);
    let of = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(terms.annotations, of(&[("ringside.dev/instance", "u1")]));
    let labels = [
        ("alpha.sharding.timebertt.dev/clusterring", Some("example")),
        ("alpha.sharding.timebertt.dev/controllerring", None),
        ("ringside.dev/token-pod", Some("me")),
    ];
    assert_eq!(terms.labels, labels.map(|(key, value)| (key.to_owned(), value.map(str::to_owned))).into());
}

#[test]
fn the_lease_says_a_weight_and_a_group_only_where_they_were_given() {
    let mut scene = Scene::new();
    for mark in [LEASE_WEIGHT, LEASE_GROUP] {
        assert!(!scene.shard.facts().contains_key(mark), "what a person wrote there stays");
    }
    (scene.shard.config.weight, scene.shard.config.group) = (Some("0.5".parse().unwrap()), Some("big".to_owned()));
    let facts = scene.shard.facts();
    assert_eq!([LEASE_WEIGHT, LEASE_GROUP].map(|mark| facts[mark].as_deref()), [Some("0.5"), Some("big")]);
}

/// Each time that it is told, the Lease is renewed at once.
#[tokio::test(start_paused = true)]
async fn the_lease_is_told_of_the_controller_only_what_is_new() {
    let scene = Scene::new();
    let (facts, mut latest) = watch::channel(scene.shard.facts());
    assert!(scene.shard.say(&facts).now_or_never().is_none());
    assert!(!latest.has_changed().unwrap(), "it begins with that");
    let story = async {
        scene.knowledge.send_replace(RingState::Known(Arc::new(Policy::default())));
        latest.changed().await.unwrap();
    };
    tokio::select! {
        never = scene.shard.say(&facts) => match never {},
        never = scene.shard.controller.judge(tokio::time::Instant::now(), scene.knowledge.subscribe()) => match never {},
        () = story => {}
    }
    assert_eq!(latest.borrow()[LEASE_CONTROLLER].as_deref(), Some("working"), "a ring without resources needs no view");
}
