//! What a ring of many objects costs the sharder, and how fast it moves them: `cargo bench-sharder`. All objects are assigned
//! from nothing, then a shard joins, leaves and dies, on a real control plane; beside it upstream's sharder, where a checkout
//! of it is named. Each line has what was measured, what is aimed at, and whether that is met.
//!
//! It fails only where something can't be measured.

use std::{path::PathBuf, time::Duration};

use clap::Parser;
use ringside_bench::{
    Aims, load, say,
    sharder::{
        Make, Measured, Plan, Shape, Upstream, beside, change_leader, changed_leader, join_beside_refused, lead_large,
        leave_fenced, led_large, measure, report,
    },
};
use ringside_e2e::checker::percentile;

/// Measures how fast objects move, and what that costs.
#[derive(Parser)]
struct Arguments {
    /// Main objects, which are Secrets.
    #[arg(long, default_value_t = 3_000)]
    objects: usize,
    /// ConfigMaps that each of them controls.
    #[arg(long, default_value_t = 1)]
    children: usize,
    /// Shards at the beginning.
    #[arg(long, default_value_t = 3)]
    shards: usize,
    /// How often all of it is measured, ours and upstream's in turn.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// A checkout of github.com/timebertt/kubernetes-controller-sharding, to run its sharder beside ours.
    #[arg(long)]
    upstream: Option<PathBuf>,
    /// Seconds for which R is measured.
    #[arg(long, default_value_t = 10)]
    bare: u64,
    /// Seconds for which the sharder is looked at when nothing happens.
    #[arg(long, default_value_t = 60)]
    rest: u64,
    /// Objects that the API server refuses to change; 0 leaves that out.
    #[arg(long, default_value_t = 5_000)]
    refused: usize,
    /// Objects of a shard behind a proxy that leaves a fenced ring; 0 leaves that out.
    #[arg(long, default_value_t = 85)]
    fenced: usize,
    /// Objects with two children each that are no more than sent, for what the leader takes; 0 leaves that out.
    #[arg(long, default_value_t = 1_000_000)]
    large: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    say(format_args!("the machine's load is {}: above 1 the figures say less", load()));
    let upstream = arguments.upstream.as_deref().map(Upstream::build).transpose()?;
    let mut aims = Aims::new("sharder");
    for round in 1..=arguments.rounds {
        let run = if arguments.rounds > 1 { format!("{round}. ") } else { String::new() };
        let ours = ours(&mut aims, &run, &arguments).await;
        let Some(upstream) = &upstream else {
            aims.not_measured(&format!("{run}upstream's sharder"), "needs --upstream CHECKOUT");
            continue;
        };
        match measure(&Make::Upstream(upstream.clone()), plan(&arguments)).await {
            Ok((_ground, theirs)) => {
                if let Some(ours) = ours {
                    beside(&mut aims, &run, &ours, &theirs);
                }
            }
            Err(fault) => aims.failed(&format!("{run}upstream"), &fault),
        }
    }
    if arguments.fenced > 0 {
        fenced(&mut aims, arguments.fenced).await;
    }
    if arguments.large > 0 {
        match lead_large(arguments.large).await {
            Ok(led) => led_large(&mut aims, &led),
            Err(fault) => aims.failed("a large ring", &fault),
        }
    }
    aims.tell()
}

fn plan(arguments: &Arguments) -> Plan {
    let shape = Shape { objects: arguments.objects, children: arguments.children };
    let [bare, rest] = [arguments.bare, arguments.rest].map(Duration::from_secs);
    Plan { shape, shards: arguments.shards, bare, rest }
}

/// A run of ours, with what is refused at its end.
async fn ours(aims: &mut Aims, run: &str, arguments: &Arguments) -> Option<Measured> {
    let (mut ground, measured) = match measure(&Make::Ringside, plan(arguments)).await {
        Ok(both) => both,
        Err(fault) => {
            aims.failed(&format!("{run}ringside"), &fault);
            return None;
        }
    };
    report(aims, run, &measured);
    if arguments.refused > 0 {
        let what = format!("{run}join beside {} refused objects: moves a second, to that without", arguments.refused);
        match join_beside_refused(&mut ground, arguments.refused).await {
            // Within what two runs differ by.
            Ok(beside) => {
                let ratio = beside.moves.per_second() / measured.joined.moves.per_second();
                aims.at_least(&what, ratio, 0.9, "times");
            }
            Err(fault) => aims.failed(&what, &fault),
        }
    }
    match change_leader(&mut ground).await {
        Ok(change) => changed_leader(aims, run, &change),
        Err(fault) => aims.failed(&format!("{run}leader change"), &fault),
    }
    Some(measured)
}

async fn fenced(aims: &mut Aims, objects: usize) {
    let what = format!("{objects} x (1 + 2) leave a fenced ring: without owner");
    match leave_fenced(objects).await {
        Ok(times) => {
            for (percent, most) in [(50, 0.5), (99, 1.0)] {
                let time = percentile(&times, percent).unwrap_or_default().as_secs_f64();
                aims.at_most(&format!("{what}, {percent}th of 100"), time, most, "s");
            }
        }
        Err(fault) => aims.failed(&what, &fault),
    }
}
