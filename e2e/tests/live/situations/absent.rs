//! A shard whose controller does not run, while its proxy holds the Lease.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kube::{Api, ResourceExt as _};
use ringside_e2e::{
    eventually::{eventually, in_time},
    system::Settings,
    website::Website,
    workload::Workload,
};

use super::{DEADLINE, Fixture, OBJECTS};

const SHARDS: [&str; 3] = ["shard-0", "shard-1", "shard-2"];
/// As by default: the bounds of a proxy's memory fit it.
const LEASE: Duration = Duration::from_secs(15);
/// Two durations until it counts as absent, and the moves.
const BOUND: Duration = Duration::from_secs(3 * LEASE.as_secs());
const LATER: usize = 30;

/// How many objects each shard has; those that have none, or are to be released, under an empty name.
async fn owners(fixture: &Fixture) -> Result<BTreeMap<String, usize>, String> {
    let labels = fixture.labels();
    let mut owners = BTreeMap::new();
    for website in websites(fixture).await? {
        let ownership = labels.ownership(Some(website.labels()));
        let owner = ownership.shard.filter(|_| ownership.drain.is_none()).unwrap_or_default();
        *owners.entry(owner.to_owned()).or_default() += 1;
    }
    Ok(owners)
}

async fn websites(fixture: &Fixture) -> Result<Vec<Website>, String> {
    let api: Api<Website> = Api::all(fixture.client.clone());
    Ok(api.list(&Default::default()).await.map_err(|error| error.to_string())?.items)
}

/// Waits until all objects are with these shards alone, and were worked on as they are now.
async fn until_worked_on_by(fixture: &Fixture, shards: &[&str]) {
    let what = format!("all objects are worked on by {shards:?}");
    let done = eventually(&what, DEADLINE, || async {
        let (owners, all) = (owners(fixture).await?, websites(fixture).await?);
        let is_done = |website: &&Website| {
            let observed = website.status.as_ref().map(|status| status.observed_generation);
            observed == website.metadata.generation
        };
        let done = all.iter().filter(is_done).count();
        let are_there = owners.keys().eq(shards.iter()) && done == all.len();
        if are_there { Ok(()) } else { Err(format!("{owners:?}, {done} of {} worked on", all.len())) }
    });
    done.await.unwrap();
}

pub(super) async fn has_no_objects_until_it_is_back() {
    let mut fixture = Fixture::start(Settings { lease_duration: LEASE, ..Settings::default() }).await;
    fixture.add_shards(&SHARDS).await;
    let ring = fixture.ring.to_string();
    let absent = format!("controller_sharding_clusterring_status_absent_controllers{{ring=\"{ring}\"}}");
    let workload = Workload::idle("site", OBJECTS);
    fixture.create("site", OBJECTS).await;
    until_worked_on_by(&fixture, &SHARDS).await;
    fixture.until_condition("ControllersWorking", "True").await;
    fixture.until_metric(&format!("{absent} 0")).await;

    let operator = fixture.system.shard(SHARDS[0]).unwrap().operator();
    operator.kill().unwrap();
    operator.wait_for_group(DEADLINE).await.unwrap();
    let killed = Instant::now();
    workload.change_all(&fixture.client).await.unwrap();
    until_worked_on_by(&fixture, &SHARDS[1..]).await;
    let took = killed.elapsed();
    eprintln!("all objects were worked on by others {took:?} after the kill");
    in_time("worked on by others", took, BOUND);
    fixture.until_metric(&format!("{absent} 1")).await;
    fixture.create("later", LATER).await;
    until_worked_on_by(&fixture, &SHARDS[1..]).await;
    let told = fixture.until_condition("ControllersWorking", "False").await;
    assert!(told.reason == "ControllerAbsent" && told.message.contains("'shard-0' since 2"), "{told:?}");
    fixture.until_event("ClusterRing", &ring, "ControllerAbsent").await;
    assert_eq!(owners(&fixture).await.unwrap().get(SHARDS[0]), None, "nothing new goes there");
    let metrics = ringside_e2e::system::metrics(fixture.system.shard(SHARDS[0]).unwrap().admin_port()).await.unwrap();
    let told = metrics.lines().find(|line| line.starts_with("ringside_proxy_controller_absent_seconds{"));
    assert!(told.is_some_and(|line| !line.ends_with(" 0.0")), "{metrics}");

    fixture.system.revive_shards().unwrap();
    until_worked_on_by(&fixture, &SHARDS).await;
    fixture.until_condition("ControllersWorking", "True").await;
    fixture.until_metric(&format!("{absent} 0")).await;
}
