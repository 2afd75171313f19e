//! Chaos: everything that can fail fails at random beneath shards at work, and a verdict on what came of it.
//!
//! `cargo run --release -p ringside-tests --bin chaos -- --minutes 10 --seed 1`

mod arguments;
mod dead;
mod faults;
mod history;
mod run;
pub mod schedule;
mod settle;
mod silence;
mod verdict;

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result};
use ringside_ring::cluster_ring::Fence;
use ringside_runtime::shutdown::Shutdown;

pub use self::{
    arguments::Arguments,
    run::Injected,
    settle::Unrest,
    verdict::{Judged, Verdict},
};
use self::{
    run::Run,
    schedule::{Kind, Planned, Terms, schedule, shard},
};
use crate::{
    system::{NAMESPACE, Settings, System},
    workload::Workload,
};

/// How long a reconcile works. Well below the grace.
const WORK: Duration = Duration::from_millis(50);

/// The time between two changes of objects.
const INTERVAL: Duration = Duration::from_millis(100);

/// The sharder replicas.
const SHARDERS: usize = 2;

/// In this time everything begins, or has come to rest: thousands of objects on a small machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// What waited for longer is forgotten, even if it was found again: well beyond the longest fault and what runs out after it,
/// the Leases of a shard and of the sharder's leader and the lock of a controller that was killed, for a shard and the one that
/// comes after it; and well below the period in which the sharder scans all objects.
const FORGOTTEN: Duration = Duration::from_secs(120);

/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs it. Success is the verdict that all promises were kept.
pub async fn run(arguments: &Arguments) -> Result<ExitCode> {
    let terms = arguments.terms();
    say(&format!("seed {}, {:?}, {} shards, {} objects", terms.seed, terms.length, terms.shards, terms.objects));
    for planned in schedule(&terms) {
        say(&planned.to_string());
    }
    if arguments.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let shutdown = Shutdown::on_signals()?;
    tokio::select! {
        verdict = hold(&terms) => {
            let verdict = verdict?;
            say(&verdict.to_string());
            Ok(if verdict.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        () = shutdown.wait() => Ok(ExitCode::from(INTERRUPTED)),
    }
}

/// Starts a system, carries the schedule out on it, and judges. Says what happens as it does.
pub async fn hold(terms: &Terms) -> Result<Verdict> {
    let ordinary = Settings::with_short_leases();
    let settings = Settings {
        // Objects that are made again need the garbage collector.
        controller_manager: true,
        chain: true,
        // In proportion to shard Leases as short as these, as docs/dev/limits.md asks for.
        renew_deadline: ordinary.lease_duration * 2 / 3,
        fence: Fence::ApiServer,
        lines: true,
        // What is missed is not to be found by a look at all objects that would have come anyway.
        sync_period: 2 * terms.length + DEADLINE,
        ..ordinary
    };
    let mut run = begin(terms, settings.clone()).await?;
    let outcome = carry_out(&mut run, &schedule(terms), &settings).await;
    if outcome.as_ref().map_or(true, |verdict| !verdict.is_clean()) {
        say(&format!("logs: {:?}", run.system.keep_logs()));
    }
    outcome
}

async fn carry_out(run: &mut Run, planned: &[Planned], settings: &Settings) -> Result<Verdict> {
    let updates = run.workload.start_insistent_updates(&run.client);
    let happened = run.carry_out(planned, say).await;
    let changes = updates.made();
    drop(updates);
    let rest = match happened {
        Ok(()) => {
            say("everything is as it was; it comes to rest");
            settle::settle(run, DEADLINE).await
        }
        Err(error) => Err(error),
    };
    // What broke a run off is told with what had happened by then, and with what it hindered.
    let unsettled = rest.unwrap_or_else(|error| Some(settle::broken_off(run, &error)));
    verdict::judge(run, unsettled, changes, settings, FORGOTTEN).await
}

/// A system at rest, with all protections in place.
async fn begin(terms: &Terms, settings: Settings) -> Result<Run> {
    let workload = Workload {
        namespace: NAMESPACE.to_owned(),
        prefix: "site",
        objects: terms.objects,
        work: WORK,
        interval: INTERVAL,
        seed: terms.seed,
    };
    let mut system = System::start(settings).await?;
    let ring = system.start_sharding(SHARDERS).await?;
    for number in 0..terms.shards {
        system.add_shard(&shard(number)).await?;
    }
    system.until_counted(DEADLINE).await?;
    workload.create(&system.control_plane().client()).await.context("create the objects")?;
    system.until_balanced(DEADLINE).await?;
    system.until_settled(DEADLINE).await?;
    // Not for nothing: it takes as much of a small machine as the first one.
    let other_api_server = match terms.kinds.contains(&Kind::OtherApiServer) {
        true => Some(system.control_plane().start_lagging_api_server().await?),
        false => None,
    };
    let mut run = Run::new(system, other_api_server, ring, workload);
    faults::until_protected(&mut run).await?;
    say(&format!("{:>7.1} s  it has begun", run.system.monitor().now().as_secs_f64()));
    Ok(run)
}

/// Who reads it may have gone.
fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}
