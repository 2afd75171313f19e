//! A change in one ring concerns no other.

use std::time::Duration;

use kube::{Api, api::PostParams};
use ringside_e2e::{
    audit::Request,
    eventually::eventually,
    plain_shard::PlainShard,
    system::{NAMESPACE, Settings, System},
};
use ringside_ring::{ClusterRing, RingName};
use serde_json::json;

use crate::at_rest::{DEADLINE, requests, table};

const RINGS: usize = 50;
const SHARDS: usize = 5;
/// What the ring itself costs when a shard joins, at most; far fewer than one for each of the others.
const OF_ONE_RING: usize = 12;
/// The longest that there is: only the test's writes change anything.
const LEASE: Duration = Duration::from_secs(120);
/// So long nothing must have been asked before what follows is counted.
const QUIET: Duration = Duration::from_secs(5);

fn ring(i: usize) -> RingName {
    format!("ring-{i:02}").parse().unwrap()
}

async fn join(system: &System, ring: &RingName, shard: usize) -> PlainShard {
    let name = format!("{ring}-shard-{shard}").parse().unwrap();
    let shard = PlainShard::join(&system.control_plane().client(), NAMESPACE, ring, &name, LEASE).await.unwrap();
    shard.pause();
    shard
}

async fn until_available(system: &System, ring: &RingName, shards: usize) {
    let rings: Api<ClusterRing> = Api::all(system.control_plane().client());
    eventually(&format!("{ring} has its shards"), DEADLINE, || async {
        let status = rings.get(ring.name()).await.map_err(|error| error.to_string())?.status.ok_or("no status")?;
        let ready = status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
        if ready && usize::try_from(status.available_shards) == Ok(shards) {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await
    .unwrap();
}

pub(crate) async fn a_shard_that_joins_one_ring_causes_no_request_for_the_others() {
    let mut system = System::start(Settings { audit_requests: true, ..Settings::default() }).await.unwrap();
    system.start_sharders(1).await.unwrap();
    let rings: Api<ClusterRing> = Api::all(system.control_plane().client());
    for i in 0..RINGS {
        let spec = json!({"resources": [{"group": "", "resource": "configmaps"}], "namespaceSelector": {"matchLabels": {"team": ring(i).name()}}});
        let ring = ClusterRing::new(ring(i).name(), serde_json::from_value(spec).unwrap());
        system.allow(&ring, &[NAMESPACE]).await.unwrap();
        rings.create(&PostParams::default(), &ring).await.unwrap();
    }
    for i in 0..RINGS {
        for shard in 0..SHARDS {
            join(&system, &ring(i), shard).await;
        }
    }
    for i in 0..RINGS {
        until_available(&system, &ring(i), SHARDS).await;
    }
    let mut asked = requests(&system);
    // Only the Lease of the election goes on, and the probes.
    let others = |found: Vec<Request>| -> Vec<_> {
        let goes_on = |request: &Request| request.name == "ringside-sharder" || request.uri.contains("dryRun=All");
        found.into_iter().filter(|request| !goes_on(request)).collect()
    };
    loop {
        tokio::time::sleep(QUIET).await;
        let late = others(asked.since().unwrap());
        if late.is_empty() {
            break;
        }
        eprintln!("not quiet yet: {:?}", table(&late));
    }
    join(&system, &ring(7), SHARDS).await;
    until_available(&system, &ring(7), SHARDS + 1).await;
    tokio::time::sleep(QUIET).await;
    let found = others(asked.since().unwrap());
    eprintln!("a shard joined one of {RINGS} rings: {:#?}", table(&found));
    assert!(!found.is_empty(), "nothing was counted");
    for request in &found {
        let named = (0..RINGS)
            .filter(|i| *i != 7)
            .any(|i| request.name.contains(ring(i).name()) || request.uri.contains(ring(i).name()));
        assert!(!named, "{request:?}");
    }
    // Its Lease's state, the ring's status and Events, what has no owner, and the look at all objects.
    assert!(found.len() <= OF_ONE_RING, "{found:#?}");
}
