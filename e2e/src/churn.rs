//! Shards that come, go, restart and die at random.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::time::Instant;

use crate::system::{Settings, System, SystemError};

/// So many run at least, for there to be somebody to move to, and at most, for a small machine.
const SHARDS: std::ops::RangeInclusive<usize> = 2..=4;

/// The longest pause between two changes: some meet the moves of the one before, some meet none.
const PAUSE: Duration = Duration::from_secs(3);

/// What happens to one shard.
#[derive(Debug)]
pub enum Change {
    /// It is new, or was there before.
    Join(String),
    /// It ends in order.
    Leave(String),
    /// It ends in order and begins again, as the same Pod.
    Restart(String),
    /// Its processes are killed. Its Pod stays, and its name does not come back.
    Kill(String),
}

/// What happens to the shards of a system, as the seed has it.
#[derive(Debug)]
pub struct Churn {
    random: StdRng,
    running: Vec<String>,
    /// Their names come back.
    left: Vec<String>,
    names: usize,
    killed: Option<Instant>,
    /// Two deaths at once are as one to the objects; one after the other they make them wait twice.
    takeover: Duration,
}

impl Churn {
    /// For a system in which the shards `shard-0`, `shard-1` and so on are running.
    pub fn new(seed: u64, running: usize, settings: &Settings) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            running: (0..running).map(|index| format!("shard-{index}")).collect(),
            left: Vec::new(),
            names: running,
            killed: None,
            takeover: 2 * settings.lease_duration + Duration::from_secs(5),
        }
    }

    /// The shards that run.
    pub fn running(&self) -> &[String] {
        &self.running
    }

    /// What happens next.
    pub fn next_change(&mut self) -> Change {
        let may_kill = self.killed.is_none_or(|killed| killed.elapsed() > self.takeover);
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

    /// How long nothing happens then.
    pub fn pause(&mut self) -> Duration {
        PAUSE.mul_f64(self.random.random())
    }

    fn pick(&mut self) -> String {
        let index = self.random.random_range(0..self.running.len());
        self.running.remove(index)
    }
}

impl Change {
    /// Makes it happen.
    pub async fn carry_out(&self, system: &mut System) -> Result<(), SystemError> {
        match self {
            Self::Join(name) => system.add_shard(name).await,
            Self::Leave(name) => system.remove_shard(name).await,
            Self::Restart(name) => system.restart_shard(name).await,
            Self::Kill(name) => system.kill_shard(name).await,
        }
    }
}
