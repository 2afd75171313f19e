//! What a kubelet would do with containers that end.

use anyhow::Context as _;

use super::{Return, Shard, System, SystemError};
use crate::process::Process;

/// A process that ended, and was started again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ended {
    /// Its name.
    pub name: String,
    /// The last line that it wrote.
    pub said: String,
}

impl Ended {
    pub(super) fn of(process: &Process) -> Self {
        let said = process.log_tail().lines().next_back().unwrap_or_default().to_owned();
        Self { name: process.name().to_owned(), said }
    }
}

impl System {
    /// Kills one process of a shard (SIGKILL), the other goes on, and starts it again in the same Pod.
    pub async fn kill_one(&mut self, name: &str, which: fn(&Shard) -> &Process) -> Result<(), SystemError> {
        which(self.shard(name)?).end().await?;
        self.revive_shards().map(drop)
    }

    /// Starts again what has ended in shards; returns those processes.
    pub fn revive_shards(&mut self) -> Result<Vec<Ended>, SystemError> {
        let mut revived = Vec::new();
        for shard in &mut self.shards {
            revived.extend(shard.revive(&self.base)?);
        }
        Ok(revived)
    }

    /// Starts sharder replicas again that have ended; returns them.
    pub async fn revive_sharders(&mut self) -> Result<Vec<Ended>, SystemError> {
        let mut revived = Vec::new();
        let plane = self.plane_mut();
        for index in 0..plane.sharders.len() {
            if plane.sharders[index].process().status()?.is_some() {
                let ended = plane.sharders.remove(index);
                revived.push(Ended::of(ended.process()));
                let again = ended.again(plane, Return::SamePod).await?;
                plane.sharders.insert(index, again);
            }
        }
        Ok(revived)
    }

    /// The shard of this name.
    pub fn shard(&self, name: &str) -> Result<&Shard, SystemError> {
        let found = self.shards.iter().find(|shard| shard.name() == name);
        Ok(found.with_context(|| format!("no shard {name} runs"))?)
    }
}
