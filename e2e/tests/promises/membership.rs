//! Shards that come, go, restart and die at random, under 500 objects with chains of children.

use std::time::Duration;

use ringside_e2e::{
    checker::{Verdict, percentile},
    churn::Churn,
    system::{Settings, System},
    workload::Workload,
};
use tokio::time::sleep;

const OBJECTS: usize = 500;
const CHANGES: usize = 20;
/// Another one is taken from the environment.
const SEED: u64 = 5;

/// So many moves are acknowledged at the least: a run has had 446.
const HANDOVERS: usize = 100;

/// Enough for a machine that runs other tests beside; what is promised is asserted from the records.
const DEADLINE: Duration = Duration::from_secs(90);

fn workload(seed: u64) -> Workload {
    Workload {
        // Well below the grace; some objects are being worked on at any moment.
        work: Duration::from_millis(300),
        interval: Duration::from_millis(50),
        seed,
        ..Workload::idle("site", OBJECTS)
    }
}

/// The distribution of the times from a drain to the next owner, beyond the grace.
fn tell(verdict: &Verdict, grace: Duration) {
    let beyond = verdict.beyond(grace);
    let parts = |part: fn(&ringside_e2e::checker::Handover) -> Duration| {
        let mut times: Vec<_> = verdict.handovers.iter().map(part).collect();
        times.sort_unstable();
        [50, 90, 99, 100].map(|percent| percentile(&times, percent).unwrap_or_default())
    };
    println!("{} moves were acknowledged; 50, 90, 99 and 100 of 100 took at most", verdict.handovers.len());
    println!(
        "beyond the grace: {:?}",
        [50, 90, 99, 100].map(|percent| percentile(&beyond, percent).unwrap_or_default())
    );
    println!("from the drain to the acknowledgement: {:?}", parts(|one| one.let_go));
    println!("from there to the next owner: {:?}", parts(|one| one.assigned));
}

#[tokio::test]
async fn twenty_changes_at_random_break_no_promise() {
    let settings = Settings { chain: true, ..Settings::default() };
    let seed = std::env::var("RINGSIDE_SEED").map_or(SEED, |seed| seed.parse().expect("RINGSIDE_SEED is a number"));
    println!("RINGSIDE_SEED={seed}");
    let mut system = System::start(settings.clone()).await.unwrap();
    system.start_sharding(2).await.unwrap();
    let mut churn = Churn::new(seed, 3, &settings);
    for shard in churn.running() {
        system.add_shard(shard).await.unwrap();
    }
    system.share_out(&workload(0), DEADLINE).await.unwrap();

    let updates = workload(seed).start_updates(&system.control_plane().client());
    for number in 1..=CHANGES {
        let next = churn.next_change();
        println!("{:?}: change {number}: {next:?}", system.monitor().now());
        next.carry_out(&mut system).await.unwrap();
        sleep(churn.pause()).await;
    }
    system.until_balanced(DEADLINE).await.unwrap();
    updates.stop().await.unwrap();
    system.until_all_worked_on(&workload(0), DEADLINE).await.unwrap();

    let report = system.report(DEADLINE).await.unwrap();
    let verdict = system.judge_writes().await.unwrap();
    tell(&verdict, settings.drain_grace);
    assert!(verdict.handovers.len() > HANDOVERS, "too few to prove anything: {}", verdict.handovers.len());
    if !report.is_clean() || !verdict.is_clean() {
        println!("logs: {:?}", system.keep_logs());
    }
    assert!(report.overlaps.is_empty(), "worked on twice at once: {:#?}", report.overlaps);
    assert!(
        report.is_clean(),
        "taken {:#?}, forgotten {:#?}, apart {:#?}",
        report.taken,
        report.forgotten,
        report.apart
    );
    assert_eq!(report.second_creates, 0);
    assert_eq!(report.objects.values().sum::<usize>(), OBJECTS);
    assert!(verdict.foreign.is_empty() && verdict.late.is_empty(), "{:#?} {:#?}", verdict.foreign, verdict.late);
    assert_eq!(verdict.second_creates, []);
    assert_eq!((verdict.overtaken.len(), verdict.left_behind.len(), verdict.deleted.len()), (0, 0, 0), "{verdict:#?}");
    assert!(
        verdict.is_clean() && verdict.by_shards > 3 * OBJECTS,
        "{} of {} unknown",
        verdict.unknown,
        verdict.by_shards
    );
}
