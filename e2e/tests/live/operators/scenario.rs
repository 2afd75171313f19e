//! Shards that join, leave, restart and die while objects change, and the verdicts on all of it.

use std::time::Duration;

use ringside_e2e::{
    checker::Report,
    system::{Settings, System},
    toolchain::Operator,
    workload::{Updates, Workload},
};

use super::{DEADLINE, FORGOTTEN, assert_clean};

const OBJECTS: usize = 60;

fn workload(seed: u64) -> Workload {
    Workload {
        // Well below the grace time of a drain, as is required of a controller that is silent while it works.
        work: Duration::from_millis(100),
        interval: Duration::from_millis(100),
        seed,
        ..Workload::idle("site", OBJECTS)
    }
}

/// Two sharders and three shards of one operator, of which one more joins, one leaves, one restarts and one is killed.
pub(crate) async fn of(operator: Operator, children_in_ring: bool) {
    let (mut system, updates) = begin(operator, children_in_ring, &[operator; 3]).await;
    system.add_shard("shard-3").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    system.remove_shard("shard-1").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    system.restart_shard("shard-2").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    system.kill_shard("shard-0").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    let report = end(&system, updates).await;
    assert_eq!(report.objects.keys().collect::<Vec<_>>(), ["shard-2", "shard-3"]);
    assert_eq!(report.reconciles.len(), 5, "all of them worked: {:?}", report.reconciles);
}

/// Replicas in Go and in Python are members of one ring, and objects go from each to the other.
pub(crate) async fn mixed() {
    let (mut system, updates) = begin(Operator::Go, true, &[Operator::Go, Operator::Python]).await;
    for (newcomer, operator) in [("shard-2", Operator::Python), ("shard-3", Operator::Go)] {
        system.add_shard_of(newcomer, operator, &[]).await.unwrap();
        system.until_balanced(DEADLINE).await.unwrap();
    }
    // Those of Go go to Python, and back.
    for removed in ["shard-0", "shard-3"] {
        system.remove_shard(removed).await.unwrap();
        system.until_balanced(DEADLINE).await.unwrap();
    }
    system.add_shard_of("shard-4", Operator::Go, &[]).await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    for killed in ["shard-1", "shard-2"] {
        system.kill_shard(killed).await.unwrap();
        system.until_balanced(DEADLINE).await.unwrap();
    }
    let report = end(&system, updates).await;
    assert_eq!(report.objects.keys().collect::<Vec<_>>(), ["shard-4"]);
    assert_eq!(report.reconciles.len(), 5, "all of them worked: {:?}", report.reconciles);
}

/// A system in which objects change steadily.
async fn begin(operator: Operator, children_in_ring: bool, shards: &[Operator]) -> (System, Updates) {
    let settings = Settings {
        operator,
        children_in_ring,
        // Handlers of kopf are silent while they wait for a thread: after a move each new object has one that waits.
        drain_grace: Duration::from_secs(4),
        ..Settings::default()
    };
    let mut system = System::start(settings).await.unwrap();
    system.start_sharding(2).await.unwrap();
    for (index, operator) in shards.iter().enumerate() {
        system.add_shard_of(&format!("shard-{index}"), *operator, &[]).await.unwrap();
    }
    system.share_out(&workload(0), DEADLINE).await.unwrap();
    let updates = workload(1).start_updates(&system.control_plane().client());
    (system, updates)
}

/// One more change to each object, and both verdicts, of which there is nothing to complain.
async fn end(system: &System, updates: Updates) -> Report {
    updates.stop().await.unwrap();
    system.until_all_worked_on(&workload(0), DEADLINE).await.unwrap();
    let (report, writes) = (system.report(FORGOTTEN).await.unwrap(), system.judge_writes().await.unwrap());
    println!(
        "reconciles {:?}, {} writes of shards, {} moves that were acknowledged",
        report.reconciles,
        writes.by_shards,
        writes.handovers.len()
    );
    assert_clean(&report);
    assert_eq!(report.objects.values().sum::<usize>(), OBJECTS);
    assert!(writes.by_shards >= OBJECTS, "{}", writes.by_shards);
    assert!(writes.is_clean(), "{writes:#?}");
    report
}
