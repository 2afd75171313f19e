//! The leader of a ring that is too large for etcd here: its objects are made while they are sent to it.

mod asked;
mod stand_in;
mod synthetic;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ringside_e2e::{
    eventually::eventually,
    process::memory,
    relay::{Offer, Relay},
    system::metrics,
};
use ringside_ring::ShardName;

use self::{stand_in::StandIn, synthetic::Synthetic};
use super::{
    leader::{COUNTED, until},
    objects::Shape,
    running::{Make, Running},
};
use crate::{processes::cpu_time, say};

const CHILDREN: usize = 2;
const SHARDS: usize = 3;
/// A list of 3,000,000 objects takes minutes.
const DEADLINE: Duration = Duration::from_secs(900);
/// When nothing was listed for so long, nothing will be.
const QUIET: Duration = Duration::from_secs(5);
/// How each metric's name begins.
const METRICS: &str = "controller_sharding_";

/// What it took to lead.
#[derive(Debug)]
pub struct Led {
    /// The objects.
    pub shape: Shape,
    /// What was resident before there was the ring.
    pub before: u64,
    /// The most that was, up to the end.
    pub most: u64,
    /// What is, once nothing is listed any more.
    pub after: u64,
    /// How long it took until all objects were known.
    pub known: Duration,
    /// Processor time of the sharder for that.
    pub used: Duration,
    /// The same until nothing was listed any more.
    pub used_in_all: Duration,
    /// How often each object was sent.
    pub sent: f64,
}

/// A sharder leads a ring of so many Secrets, each with two ConfigMaps, all where they belong.
///
/// # Errors
/// When it can't be measured, or the sharder does not know all, or asks for anything but lists and watches.
pub async fn lead_large(objects: usize) -> anyhow::Result<Led> {
    let shape = Shape { objects, children: CHILDREN };
    say(format_args!("a ring of {objects} x (1 + {CHILDREN}), which are made while they are sent"));
    let mut running = Running::start(&Make::Ringside).await?;
    let names = (0..SHARDS).map(|number| format!("shard-{number}").parse()).collect::<Result<Vec<ShardName>, _>>()?;
    let synthetic = Synthetic::new(shape, running.labels()?, names.clone());
    let total = synthetic.total() as f64;
    let stand_in = StandIn::new(synthetic);
    let relay = Relay::start(running.control_plane(), Offer::Both).await?;
    let answers = stand_in.clone();
    relay.ask_first(move |request| answers.answer(request));
    let Running::Ringside(system) = &mut running else { anyhow::bail!("only ours is measured so") };
    system.add_relayed_sharder(&relay).await?;
    let sharder = system.sharders().next().context("no sharder runs")?;
    let (process, port) = (sharder.process().id(), sharder.admin_port());
    let mut shards = Vec::new();
    for name in &names {
        shards.push(running.join(name).await?);
    }
    let (before, used_before) = (memory(process, "VmRSS")?, cpu_time(process)?);
    let began = Instant::now();
    running.create_ring().await?;
    let known = until(port, COUNTED, (began, DEADLINE)).await?;
    let used = cpu_time(process)?.saturating_sub(used_before);
    say(format_args!("all are known after {:.0} s", known.as_secs_f64()));
    eventually("nothing is listed any more", DEADLINE, || async {
        if stand_in.silent() > QUIET { Ok(()) } else { Err(format!("{} objects were sent", stand_in.sent())) }
    })
    .await?;
    all_are_known(port, shape).await?;
    ensure!(stand_in.sent() as f64 >= total, "{} of {total} objects were sent", stand_in.sent());
    let (refused, first) = stand_in.refused();
    ensure!(refused == 0, "{refused} requests were no lists or watches of metadata, the first of them {first}");
    Ok(Led {
        shape,
        before,
        most: memory(process, "VmHWM")?,
        after: memory(process, "VmRSS")?,
        known,
        used,
        used_in_all: cpu_time(process)?.saturating_sub(used_before),
        sent: stand_in.sent() as f64 / total,
    })
}

/// The sharder says of each object that it is where it belongs.
async fn all_are_known(port: u16, shape: Shape) -> anyhow::Result<()> {
    let told = metrics(port).await?;
    let sum = |name: &str| -> anyhow::Result<f64> {
        let begins = format!("{METRICS}{name}{{");
        let values = told.lines().filter(|line| line.starts_with(&begins));
        let values = values.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<f64>());
        let values = values.collect::<Result<Vec<_>, _>>()?;
        ensure!(!values.is_empty(), "the sharder tells no {begins}");
        Ok(values.iter().sum())
    };
    let assigned = sum("assigned_objects")?;
    ensure!(assigned == shape.objects as f64, "{assigned} of {} objects are assigned", shape.objects);
    for none in ["unassigned_objects", "draining_objects", "lone_objects"] {
        let some = sum(none)?;
        ensure!(some == 0.0, "there are {some} {none}");
    }
    Ok(())
}
