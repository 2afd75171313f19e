//! Replicas of the sharder: how soon the next one acts when the leader ends, in order or not, and that two never act on one
//! object at once. Where it is measured there is no webhook: whatever gets an owner gets it from the leader.

use std::time::Duration;

use kube::{Api, ResourceExt as _, api::PostParams};
use ringside_e2e::{
    audit, case,
    eventually::{eventually, in_time},
    live::Group,
    system::{NAMESPACE, SHARDER_USER, Settings, System},
    website::{Website, WebsiteSpec},
    workload::Workload,
};
use ringside_ring::{RingLabels, RingName};
use tokio::time::Instant;

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "leadership",
        vec![
            case!(the_next_leader_acts_in_time).alone(),
            case!(a_leader_that_stood_still_takes_nothing_from_the_next_one)
                .works()
                .strict()
                .costs("a minute: the model tries it in every order"),
        ],
    )
}

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(90);
/// What is promised of a graceful end: so soon the next one acts.
const PROMISED: Duration = Duration::from_secs(3);
/// How long the replicas wait for a leader that does not renew: what is promised of a kill, with what follows: the Lease is taken,
/// the Leases of shards are read, the objects without shard listed, and the first is written to.
const LEASE: Duration = Duration::from_secs(15);

/// Two replicas, two shards, and objects that all have an owner.
async fn system(objects: usize, webhook: bool) -> (System, RingName) {
    let (lease_duration, drain_grace) = (Duration::from_secs(15), Duration::from_secs(4));
    let mut system =
        System::start(Settings { webhook, lease_duration, drain_grace, ..Settings::default() }).await.unwrap();
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
async fn until_another_leads(system: &System, before: &str) {
    let another = eventually("another one leads", DEADLINE, || async {
        let now = leader(system).await;
        if now == before { Err(now) } else { Ok(now) }
    });
    let now = another.await.unwrap();
    let log = system.sharders().find(|sharder| sharder.name() == now).unwrap().process().log().to_owned();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.lines().any(|line| line.contains("became leader")), "{log}");
}

/// Creates an object, and waits until it has a shard.
async fn assigned(system: &System, ring: &RingName, name: &str) {
    let (websites, labels) =
        (Api::<Website>::namespaced(system.control_plane().client(), NAMESPACE), RingLabels::of(ring));
    websites.create(&PostParams::default(), &Website::new(name, WebsiteSpec::default())).await.unwrap();
    let has_shard = eventually("it has a shard", DEADLINE, || async {
        let website = websites.get(name).await.map_err(|error| error.to_string())?;
        labels.ownership(Some(website.labels())).shard.map(drop).ok_or_else(|| format!("{:?}", website.labels()))
    });
    has_shard.await.unwrap();
}

async fn the_next_leader_acts_in_time() {
    let (mut system, ring) = system(10, false).await;
    let before = leader(&system).await;
    // It has ended when this returns, and the next one may act already.
    system.stop_sharder(&before).await.unwrap();
    let ended = Instant::now();
    assigned(&system, &ring, "after-an-end").await;
    let took = ended.elapsed();
    println!("{before} ended; an object that was made then had a shard after {took:?}");
    until_another_leads(&system, &before).await;
    in_time("a shard after a graceful end", took, PROMISED);

    system.start_sharders(2).await.unwrap();
    let before = leader(&system).await;
    let killed = Instant::now();
    system.kill_sharder(&before).await.unwrap();
    assigned(&system, &ring, "after-a-kill").await;
    let took = killed.elapsed();
    println!("{before} was killed; an object that was made then had a shard {took:?} after that");
    until_another_leads(&system, &before).await;
    in_time("a shard after a kill", took, LEASE + PROMISED);
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

/// It stands still during a move of many, and goes on when another one leads.
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
    until_another_leads(&system, &before).await;
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
    let (report, verdict) = (system.report(4 * DEADLINE).await.unwrap(), system.judge_writes().await.unwrap());
    assert!(report.is_clean(), "{report:#?}");
    assert!(verdict.is_clean() && report.second_creates == 0, "{verdict:#?}");
}
