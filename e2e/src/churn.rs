//! Shards that come, go, restart and die at random.

use std::{ops::RangeInclusive, time::Duration};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::time::Instant;

use crate::{
    chaos::schedule::{Kind, shard},
    system::{Settings, System, SystemError},
};

/// So many run at least, for there to be a shard to move to, and at most, for a small machine.
const SHARDS: RangeInclusive<usize> = 2..=4;

/// The longest pause between two changes: some meet the moves of the one before, some meet none.
const PAUSE: Duration = Duration::from_secs(3);

/// What happens to one shard: it joins, leaves in one of two ways, restarts or is killed.
#[derive(Debug)]
pub struct Change {
    /// What.
    pub kind: Kind,
    /// The shard.
    pub shard: String,
}

/// What happens to the shards of a system, as the seed has it.
#[derive(Debug)]
pub struct Churn {
    random: StdRng,
    members: Members,
    killed: Option<Instant>,
    /// Two deaths at once are as one to the objects; one after the other they make them wait twice.
    takeover: Duration,
}

/// The shards `shard-0`, `shard-1` and so on, of which some run.
#[derive(Debug)]
pub(crate) struct Members {
    bounds: RangeInclusive<usize>,
    running: Vec<String>,
    /// Their names come back.
    left: Vec<String>,
    names: usize,
}

impl Churn {
    /// For a system in which so many shards are running.
    pub fn new(seed: u64, running: usize, settings: &Settings) -> Self {
        let takeover = 2 * settings.lease_duration + Duration::from_secs(5);
        Self { random: StdRng::seed_from_u64(seed), members: Members::new(running, SHARDS), killed: None, takeover }
    }

    /// The shards that run.
    pub fn running(&self) -> &[String] {
        &self.members.running
    }

    /// What happens next.
    pub fn next_change(&mut self) -> Change {
        loop {
            let kinds = [Kind::Join, Kind::Leave, Kind::Retire, Kind::Restart, Kind::Kill];
            let kind = kinds[self.random.random_range(0..kinds.len())];
            let too_soon = kind == Kind::Kill && self.killed.is_some_and(|killed| killed.elapsed() <= self.takeover);
            if too_soon || !self.members.may(kind) {
                continue;
            }
            if kind == Kind::Kill {
                self.killed = Some(Instant::now());
            }
            return Change { kind, shard: self.members.happen(kind, &mut self.random) };
        }
    }

    /// How long nothing happens then.
    pub fn pause(&mut self) -> Duration {
        PAUSE.mul_f64(self.random.random())
    }
}

impl Members {
    pub(crate) fn new(running: usize, bounds: RangeInclusive<usize>) -> Self {
        Self { bounds, running: (0..running).map(shard).collect(), left: Vec::new(), names: running }
    }

    /// Whether this may happen to one of them.
    pub(crate) fn may(&self, kind: Kind) -> bool {
        match kind {
            Kind::Join => self.running.len() < *self.bounds.end(),
            Kind::Leave | Kind::Retire | Kind::Kill => self.running.len() > *self.bounds.start(),
            _ => true,
        }
    }

    /// Lets it happen to one, by chance, and returns which. The name of one that was killed does not come back.
    pub(crate) fn happen(&mut self, kind: Kind, random: &mut StdRng) -> String {
        if kind == Kind::Join {
            self.names += usize::from(self.left.is_empty());
            let name = self.left.pop().unwrap_or_else(|| shard(self.names - 1));
            self.running.push(name.clone());
            return name;
        }
        let index = random.random_range(0..self.running.len());
        let name = self.running[index].clone();
        if matches!(kind, Kind::Leave | Kind::Retire | Kind::Kill) {
            self.running.remove(index);
        }
        if matches!(kind, Kind::Leave | Kind::Retire) {
            self.left.push(name.clone());
        }
        name
    }
}

impl Change {
    /// Makes it happen. Waits for the end of what ends, and for what begins to be ready.
    pub async fn carry_out(&self, system: &mut System) -> Result<(), SystemError> {
        match self.kind {
            Kind::Join => system.add_shard(&self.shard).await,
            Kind::Leave => system.remove_shard(&self.shard).await,
            Kind::Retire => system.retire_shard(&self.shard).await.map(drop),
            Kind::Restart => system.restart_shard(&self.shard).await,
            _ => system.kill_shard(&self.shard).await,
        }
    }
}
