//! Shards that come, go, restart and die at random, under 500 objects with chains of children.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use ringside_e2e::{
    checker::{Verdict, percentile},
    system::{NAMESPACE, Settings, System},
    workload::Workload,
};
use tokio::time::{Instant, sleep};

const OBJECTS: usize = 500;
const CHANGES: usize = 20;
const SEED: u64 = 5;

/// Enough for a machine that runs other tests beside; what is promised is asserted from the records.
const DEADLINE: Duration = Duration::from_secs(90);

/// So many run at least, for there to be somebody to move to, and at most, for a small machine.
const SHARDS: std::ops::RangeInclusive<usize> = 2..=4;

/// The longest pause between two changes: some meet the moves of the one before, some meet none.
const PAUSE: Duration = Duration::from_secs(3);

fn workload(seed: u64) -> Workload {
    Workload {
        namespace: NAMESPACE.to_owned(),
        prefix: "site",
        objects: OBJECTS,
        // Well below the grace.
        work: Duration::from_millis(50),
        interval: Duration::from_millis(100),
        seed,
    }
}

#[derive(Debug)]
enum Change {
    Join(String),
    Leave(String),
    Restart(String),
    Kill(String),
}

/// What happens next, as the seed has it.
struct Fate {
    random: StdRng,
    running: Vec<String>,
    /// Their names come back. A killed one's Pod is still there.
    left: Vec<String>,
    names: usize,
    killed: Option<Instant>,
    settings: Settings,
}

impl Fate {
    fn next(&mut self) -> Change {
        // Two deaths at once are as one to the objects; one after the other they make them wait twice.
        let takeover = 2 * self.settings.lease_duration + Duration::from_secs(5);
        let may_kill = self.killed.is_none_or(|killed| killed.elapsed() > takeover);
        let (few, many) = (self.running.len() <= *SHARDS.start(), self.running.len() >= *SHARDS.end());
        loop {
            match self.random.random_range(0..4) {
                0 if !many => {
                    let name = self.left.pop().unwrap_or_else(|| {
                        self.names += 1;
                        format!("shard-{}", self.names - 1)
                    });
                    self.running.push(name.clone());
                    return Change::Join(name);
                }
                1 if !few => {
                    let name = self.pick();
                    self.left.push(name.clone());
                    return Change::Leave(name);
                }
                2 => {
                    let name = self.pick();
                    self.running.push(name.clone());
                    return Change::Restart(name);
                }
                3 if !few && may_kill => {
                    self.killed = Some(Instant::now());
                    return Change::Kill(self.pick());
                }
                _ => {}
            }
        }
    }

    fn pick(&mut self) -> String {
        let index = self.random.random_range(0..self.running.len());
        self.running.remove(index)
    }

    fn pause(&mut self) -> Duration {
        PAUSE.mul_f64(self.random.random())
    }
}

async fn change(system: &mut System, change: &Change) {
    let done = match change {
        Change::Join(name) => system.add_shard(name).await,
        Change::Leave(name) => system.remove_shard(name).await,
        Change::Restart(name) => system.restart_shard(name).await,
        Change::Kill(name) => system.kill_shard(name).await,
    };
    done.unwrap();
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
    let mut system = System::start(settings.clone()).await.unwrap();
    system.start_sharding(2).await.unwrap();
    let running: Vec<_> = (0..3).map(|index| format!("shard-{index}")).collect();
    for shard in &running {
        system.add_shard(shard).await.unwrap();
    }
    system.until_counted(DEADLINE).await.unwrap();
    workload(0).create(&system.control_plane().client()).await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    system.until_settled(DEADLINE).await.unwrap();

    let updates = workload(SEED).start_updates(&system.control_plane().client());
    let names = running.len();
    let random = StdRng::seed_from_u64(SEED);
    let mut fate = Fate { random, running, left: Vec::new(), names, killed: None, settings: settings.clone() };
    for number in 1..=CHANGES {
        let next = fate.next();
        println!("{:?}: change {number}: {next:?}", system.monitor().now());
        change(&mut system, &next).await;
        sleep(fate.pause()).await;
    }
    system.until_balanced(DEADLINE).await.unwrap();
    updates.stop().await.unwrap();
    system.until_all_worked_on(&workload(0), DEADLINE).await.unwrap();

    let report = system.report(DEADLINE).await.unwrap();
    let verdict = system.judge_writes().await.unwrap();
    tell(&verdict, settings.drain_grace);
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
