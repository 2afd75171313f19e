//! The shards of a system, which come and go.

use std::collections::BTreeSet;

use super::{OwnShard, Shard, System, SystemError};
use crate::{
    relay::Relay,
    toolchain::{self, built},
};

impl System {
    /// Starts a shard: a Pod with a proxy and an operator.
    pub async fn add_shard(&mut self, name: &str) -> Result<(), SystemError> {
        let shard = Shard::start(&self.base, name, &[], &self.control_plane().url()).await?;
        self.shards.push(shard);
        Ok(())
    }

    /// Starts a shard whose proxy reaches the API server by a relay before it.
    pub async fn add_relayed_shard(&mut self, name: &str, relay: &Relay) -> Result<(), SystemError> {
        let shard = Shard::start(&self.base, name, &[], &relay.url()).await?;
        self.shards.push(shard);
        Ok(())
    }

    /// Starts a shard that says itself how much it is to get.
    pub async fn add_weighted_shard(&mut self, name: &str, weight: &str) -> Result<(), SystemError> {
        let shard = Shard::start(&self.base, name, &["--weight", weight], &self.control_plane().url()).await?;
        self.shards.push(shard);
        Ok(())
    }

    /// Starts a shard that shards itself: a Pod with an operator that knows the contract, and without a proxy.
    pub async fn add_own_shard(&mut self, name: &str) -> Result<(), SystemError> {
        let program = built(toolchain::own_shard).await?;
        let shard = OwnShard::start(&self.base, &program, name).await?;
        self.own_shards.push(shard);
        Ok(())
    }

    /// Ends a shard as the kubelet does with a native sidecar, the operator first, and deletes its Pod.
    pub async fn remove_shard(&mut self, name: &str) -> Result<(), SystemError> {
        match self.take_own(name) {
            Some(shard) => shard.stop(&self.base).await,
            None => self.take(name)?.stop(&self.base).await,
        }
    }

    /// Ends a shard in the same way and starts it again, as the same Pod.
    pub async fn restart_shard(&mut self, name: &str) -> Result<(), SystemError> {
        let mut shard = self.take(name)?;
        shard.restart(&self.base).await?;
        self.shards.push(shard);
        Ok(())
    }

    /// Kills proxy and operator of a shard at once (SIGKILL).
    pub async fn kill_shard(&mut self, name: &str) -> Result<(), SystemError> {
        match self.take_own(name) {
            Some(shard) => shard.kill(&self.base).await,
            None => self.take(name)?.kill(&self.base).await,
        }
    }

    /// The shards that run behind a proxy.
    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter()
    }

    /// The names of all shards that run.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        self.shards.iter().map(Shard::name).chain(self.own_shards.iter().map(OwnShard::name)).collect()
    }

    fn take_own(&mut self, name: &str) -> Option<OwnShard> {
        let index = self.own_shards.iter().position(|shard| shard.name() == name)?;
        Some(self.own_shards.remove(index))
    }

    fn take(&mut self, name: &str) -> Result<Shard, SystemError> {
        let index = self.shards.iter().position(|shard| shard.name() == name);
        let index = index.ok_or_else(|| SystemError::NoSuchShard(name.to_owned()))?;
        Ok(self.shards.remove(index))
    }
}
