//! Another replica of the sharder begins to lead while a shard leaves.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use ringside_e2e::{process::memory, system::metrics};

use super::{ground::Ground, running::Running};
use crate::say;

/// A list of 300,000 objects takes seconds.
const DEADLINE: Duration = Duration::from_secs(300);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);
/// A standby has done what it does at its start by then.
const STANDING: Duration = Duration::from_secs(5);
/// What is only there once all objects were listed.
pub(super) const COUNTED: &str = "controller_sharding_counted_timestamp_seconds{";
/// Counts assignments and moves.
const MOVED: &str = "controller_sharding_movements_total{";

/// What a change of the leader was.
#[derive(Debug)]
pub struct LeaderChange {
    /// What the standby had resident.
    pub standby: u64,
    /// From the end of the leader before to the first object that the next one gave to another shard.
    pub first_decision: Duration,
    /// The same until all objects were listed.
    pub complete: Duration,
}

/// The leader ends in order, and a shard releases its Lease in the same moment.
///
/// # Errors
/// When it can't be measured.
pub async fn change_leader(ground: &mut Ground) -> anyhow::Result<LeaderChange> {
    say(format_args!("another replica leads, and a shard leaves"));
    let shard = ground.take_last()?;
    let system = match ground.running() {
        Running::Ringside(system) => system,
        Running::Upstream(_) => anyhow::bail!("only ours has a second replica here"),
    };
    system.start_sharders(2).await?;
    tokio::time::sleep(STANDING).await;
    let leader = system.leading_sharder(DEADLINE).await?;
    let next = system.sharders().find(|one| one.name() != leader).context("no standby")?;
    let (port, standby) = (next.admin_port(), memory(next.process().id(), "VmRSS")?);
    system.stop_sharder(&leader).await?;
    let began = Instant::now();
    shard.release().await?;
    let first_decision = until(port, MOVED, (began, DEADLINE)).await?;
    let complete = until(port, COUNTED, (began, DEADLINE)).await?;
    Ok(LeaderChange { standby, first_decision, complete })
}

/// How long it took until a metric of this beginning is more than 0.
pub(super) async fn until(port: u16, begins: &str, (began, within): (Instant, Duration)) -> anyhow::Result<Duration> {
    let is_more = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()) > Some(0.0);
    loop {
        let told = metrics(port).await?;
        if told.lines().any(|line| line.starts_with(begins) && is_more(line)) {
            return Ok(began.elapsed());
        }
        anyhow::ensure!(began.elapsed() < within, "no {begins} within {within:?}");
        tokio::time::sleep(LOOK).await;
    }
}
