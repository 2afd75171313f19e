//! Replicas of the sharder: how soon the next one acts when the leader ends, in order or not, and that two never act on one
//! object at once. Where it is measured there is no webhook: whatever gets an owner gets it from the leader.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::{Api, ResourceExt as _, api::PostParams};
use ringside_e2e::{
    audit,
    checker::Object,
    eventually::{eventually, in_time},
    system::{NAMESPACE, SHARDER_USER, Settings, System},
    website::{Website, WebsiteSpec},
    workload::Workload,
};
use ringside_e2e::{case, live::Group};
use ringside_ring::{RingLabels, RingName};
use tokio::time::{Instant, sleep};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "leadership",
        vec![
            case!(the_next_leader_acts_in_time).alone(),
            case!(a_leader_that_stood_still_takes_nothing_from_the_next_one).works().strict(),
        ],
    )
}

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(60);
/// What is promised of a graceful end: so soon the next one acts.
const PROMISED: Duration = Duration::from_secs(3);
/// How long the replicas wait for a leader that does not renew: what is promised of a kill.
const LEASE: Duration = Duration::from_secs(15);
/// What follows when the Lease has run out: it is taken, the Leases of shards are read, the objects without shard listed, and the
/// first is written to. A few tenths of a second; the rest is for a machine that does much else.
const TAKEOVER: Duration = PROMISED;

/// Two replicas, two shards, and objects that all have an owner.
async fn system(objects: usize, webhook: bool) -> (System, RingName) {
    let mut system = System::start(Settings { webhook, ..Settings::default() }).await.unwrap();
    let ring = system.start_sharding(2).await.unwrap();
    for shard in ["shard-0", "shard-1"] {
        system.add_shard(shard).await.unwrap();
    }
    system.share_out(&workload(objects), DEADLINE).await.unwrap();
    (system, ring)
}

fn workload(objects: usize) -> Workload {
    Workload {
        work: Duration::from_millis(50),
        interval: Duration::from_millis(50),
        seed: 9,
        ..Workload::idle("site", objects)
    }
}

/// The replica that leads, by the Lease of the election.
async fn leader(system: &System) -> String {
    system.leading_sharder(DEADLINE).await.unwrap()
}

/// Waits until another replica than `before` leads, which says so in its log.
async fn assert_another_leads(system: &System, before: &str) {
    let now = leader(system).await;
    assert_ne!(now, before);
    let log = system.sharders().find(|sharder| sharder.name() == now).unwrap().process().log().to_owned();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.lines().any(|line| line.contains("became leader")), "{log}");
}

/// Creates an object, and returns how long it was without a shard.
async fn until_assigned(system: &System, ring: &RingName, name: &str) -> Duration {
    let (websites, labels) =
        (Api::<Website>::namespaced(system.control_plane().client(), NAMESPACE), RingLabels::of(ring));
    let since = Instant::now();
    websites.create(&PostParams::default(), &Website::new(name, WebsiteSpec::default())).await.unwrap();
    loop {
        let website = websites.get(name).await.unwrap();
        if labels.ownership(Some(website.labels())).shard.is_some() {
            return since.elapsed();
        }
        assert!(since.elapsed() < DEADLINE, "{name} has no shard");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn the_next_leader_acts_in_time() {
    let (mut system, ring) = system(10, false).await;
    after_a_graceful_end_within_three_seconds(&mut system, &ring).await;
    after_a_kill_when_the_lease_has_run_out(&mut system, &ring).await;
}

async fn after_a_graceful_end_within_three_seconds(system: &mut System, ring: &RingName) {
    let mut took = Vec::new();
    for round in 0..2 {
        let before = leader(system).await;
        let began = Instant::now();
        // It has ended when this returns, and the next one may act already.
        system.stop_sharder(&before).await.unwrap();
        let ended = began.elapsed();
        let assigned = until_assigned(system, ring, &format!("late-{round}")).await;
        took.push(assigned);
        println!("{before} ended in {ended:?}; an object that was made then had a shard after {assigned:?}");
        assert_another_leads(system, &before).await;
        system.start_sharders(2).await.unwrap();
    }
    println!("after a graceful end: {took:?}");
    for took in took {
        in_time("a shard after a graceful end", took, PROMISED);
    }
}

async fn after_a_kill_when_the_lease_has_run_out(system: &mut System, ring: &RingName) {
    let before = leader(system).await;
    let killed = Timestamp::now();
    system.kill_sharder(&before).await.unwrap();
    until_assigned(system, ring, "late").await;
    assert_another_leads(system, &before).await;
    let (renewed, assigned) = written(system, ring, &before, "late").await;
    let since = |then: Timestamp| Duration::try_from(assigned.duration_since(then)).unwrap();
    println!(
        "an object had a shard {:?} after the kill, and {:?} after the last renewal",
        since(killed),
        since(renewed)
    );
    // From that the Lease's duration counts, for whoever waits. The kill comes up to three seconds later: from it there are as
    // many less.
    assert!((LEASE..LEASE + TAKEOVER).contains(&since(renewed)), "{:?}", since(renewed));
}

/// When a leader's last renewal arrived, and when the answer was given to the sharder that gave this object a shard, as the API
/// server wrote both down.
async fn written(system: &System, ring: &RingName, leader: &str, object: &str) -> (Timestamp, Timestamp) {
    let (log, labels) = (system.control_plane().audit_log(), RingLabels::of(ring));
    let (holder, object) = (format!("{leader}_"), format!("{NAMESPACE}/{object}"));
    let both = eventually("the API server wrote it down", DEADLINE, || {
        let (mut renewed, mut assigned) = (None::<Timestamp>, None::<Timestamp>);
        let read = audit::read(&log, &labels, "", |write| {
            let Object { name, labels, holder: held, .. } = write.object;
            let is_leaders = held.is_some_and(|held| held.starts_with(&holder));
            let has_shard = labels.is_some_and(|labels| labels.shard.is_some());
            match &*write.resource.resource {
                "leases" if is_leaders => renewed = renewed.max(Some(write.received)),
                "websites" if write.by_sharder && has_shard && name == object => {
                    assigned.get_or_insert(write.answered);
                }
                _ => {}
            }
        });
        read.unwrap();
        let both = renewed.zip(assigned);
        async move { both.ok_or_else(|| "not yet".to_owned()) }
    });
    both.await.unwrap()
}

/// The pods of the sharder that changed objects, in the order of their writes.
fn writers(system: &System) -> Vec<String> {
    let events = audit::events(&system.control_plane().audit_log(), SHARDER_USER).unwrap().into_iter();
    let events = events.filter(|event| {
        let (user, verb) = (event["user"]["username"].as_str(), event["verb"].as_str());
        let of_ring = event["objectRef"]["resource"] != "leases" && event["objectRef"]["resource"] != "clusterrings";
        let landed = event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300);
        user == Some(SHARDER_USER) && verb == Some("patch") && of_ring && landed
    });
    events.map(|event| audit::pod(&event).unwrap().to_owned()).collect()
}

/// It stands still in the midst of a move of many, and goes on when another one leads.
async fn a_leader_that_stood_still_takes_nothing_from_the_next_one() {
    const OBJECTS: usize = 300;
    // With the webhook: children that were created without it have no label yet, and would stay behind.
    let (mut system, _) = system(OBJECTS, true).await;
    system.until_settled(DEADLINE).await.unwrap();
    let updates = workload(OBJECTS).start_updates(&system.control_plane().client());
    let before = leader(&system).await;
    let written = writers(&system).len();
    system.add_shard("shard-2").await.unwrap();
    eventually("the move has begun", DEADLINE, || async {
        let now = writers(&system).len();
        if now >= written + 20 { Ok(()) } else { Err(format!("{now} writes, {written} before")) }
    })
    .await
    .unwrap();
    let paused = system.sharders().find(|sharder| sharder.name() == before).unwrap().process();
    paused.pause().unwrap();
    let since = Instant::now();
    eventually("another one leads", DEADLINE, || async {
        let now = leader(&system).await;
        if now == before { Err(now) } else { Ok(()) }
    })
    .await
    .unwrap();
    println!("another one leads after {:?}", since.elapsed());
    assert_another_leads(&system, &before).await;
    let moved = writers(&system).len();
    eventually("it has begun to act", DEADLINE, || async {
        let now = writers(&system);
        if now.iter().skip(moved).any(|pod| *pod != before) { Ok(()) } else { Err(format!("{} writes", now.len())) }
    })
    .await
    .unwrap();
    paused.resume().unwrap();
    // A hundred objects move beside whatever else the machine does.
    system.until_balanced(DEADLINE * 3).await.unwrap();
    updates.stop().await.unwrap();
    system.until_all_worked_on(&workload(OBJECTS), DEADLINE).await.unwrap();

    let writers = writers(&system);
    let took_over = writers.iter().rposition(|pod| *pod == before).unwrap();
    let late = writers[took_over..].iter().collect::<BTreeSet<_>>();
    println!(
        "{} writes in all, {} after the last of {before}, by {late:?}",
        writers.len(),
        writers.len() - took_over - 1
    );
    let first = writers.iter().position(|pod| *pod != before);
    let landed = first.map_or(0, |first| writers[first..].iter().filter(|pod| **pod == before).count());
    println!("writes of {before} that landed after the first of the next one: {landed}");
    let (report, verdict) = (system.report(DEADLINE).await.unwrap(), system.judge_writes().await.unwrap());
    assert!(report.is_clean(), "{report:#?}");
    assert!(verdict.is_clean() && report.second_creates == 0, "{verdict:#?}");
}
