//! Shards that come, go, restart and die at random, under hundreds of objects with chains of children: 500 and twenty changes
//! with the proxies' fence alone, fewer behind the API server's.

use std::time::Duration;

use ringside_e2e::{
    checker::{Handover, Report, Verdict, percentile},
    churn::Churn,
    eventually::enough,
    system::{Settings, System},
    workload::Workload,
};
use ringside_ring::cluster_ring::Fence;
use tokio::time::sleep;

/// Another one is taken from the environment.
const SEED: u64 = 5;

/// What a run is made of.
#[derive(Clone, Copy)]
struct Run {
    fence: Fence,
    objects: usize,
    changes: usize,
    /// So many moves are acknowledged at the least.
    handovers: usize,
}

/// A run of it has had 446 moves.
const WHOLE: Run = Run { fence: Fence::Proxy, objects: 500, changes: 20, handovers: 100 };

/// Shorter, as it differs in who else says no.
const FENCED: Run = Run { fence: Fence::ApiServer, objects: 200, changes: 10, handovers: 30 };

/// Enough for a machine that runs other tests beside; what is promised is asserted from the records.
const DEADLINE: Duration = Duration::from_secs(90);

fn workload(run: Run, seed: u64) -> Workload {
    Workload {
        // Well below the grace; some objects are being worked on at any moment.
        work: Duration::from_millis(300),
        // Half of what the four workers of a lone shard get done, so that what a restart brings is done as well: controllers
        // with a priority queue let new objects wait for those that change.
        interval: Duration::from_millis(150),
        seed,
        ..Workload::idle("site", run.objects)
    }
}

/// The distribution of the times from a drain to the next owner, beyond the grace.
fn tell(verdict: &Verdict, grace: Duration) {
    let beyond = verdict.beyond(grace);
    let spread = |times: &[Duration]| [50, 90, 99, 100].map(|percent| percentile(times, percent).unwrap_or_default());
    let part = |part: &dyn Fn(&Handover) -> Duration| {
        let mut times: Vec<_> = verdict.handovers.iter().map(part).collect();
        times.sort_unstable();
        spread(&times)
    };
    println!("{} moves were acknowledged; 50, 90, 99 and 100 of 100 took at most", verdict.handovers.len());
    println!("beyond the grace: {:?}", spread(&beyond));
    println!("of that until the acknowledgement arrives: {:?}", part(&|one| one.stages.rest.saturating_sub(grace)));
    println!("its answer: {:?}", part(&|one| one.stages.acknowledgement));
    println!("until the sharder writes: {:?}", part(&|one| one.stages.search));
    println!("what follows the object: {:?}", part(&|one| one.stages.children));
    println!("the object: {:?}", part(&|one| one.stages.assignment));
    println!("the former owner was at work before, for {:?}", part(&|one| one.busy));
}

pub(crate) async fn twenty_changes_at_random_break_no_promise() {
    let verdict = changes_at_random(WHOLE).await;
    assert_eq!(verdict.kept_out, 0, "there is no fence but the proxies'");
}

/// The API server judges by the shards' real tokens, and lets each owner write whatever happens around it.
pub(crate) async fn in_a_ring_that_the_api_server_fences_changes_break_no_promise_and_no_owner_is_refused() {
    let verdict = changes_at_random(FENCED).await;
    println!("{} writes of former owners were refused by the fence", verdict.kept_out);
}

async fn changes_at_random(run: Run) -> Verdict {
    let settings = Settings { chain: true, fence: run.fence, ..Settings::default() };
    let seed = std::env::var("RINGSIDE_SEED").map_or(SEED, |seed| seed.parse().expect("RINGSIDE_SEED is a number"));
    println!("RINGSIDE_SEED={seed}");
    let mut system = System::start(settings.clone()).await.unwrap();
    system.start_sharding(2).await.unwrap();
    let mut churn = Churn::new(seed, 3, &settings);
    for shard in churn.running() {
        system.add_shard(shard).await.unwrap();
    }
    if run.fence == Fence::ApiServer {
        system.until_fenced(DEADLINE).await.unwrap();
    }
    system.share_out(&workload(run, 0), DEADLINE).await.unwrap();

    let updates = workload(run, seed).start_updates(&system.control_plane().client());
    for number in 1..=run.changes {
        let next = churn.next_change();
        println!("{:?}: change {number}: {next:?}", system.monitor().now());
        next.carry_out(&mut system).await.unwrap();
        sleep(churn.pause()).await;
    }
    system.until_balanced(DEADLINE).await.unwrap();
    updates.stop().await.unwrap();
    system.until_all_worked_on(&workload(run, 0), DEADLINE).await.unwrap();

    let report = system.report(DEADLINE).await.unwrap();
    let verdict = system.judge_writes().await.unwrap();
    tell(&verdict, settings.drain_grace);
    enough("acknowledged moves", verdict.handovers.len(), run.handovers);
    check(run, &report, &verdict);
    verdict
}

fn check(run: Run, report: &Report, verdict: &Verdict) {
    assert!(report.overlaps.is_empty(), "worked on twice at once: {:#?}", report.overlaps);
    assert!(
        report.is_clean(),
        "taken {:#?}, forgotten {:#?}, apart {:#?}",
        report.taken,
        report.forgotten,
        report.apart
    );
    assert_eq!(report.second_creates, 0);
    assert_eq!(report.objects.values().sum::<usize>(), run.objects);
    assert!(verdict.foreign.is_empty() && verdict.late.is_empty(), "{:#?} {:#?}", verdict.foreign, verdict.late);
    assert_eq!(verdict.barred, [], "an owner may write");
    assert_eq!(verdict.second_creates, []);
    assert_eq!((verdict.overtaken.len(), verdict.left_behind.len(), verdict.deleted.len()), (0, 0, 0), "{verdict:#?}");
    assert!(
        verdict.is_clean() && verdict.by_shards > 3 * run.objects,
        "{} of {} unknown",
        verdict.unknown,
        verdict.by_shards
    );
}
