//! How many changes a second replicas keep up with, and what changes wait for while replicas come and go: `cargo bench-scale`.
//! One leader without Ringside, replicas with Ringside's proxy, and native shards take turns on real control planes.
//!
//! It fails where something can't be measured, or a replica wrote to another's object. An aim that is missed is no error.

use std::time::Duration;

use clap::Parser;
use ringside_bench::{
    Aims, load, say,
    scale::{self, Climb, Event, Limit, Running, Shape},
};

/// Reconciles at once of a controller whose objects come to be shared.
const ADOPTING: usize = 16;

/// Measures what replicas keep up with, by how many there are.
#[derive(Parser)]
struct Arguments {
    /// Objects, each with two children.
    #[arg(long, default_value_t = 4_000)]
    objects: usize,
    /// Milliseconds that a reconcile waits for, beside its writes; a change takes two.
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u64).range(1..))]
    work: u64,
    /// Reconciles at once in a replica.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Seconds for which each rate is kept.
    #[arg(long, default_value_t = 60)]
    window: u64,
    /// How many replicas with a proxy; 0 for none.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,5,8")]
    replicas: Vec<usize>,
    /// How many native shards; 0 for none.
    #[arg(long, default_value_t = 5)]
    native: usize,
    /// Replicas at the beginning of what happens to them; 0 leaves that out.
    #[arg(long, default_value_t = 3)]
    changes: usize,
    /// Seconds for which there is no sharder, at the end of it; 0 leaves that out.
    #[arg(long, default_value_t = 600)]
    outage: u64,
    /// Objects that a leader has already when they come to be shared; 0 leaves that out.
    #[arg(long, default_value_t = 50_000)]
    adopted: usize,
    /// Shows in some minutes whether the program works. Its figures say nothing.
    #[arg(long)]
    quick: bool,
}

impl Arguments {
    /// Whether what a leader keeps up with is needed.
    fn compares(&self) -> bool {
        self.changes > 0 || self.native > 0 || self.replicas.iter().any(|count| *count > 0)
    }

    fn shape(&self) -> Shape {
        let (work, window) = (Duration::from_millis(self.work), Duration::from_secs(self.window));
        let climb = if self.quick { Climb::COARSE } else { Climb::FINE };
        Shape { objects: self.objects, work, workers: self.workers, window, climb }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        let quick = Arguments { objects: 200, window: 4, replicas: vec![2], native: 0, ..arguments };
        let quick = Arguments { outage: 10, adopted: 200, ..quick };
        arguments = quick;
    }
    anyhow::ensure!(
        arguments.changes != 1,
        "of one replica none is left once it has died: --changes=0, or more than 1"
    );
    say(format_args!("the machine's load is {}: above 1 the figures say less", load()));
    let mut aims = Aims::new("scale");
    let limits = if arguments.compares() { limits(&mut aims, &arguments).await } else { Vec::new() };
    scale::capacity(&mut aims, &limits)?;
    if let (true, Some(leader)) = (arguments.changes > 0, limits.first())
        && let Err(fault) = pass(&mut aims, &arguments, leader).await
    {
        aims.failed("what happens to replicas", &fault);
    }
    if arguments.adopted > 0
        && let Err(fault) = adopt(arguments.adopted).await
    {
        aims.failed("objects that come to be shared", &fault);
    }
    aims.tell()
}

/// A controller that has so many objects is shared.
async fn adopt(objects: usize) -> anyhow::Result<()> {
    let shape = Shape { objects, work: Duration::ZERO, workers: ADOPTING, window: Duration::ZERO, climb: Climb::FINE };
    scale::adoption(objects, &scale::adopt(shape).await?)
}

/// What each arrangement keeps up with; that of the leader first. Without it there is nothing to compare with.
async fn limits(aims: &mut Aims, arguments: &Arguments) -> Vec<Limit> {
    let shape = arguments.shape();
    let mut limits = Vec::new();
    let measured = async {
        limits.push(scale::find(&Running::leader(shape).await?).await?);
        let mut counts: Vec<_> = arguments.replicas.iter().copied().filter(|count| *count > 0).collect();
        counts.sort_unstable();
        if let Some((first, more)) = counts.split_first() {
            let mut running = Running::proxied(*first, shape).await?;
            limits.push(scale::find(&running).await?);
            for replicas in more {
                running.grow(*replicas).await?;
                limits.push(scale::find(&running).await?);
            }
        }
        if arguments.native > 0 {
            limits.push(scale::find(&Running::native(arguments.native, shape).await?).await?);
        }
        anyhow::Ok(())
    };
    if let Err(fault) = measured.await {
        aims.failed("what replicas keep up with", &fault);
    }
    limits
}

/// What happens to replicas, at half of what so many leaders would keep up with.
async fn pass(aims: &mut Aims, arguments: &Arguments, leader: &Limit) -> anyhow::Result<()> {
    let mut events = vec![Event::ScaleOut, Event::ScaleIn, Event::RollingUpdate, Event::Kill, Event::ScaleOut];
    if arguments.outage > 0 {
        events.push(Event::Outage(Duration::from_secs(arguments.outage)));
    }
    let mut running = Running::proxied(arguments.changes, arguments.shape()).await?;
    let per_second = leader.kept.per_second * arguments.changes as f64 / 2.0;
    let course = scale::go_through(&mut running, per_second, &events).await?;
    scale::changes(aims, &course)
}
