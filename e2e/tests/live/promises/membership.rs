//! Shards that come, go, restart and die at random, under hundreds of objects with chains of children: 500 and twenty changes
//! with the proxies' fence alone, fewer behind the API server's.

use std::time::Duration;

use ringside_e2e::{
    checker::Verdict,
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

/// An object that waits for longer is not about to be found: the slowest machine is done with it by then.
const FORGOTTEN: Duration = Duration::from_mins(6);

fn workload(run: Run, seed: u64) -> Workload {
    Workload {
        // Far below the grace; some objects are being worked on at any moment.
        work: Duration::from_millis(300),
        // Half of what the four workers of a lone shard get done, so that what a restart brings is done as well: controllers
        // with a priority queue let new objects wait for those that change.
        interval: Duration::from_millis(150),
        seed,
        ..Workload::idle("site", run.objects)
    }
}

pub(crate) async fn twenty_changes_at_random_break_no_promise() {
    let verdict = changes_at_random(WHOLE).await;
    assert_eq!(verdict.kept_out, 0, "there is no fence but the proxies'");
}

/// The API server judges by the shards' real tokens, and lets each owner write whatever happens around it.
pub(crate) async fn in_a_ring_that_the_api_server_fences_changes_break_no_promise_and_no_owner_is_refused() {
    changes_at_random(FENCED).await;
}

async fn changes_at_random(run: Run) -> Verdict {
    let settings = Settings {
        chain: true,
        fence: run.fence,
        lease_duration: Duration::from_secs(15),
        drain_grace: Duration::from_secs(4),
        ..Settings::default()
    };
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

    let report = system.report(FORGOTTEN).await.unwrap();
    let verdict = system.judge_writes().await.unwrap();
    enough("acknowledged moves", verdict.handovers.len(), run.handovers);
    assert!(report.is_clean() && report.second_creates == 0, "{report:#?}");
    assert_eq!(report.objects.values().sum::<usize>(), run.objects);
    assert!(verdict.is_clean(), "{verdict:#?}");
    assert!(verdict.by_shards > 3 * run.objects, "{} writes", verdict.by_shards);
    verdict
}
