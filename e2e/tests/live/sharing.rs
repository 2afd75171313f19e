//! The promises of Ringside, on a real control plane with an unmodified operator: no object is worked on twice at
//! once, none is forgotten, and none is without an owner for longer than it must be.

use std::time::Duration;

use ringside_e2e::{
    case,
    live::{Case, Group},
};
use ringside_e2e::{
    checker::{Cause, Checker, Report, percentile},
    eventually::{enough, eventually, in_time},
    system::{Settings, System},
    workload::{Updates, Workload},
};

/// The cases.
pub(crate) fn group() -> Group {
    let cases = vec![
        case!(without_ringside_one_replica_does_all_the_work),
        case!(two_leaders_at_once_are_found),
        case!(shards_join_leave_return_and_restart),
        case!(an_object_in_work_is_handed_over_only_when_it_is_done),
    ];
    Group::new("sharing", cases.into_iter().map(Case::works).collect())
}

const OBJECTS: usize = 90;

/// Enough for a machine that runs other tests beside; what is promised is asserted from the records.
const DEADLINE: Duration = Duration::from_secs(60);

/// What a killed shard costs at most: its Lease runs out twice, and 2 s, also under load.
fn takeover(settings: &Settings) -> Duration {
    2 * settings.lease_duration + Duration::from_secs(2)
}

/// The takeover, and the queue behind it.
fn forgotten_after(settings: &Settings) -> Duration {
    takeover(settings) + Duration::from_secs(5)
}

fn workload(objects: usize, seed: u64) -> Workload {
    Workload {
        // Well below the grace time of a drain, as is required of a controller that is silent while it works.
        work: Duration::from_millis(100),
        interval: Duration::from_millis(50),
        seed,
        ..Workload::idle("site", objects)
    }
}

/// Two sharders, three shards, objects that all have an owner and were worked on.
async fn shared() -> System {
    shared_with(Settings::default(), &workload(OBJECTS, 0)).await
}

async fn shared_with(settings: Settings, workload: &Workload) -> System {
    let mut system = System::start(settings).await.unwrap();
    system.start_sharding(2).await.unwrap();
    for shard in ["shard-0", "shard-1", "shard-2"] {
        system.add_shard(shard).await.unwrap();
    }
    system.share_out(workload, DEADLINE).await.unwrap();
    system
}

/// No more changes but one to each object, so that everybody has to work on all that he owns now.
async fn finish(system: &System, updates: Updates) {
    updates.stop().await.unwrap();
    system.until_all_worked_on(&workload(OBJECTS, 0), DEADLINE).await.unwrap();
}

/// The verdict so far, of which there is nothing to complain.
async fn clean_report(system: &System) -> Report {
    clean_report_within(system, forgotten_after(&Settings::default())).await
}

async fn clean_report_within(system: &System, bound: Duration) -> Report {
    let report = system.report(bound).await.unwrap();
    assert!(report.overlaps.is_empty(), "worked on twice at once: {:#?}", report.overlaps);
    assert!(report.taken.is_empty(), "taken from a live shard: {:#?}", report.taken);
    assert!(report.forgotten.is_empty(), "forgotten: {:#?}", report.forgotten);
    assert!(report.apart.is_empty(), "children apart from their owners: {:#?}", report.apart);
    assert_eq!(report.second_creates, 0, "children are moved before their owners, so that none is created again");
    assert!(report.is_clean());
    assert_eq!(report.objects.values().sum::<usize>(), OBJECTS);
    report
}

async fn without_ringside_one_replica_does_all_the_work() {
    let mut system = System::start(Settings::default()).await.unwrap();
    for replica in ["replica-0", "replica-1", "replica-2"] {
        system.add_unsharded(replica).await.unwrap();
    }
    let client = system.control_plane().client();
    workload(OBJECTS, 0).create(&client).await.unwrap();
    eventually("all objects are worked on", DEADLINE, || async {
        let done: usize = system.monitor().judge(|checker| checker.reconciles().values().sum());
        if done >= OBJECTS { Ok(()) } else { Err(format!("{done} reconciles")) }
    })
    .await
    .unwrap();
    let workers = system.monitor().judge(|checker| checker.reconciles().len());
    assert_eq!(workers, 1);
}

async fn two_leaders_at_once_are_found() {
    let mut system = System::start(Settings::default()).await.unwrap();
    system.add_unsharded("replica-0").await.unwrap();
    system.add_unsharded_with_lock("replica-1", "kube-system").await.unwrap();
    let client = system.control_plane().client();
    workload(OBJECTS, 0).create(&client).await.unwrap();
    eventually("an overlap", DEADLINE, || async {
        system.check().map_err(|error| error.to_string())?;
        let overlaps = system.monitor().judge(Checker::overlaps);
        if overlaps > 0 { Ok(()) } else { Err("none".to_owned()) }
    })
    .await
    .unwrap();
    assert!(!system.report(forgotten_after(&Settings::default())).await.unwrap().is_clean());
}

/// About half of the objects are in work when they are drained, and for far longer than a move takes: a proxy that
/// lets go without waiting is found at once.
async fn an_object_in_work_is_handed_over_only_when_it_is_done() {
    let (work, grace) = (Duration::from_secs(2), Duration::from_secs(3));
    let settings = Settings { concurrency: OBJECTS, drain_grace: grace, ..Settings::default() };
    let slow = |seed| Workload { work, ..workload(OBJECTS, seed) };
    let mut system = shared_with(settings, &slow(0)).await;
    let updates = slow(6).start_updates(&system.control_plane().client());
    let busy = || system.monitor().judge(Checker::at_work);
    eventually("objects are in work", DEADLINE, || async {
        if busy() > OBJECTS / 4 { Ok(()) } else { Err(format!("{} in work", busy())) }
    })
    .await
    .unwrap();
    system.add_shard("shard-3").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    finish(&system, updates).await;
    // A drained object is not worked on until its grace has passed, which begins anew with each write to it.
    clean_report_within(&system, DEADLINE).await;
}

/// One system: after each change the verdict is on all of them so far.
async fn shards_join_leave_return_and_restart() {
    let mut system = shared().await;
    joins(&mut system).await;
    leaves(&mut system).await;
    returns(&mut system).await;
    restarts(&mut system).await;
}

async fn joins(system: &mut System) {
    let updates = workload(OBJECTS, 1).start_updates(&system.control_plane().client());
    system.add_shard("shard-3").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    finish(system, updates).await;
    let report = clean_report(system).await;
    assert_eq!(report.objects.len(), 4, "{:?}", report.objects);
    assert_eq!(report.reconciles.len(), 4, "{:?}", report.reconciles);
    let moved = report.times_without_owner(Cause::Unassigned).len();
    assert_eq!(moved, report.objects["shard-3"], "only to the new shard is moved");
    let writes = system.judge_writes().await.unwrap();
    assert_eq!(writes.handovers.len(), moved, "as the audit log has it too");
    assert!(writes.by_shards >= 3 * OBJECTS, "children and status are written: {}", writes.by_shards);
    assert!(writes.is_clean(), "{writes:#?}");
}

/// No other shard waits for the Lease of one that left.
async fn leaves(system: &mut System) {
    let owned = system.monitor().picture().owned["shard-1"];
    let updates = workload(OBJECTS, 2).start_updates(&system.control_plane().client());
    system.remove_shard("shard-1").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    finish(system, updates).await;
    let without_owner = clean_report(system).await.times_without_owner(Cause::Released);
    // Not all: object and Lease come by two watches, and a move that is seen first leaves no time to measure.
    enough("moves of a shard that left", without_owner.len(), owned / 2);
    // What it costs is measured in the bench. A Lease that was only left behind would have to run out, twice.
    let longest = percentile(&without_owner, 100).unwrap();
    in_time("without an owner", longest, Settings::default().lease_duration);
}

/// A Pod that comes back gets its share back: placement depends on the names of the shards alone.
async fn returns(system: &mut System) {
    let before = system.monitor().picture().owned;
    let updates = workload(OBJECTS, 3).start_updates(&system.control_plane().client());
    system.remove_shard("shard-2").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    system.add_shard("shard-2").await.unwrap();
    system.until_owned(&before, DEADLINE).await.unwrap();
    finish(system, updates).await;
    clean_report(system).await;
}

/// Containers that restart in their Pod go on.
async fn restarts(system: &mut System) {
    let before = system.monitor().picture().owned;
    let updates = workload(OBJECTS, 5).start_updates(&system.control_plane().client());
    system.restart_shard("shard-0").await.unwrap();
    system.until_owned(&before, DEADLINE).await.unwrap();
    finish(system, updates).await;
    clean_report(system).await;
}
