//! The promises of Ringside, on a real control plane with an unmodified operator: no object is worked on twice at
//! once, none is forgotten, and none is without an owner for longer than it must be.

use std::time::{Duration, Instant};

use ringside_e2e::{
    case,
    checker::{Cause, Checker, Report},
    eventually::{eventually, in_time},
    live::{Case, Group},
    system::{Settings, System},
    workload::{Updates, Workload},
};

/// The cases.
pub(crate) fn group() -> Group {
    let cases = vec![
        case!(shards_join_leave_return_and_restart)
            .costs("what the demo shows, and `promises` behind the API server's fence"),
        case!(an_object_in_work_is_handed_over_only_when_it_is_done),
        case!(who_ends_hands_over_what_it_has_first),
    ];
    Group::new("sharing", cases.into_iter().map(Case::works).collect())
}

const OBJECTS: usize = 90;

/// Enough for a machine that runs other tests beside; what is promised is asserted from the records.
const DEADLINE: Duration = Duration::from_secs(90);

/// An object that waits for longer is not about to be found.
const FORGOTTEN: Duration = Duration::from_mins(6);

/// Long, as no shard dies here: what waits for a Lease to run out is seen.
const LEASE: Duration = Duration::from_secs(30);

fn workload(seed: u64) -> Workload {
    Workload {
        // Well below the grace time of a drain, as is required of a controller that is silent while it works.
        work: Duration::from_millis(100),
        interval: Duration::from_millis(50),
        seed,
        ..Workload::idle("site", OBJECTS)
    }
}

/// Two sharders, three shards, objects that all have an owner and were worked on.
async fn shared(concurrency: usize, drain_grace: Duration, workload: &Workload) -> System {
    let settings = Settings { concurrency, drain_grace, lease_duration: LEASE, ..Settings::default() };
    let mut system = System::start(settings).await.unwrap();
    system.start_sharding(2).await.unwrap();
    for shard in ["shard-0", "shard-1", "shard-2"] {
        system.add_shard(shard).await.unwrap();
    }
    system.share_out(workload, DEADLINE).await.unwrap();
    system
}

/// No more changes but one to each object, so that everybody has to work on all that he owns now; then the verdict so far, of
/// which there is nothing to complain.
async fn finish(system: &System, updates: Updates) -> Report {
    updates.stop().await.unwrap();
    system.until_all_worked_on(&workload(0), DEADLINE).await.unwrap();
    let (report, writes) = (system.report(FORGOTTEN).await.unwrap(), system.judge_writes().await.unwrap());
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!(writes.lost, []);
    assert_eq!(report.second_creates, 0, "children are moved before their owners, so that none is created again");
    assert_eq!(report.objects.values().sum::<usize>(), OBJECTS);
    report
}

/// About half of the objects are in work when they are drained, and for far longer than a move takes: a proxy that
/// releases without waiting is found at once.
async fn an_object_in_work_is_handed_over_only_when_it_is_done() {
    let slow = |seed| Workload { work: Duration::from_secs(2), ..workload(seed) };
    let mut system = shared(OBJECTS, Duration::from_secs(8), &slow(0)).await;
    let updates = slow(6).start_updates(&system.control_plane().client());
    let busy = || system.monitor().judge(Checker::at_work);
    eventually("objects are in work", DEADLINE, || async {
        if busy() > OBJECTS / 4 { Ok(()) } else { Err(format!("{} in work", busy())) }
    })
    .await
    .unwrap();
    system.add_shard("shard-3").await.unwrap();
    // A drained object is not worked on until its grace has passed, which begins again with each write to it.
    system.until_balanced(DEADLINE).await.unwrap();
    finish(&system, updates).await;
}

/// As in a roll-out: what the replica has moves while its controller works. Nothing is taken over.
async fn who_ends_hands_over_what_it_has_first() {
    let mut system = shared(4, Duration::from_secs(1), &workload(0)).await;
    let had = system.monitor().picture().owned["shard-1"];
    let updates = workload(7).start_updates(&system.control_plane().client());
    let left = system.retire_shard("shard-1").await.unwrap();
    assert!(left.is_none(), "{left:?}");
    system.until_balanced(DEADLINE).await.unwrap();
    let report = finish(&system, updates).await;
    let taken_over = report.times_without_owner(Cause::Released);
    assert!(taken_over.is_empty(), "waited for the end of their replica: {taken_over:?}");
    let writes = system.judge_writes().await.unwrap();
    assert_eq!(writes.handovers.len(), had, "each moved once");
    assert!(writes.is_clean(), "{writes:#?}");
}

/// One system: after each change the verdict is on all of them so far.
async fn shards_join_leave_return_and_restart() {
    let mut system = shared(4, Duration::from_secs(4), &workload(0)).await;
    joins(&mut system).await;
    leaves(&mut system).await;
    returns(&mut system).await;
    restarts(&mut system).await;
}

async fn joins(system: &mut System) {
    let updates = workload(1).start_updates(&system.control_plane().client());
    system.add_shard("shard-3").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    let report = finish(system, updates).await;
    assert_eq!(report.objects.len(), 4, "{:?}", report.objects);
    assert_eq!(report.reconciles.len(), 4, "{:?}", report.reconciles);
    let moved = report.times_without_owner(Cause::Unassigned).len();
    assert_eq!(moved, report.objects["shard-3"], "only to the new shard is moved");
    let writes = system.judge_writes().await.unwrap();
    assert_eq!(writes.handovers.len(), moved, "as the audit log has it too");
    assert!(writes.by_shards >= 3 * OBJECTS, "children and status are written: {}", writes.by_shards);
    assert!(writes.is_clean(), "{writes:#?}");
}

/// No other shard waits for the Lease of one that left. What it costs is measured in the bench; a Lease that was only left behind
/// would have to run out, twice.
async fn leaves(system: &mut System) {
    let updates = workload(2).start_updates(&system.control_plane().client());
    system.remove_shard("shard-1").await.unwrap();
    let left = Instant::now();
    system.until_balanced(DEADLINE).await.unwrap();
    in_time("without an owner", left.elapsed(), LEASE);
    finish(system, updates).await;
}

/// A Pod that comes back gets its share back: placement depends on the names of the shards alone.
async fn returns(system: &mut System) {
    let before = system.monitor().picture().owned;
    let updates = workload(3).start_updates(&system.control_plane().client());
    system.remove_shard("shard-2").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    system.add_shard("shard-2").await.unwrap();
    system.until_owned(&before, DEADLINE).await.unwrap();
    finish(system, updates).await;
}

/// Containers that restart in their Pod go on.
async fn restarts(system: &mut System) {
    let before = system.monitor().picture().owned;
    let updates = workload(5).start_updates(&system.control_plane().client());
    system.restart_shard("shard-0").await.unwrap();
    system.until_owned(&before, DEADLINE).await.unwrap();
    finish(system, updates).await;
}
