//! A proxy that stands still while its Lease is valid, its controller running on: it does not release what it is asked
//! for, so the sharder takes it, and what had been sent before does not land any more.

use std::time::Duration;

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use ringside_e2e::{
    eventually::eventually,
    relay::{Offer, Relay},
    system::{NAMESPACE, Settings, System, metrics},
    website::Homes,
    workload::Workload,
};
use ringside_ring::{ClusterRing, RingName, cluster_ring::Fence};
use serde_json::json;

use crate::promises::{
    request::{SENT, admit, connect, endpoint, hold, owned, release},
    rest::{Still, come_to_rest, is_clean},
};

/// The one that stands still, one that goes on, and one that comes meanwhile.
const STUCK: &str = "shard-0";
const OTHER: &str = "shard-1";
const NEW: &str = "shard-2";

/// About forty are with the one that stands still, and a third of those belongs to the new one.
const OBJECTS: usize = 120;

/// Far longer than all of it: no sharder takes the shard for dead.
const LEASE: Duration = Duration::from_secs(120);

/// Long enough for the one that goes on.
const DRAIN_DEADLINE_SECONDS: u32 = 20;

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(90);

/// How audit ids begin of what has left the proxy before it stands still, about objects that it loses and about others; of what
/// the proxy had let through by then, and of what is sent to it meanwhile.
const LOST: &str = "lost";
const KEPT: &str = "kept";
const BEFORE: &str = "before";
const DURING: &str = "during";

fn workload() -> Workload {
    Workload {
        work: Duration::from_millis(100),
        // So that the operators are at work at any moment.
        interval: Duration::from_millis(50),
        seed: 7,
        ..Workload::idle("site", OBJECTS)
    }
}

/// A fenced ring that waits for its shards no longer than that.
async fn impatient() -> (System, RingName) {
    let drain_grace = Duration::from_secs(4);
    let settings = Settings { fence: Fence::ApiServer, lease_duration: LEASE, drain_grace, ..Settings::default() };
    let mut system = System::start(settings).await.unwrap();
    let ring = system.start_sharding(1).await.unwrap();
    let rings: Api<ClusterRing> = Api::all(system.control_plane().client());
    let deadline = Patch::Merge(json!({"spec": {"drainDeadlineSeconds": DRAIN_DEADLINE_SECONDS}}));
    rings.patch(ring.name(), &PatchParams::default(), &deadline).await.unwrap();
    (system, ring)
}

/// Of a shard's objects those that belong to the new one once that is there, and the others.
async fn by_fate(system: &System, ring: &RingName) -> (Vec<String>, Vec<String>) {
    let homes = Homes::among([STUCK, OTHER, NEW]).unwrap();
    let leaves = |name: &String| homes.of(NAMESPACE, name) == Some(NEW);
    owned(system, ring, STUCK).await.into_iter().partition(leaves)
}

/// How many objects the sharder has taken from shards that did not release them.
async fn forced(system: &System) -> usize {
    let metrics = metrics(system.sharders().next().unwrap().admin_port()).await.unwrap();
    let lines = metrics.lines().filter(|line| line.starts_with("controller_sharding_forced_movements_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum()
}

pub(crate) async fn what_a_standing_proxy_does_not_let_go_of_is_taken_and_nothing_that_it_had_sent_lands() {
    let (mut system, ring) = impatient().await;
    let relay = Relay::start(system.control_plane(), Offer::Both).await.unwrap();
    system.add_relayed_shard(STUCK, &relay).await.unwrap();
    system.add_shard(OTHER).await.unwrap();
    system.share_out(&workload(), DEADLINE).await.unwrap();
    let updates = workload().start_updates(&system.control_plane().client());
    let (leaving, staying) = by_fate(&system, &ring).await;
    assert!(leaving.len() >= 3 * SENT && staying.len() >= SENT, "{leaving:?} {staying:?}");
    let proxy = endpoint(system.shard(STUCK).unwrap());
    let lost = hold(&relay, &proxy, LOST, &leaving).await;
    let kept = hold(&relay, &proxy, KEPT, &staying).await;
    let mut before = admit(&proxy, BEFORE, &leaving[SENT..]).await;
    let mut during = connect(&proxy, DURING, &leaving[2 * SENT..]).await;
    let paused = system.monitor().now();
    system.shard(STUCK).unwrap().proxy().pause().unwrap();
    for request in &mut before {
        request.send_body().await;
    }
    for request in &mut during {
        request.send().await;
    }
    system.add_shard(NEW).await.unwrap();
    eventually("the new shard has what belongs to it", DEADLINE, || async {
        let has = owned(&system, &ring, NEW).await;
        let missing: Vec<_> = leaving.iter().filter(|name| !has.contains(name)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
    })
    .await
    .unwrap();
    // By force, and not because the shard was dead.
    system.until_counted_are(3, DEADLINE).await.unwrap();
    let taken = forced(&system).await;
    assert!(taken >= leaving.len(), "{taken} of {}", leaving.len());
    let policy = format!("ValidatingAdmissionPolicy '{}'", ring.made_for());
    for event in release(&system, &relay, LOST).await {
        let (code, said) = (&event["responseStatus"]["code"], event["responseStatus"]["message"].as_str());
        assert!(*code == 403 && said.is_some_and(|said| said.contains(&policy)), "{event:#}");
    }
    for event in release(&system, &relay, KEPT).await {
        assert_eq!(event["responseStatus"]["code"], 200, "it has not lost that one: {event:#}");
    }
    system.shard(STUCK).unwrap().proxy().resume().unwrap();
    for request in before.into_iter().chain(during).chain(lost) {
        assert_ne!(request.answer().await, "200");
    }
    for request in kept {
        // It was carried out, as the audit log says. Whether the client is told depends on whether the proxy, which could
        // not see meanwhile that the ring keeps the lock of the controller's election, looks at that first: then it
        // answers no more, or cuts the answer off. It never says that nothing was done.
        let answer = request.answer().await;
        assert!(["200", "502", ""].contains(&&*answer), "{answer}");
    }
    updates.stop().await.unwrap();
    let still = Still { shards: &[STUCK], felt: paused..=come_to_rest(&mut system, &workload()).await };

    let report = system.report(4 * DEADLINE).await.unwrap();
    let verdict = system.judge_writes().await.unwrap();
    println!("{taken} were taken by force, and {} writes of former owners refused", verdict.kept_out);
    assert!(is_clean(&report, &still), "{report:#?}");
    assert_eq!((&*verdict.foreign, &*verdict.late, &*verdict.barred), (&[][..], &[][..], &[][..]));
    assert_eq!(verdict.lost, []);
    assert_eq!((&*verdict.second_creates, &*verdict.deleted, &*verdict.left_behind), (&[][..], &[][..], &[][..]));
    assert!(verdict.kept_out >= SENT && verdict.unknown == 0, "{verdict:#?}");
}
