//! A shard whose controller does not run, while its proxy holds the Lease.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use ringside_e2e::{eventually::eventually, workload::Workload};

use super::{DEADLINE, Fixture, OBJECTS};
use crate::planes::Keeps;

const SHARDS: [&str; 3] = ["shard-0", "shard-1", "shard-2"];
const LATER: usize = 30;

/// Waits until all objects are with these shards alone, and were worked on as they are now.
async fn until_worked_on_by(fixture: &Fixture, shards: &[&str]) {
    let (what, labels) = (format!("all objects are worked on by {shards:?}"), fixture.labels());
    let done = eventually(&what, DEADLINE, || async {
        let all = fixture.sites().list(&Default::default()).await.map_err(|error| error.to_string())?.items;
        let (mut owners, mut done) = (BTreeMap::<_, usize>::new(), 0);
        for website in &all {
            // Those that have none, or are to be released, count as without owner.
            let ownership = labels.ownership(Some(website.labels()));
            *owners.entry(ownership.shard.filter(|_| ownership.drain.is_none()).unwrap_or_default()).or_default() += 1;
            let observed = website.status.as_ref().map(|status| status.observed_generation);
            done += usize::from(observed == website.metadata.generation);
        }
        let are_there = owners.keys().eq(shards) && done == all.len();
        if are_there { Ok(()) } else { Err(format!("{owners:?}, {done} of {} worked on", all.len())) }
    });
    done.await.unwrap();
}

pub(super) async fn has_no_objects_until_it_is_back() {
    let mut fixture = Fixture::on(Keeps::Both, "absent").await;
    fixture.add_shards(&SHARDS).await;
    let ring = fixture.ring.name().to_owned();
    let absent = |shards: usize| format!("{} {shards}", fixture.of_ring("clusterring_status_absent_controllers"));
    let (none, one) = (absent(0), absent(1));
    let workload = Workload::idle("site", OBJECTS).within(fixture.system.namespace());
    fixture.create("site", OBJECTS).await;
    until_worked_on_by(&fixture, &SHARDS).await;
    fixture.until_condition("ControllersWorking", "True").await;
    fixture.until_metrics(&[&none]).await;

    let operator = fixture.system.shard(SHARDS[0]).unwrap().operator();
    operator.kill().unwrap();
    operator.wait_for_group(DEADLINE).await.unwrap();
    workload.change_all(&fixture.client).await.unwrap();
    until_worked_on_by(&fixture, &SHARDS[1..]).await;
    fixture.until_metrics(&[&one]).await;
    // Nothing new goes there.
    fixture.create("later", LATER).await;
    until_worked_on_by(&fixture, &SHARDS[1..]).await;
    let told = fixture.until_condition("ControllersWorking", "False").await;
    assert!(told.reason == "ControllerAbsent" && told.message.contains("'shard-0' since 2"), "{told:?}");
    fixture.until_event("ClusterRing", &ring, "ControllerAbsent", "").await;
    let metrics = ringside_e2e::system::metrics(fixture.system.shard(SHARDS[0]).unwrap().admin_port()).await.unwrap();
    let told = metrics.lines().find(|line| line.starts_with("ringside_proxy_controller_absent_seconds{"));
    assert!(told.is_some_and(|line| !line.ends_with(" 0.0")), "{metrics}");

    fixture.system.revive_shards().unwrap();
    until_worked_on_by(&fixture, &SHARDS).await;
    fixture.until_condition("ControllersWorking", "True").await;
    fixture.until_metrics(&[&none]).await;
}
