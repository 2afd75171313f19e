//! A proxy that stands still until others have its objects, while its controller runs on: what the controller sends meanwhile
//! waits in the proxy's socket, and what the proxy had sent before waits on its way to the API server.

use std::time::Duration;

use ringside_e2e::{
    eventually::eventually,
    relay::{Offer, Relay},
    system::{Settings, System},
    workload::Workload,
};

use crate::promises::{
    request::{SENT, admit, connect, endpoint, hold, owned, release},
    rest::{Still, come_to_rest, is_clean},
};

/// The one that stands still, and the one that goes on.
const STUCK: &str = "shard-0";
const OTHER: &str = "shard-1";

const OBJECTS: usize = 40;

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(90);

/// How audit ids begin of what is sent before the pause and arrives at the proxy as a whole during it, of what is sent during
/// the pause, and of what has left the proxy before it and arrives at the API server at its end.
const BEFORE: &str = "before";
const DURING: &str = "during";
const HELD: &str = "held";

fn workload() -> Workload {
    Workload {
        work: Duration::from_millis(100),
        // So that every operator is at work at any moment.
        interval: Duration::from_millis(50),
        seed: 60,
        ..Workload::idle("site", OBJECTS)
    }
}

/// Requests that the proxy had let through when it was stopped: nothing could take them back.
pub(crate) async fn of_a_proxy_that_stood_still_only_what_it_had_admitted_before_lands() {
    let (lease_duration, drain_grace) = (Duration::from_secs(15), Duration::from_secs(4));
    let settings = Settings { lease_duration, drain_grace, ..Settings::default() };
    let mut system = System::start(settings.clone()).await.unwrap();
    let ring = system.start_sharding(1).await.unwrap();
    let relay = Relay::start(system.control_plane(), Offer::Both).await.unwrap();
    system.add_relayed_shard(STUCK, &relay).await.unwrap();
    system.add_shard(OTHER).await.unwrap();
    system.share_out(&workload(), DEADLINE).await.unwrap();
    let updates = workload().start_updates(&system.control_plane().client());
    let objects = owned(&system, &ring, STUCK).await;
    assert!(objects.len() >= 3 * SENT, "it has {}", objects.len());
    let paused = system.monitor().now();
    let shard = system.shard(STUCK).unwrap();
    let proxy = endpoint(shard);
    let mut before = admit(&proxy, BEFORE, &objects).await;
    let mut during = connect(&proxy, DURING, &objects[SENT..]).await;
    let held = hold(&relay, &proxy, HELD, &objects[2 * SENT..]).await;

    shard.proxy().pause().unwrap();
    for request in &mut during {
        request.send().await;
    }
    for request in &mut before {
        request.send_body().await;
    }
    eventually("others have its objects", DEADLINE, || async {
        let owned = system.monitor().picture().owned.get(STUCK).copied();
        owned.map_or(Ok(()), |objects| Err(format!("it has {objects}")))
    })
    .await
    .unwrap();
    release(&system, &relay, HELD).await;
    shard.proxy().resume().unwrap();
    for request in during {
        assert_ne!(request.answer().await, "200");
    }
    for request in before.into_iter().chain(held) {
        request.answer().await;
    }
    updates.stop().await.unwrap();

    let still = Still { shards: &[STUCK], felt: paused..=come_to_rest(&mut system, &workload()).await };
    let report = system.report(4 * DEADLINE).await.unwrap();
    let verdict = system.judge_writes().await.unwrap();
    assert!(is_clean(&report, &still), "{report:#?}");
    assert_eq!(report.objects.values().sum::<usize>(), OBJECTS);
    assert!(verdict.unknown == 0 && verdict.by_shards > OBJECTS);
    assert_eq!(verdict.lost, []);
    assert_eq!((verdict.deleted.len(), verdict.overtaken.len(), verdict.left_behind.len()), (0, 0, 0), "{verdict:#?}");

    let foreign = &verdict.foreign;
    let sent = |when: &str| foreign.iter().filter(|landed| landed.id.starts_with(when)).count();
    let (before, during, held) = (sent(BEFORE), sent(DURING), sent(HELD));
    let own = foreign.len() - before - during - held;
    assert_eq!(held, SENT, "what the API server's fence is for");
    assert!(during == 0 && verdict.late.is_empty(), "{foreign:#?} {:#?}", verdict.late);
    assert!(foreign.iter().all(|landed| landed.shard == STUCK), "the other has lost nothing: {foreign:#?}");
    // A worker of an operator has one request under way.
    assert!(own <= settings.concurrency, "{foreign:#?}");
}
