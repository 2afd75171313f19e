//! The shards of a system, which come and go.

use std::collections::BTreeSet;

use anyhow::Context as _;
use ringside_runtime::probe::ProbeError;

use super::{Lone, Shard, System, SystemError};
use crate::{
    process::Process,
    relay::Relay,
    toolchain::{self, Operator, built},
};

impl System {
    /// Starts a shard: a Pod with a proxy and an operator.
    pub async fn add_shard(&mut self, name: &str) -> Result<(), SystemError> {
        self.add(name, &[], &self.control_plane().url()).await
    }

    /// Starts a shard of this operator, with more options for its proxy.
    pub async fn add_shard_of(&mut self, name: &str, operator: Operator, options: &[&str]) -> Result<(), SystemError> {
        self.begin(name, operator, options, &self.control_plane().url()).await
    }

    /// Starts a shard whose proxy reaches the API server by a relay before it.
    pub async fn add_relayed_shard(&mut self, name: &str, relay: &Relay) -> Result<(), SystemError> {
        self.add(name, &[], &relay.url()).await
    }

    /// Starts a shard that says itself how much it is to get.
    pub async fn add_weighted_shard(&mut self, name: &str, weight: &str) -> Result<(), SystemError> {
        self.add(name, &["--weight", weight], &self.control_plane().url()).await
    }

    async fn add(&mut self, name: &str, options: &[&str], url: &str) -> Result<(), SystemError> {
        self.begin(name, self.base.settings.operator, options, url).await
    }

    async fn begin(&mut self, name: &str, operator: Operator, options: &[&str], url: &str) -> Result<(), SystemError> {
        let shard = Shard::start(&self.base, name, operator, options, url).await?;
        self.shards.push(shard);
        Ok(())
    }

    /// Starts a shard that shards itself: a Pod with an operator that knows the contract, and without a proxy.
    pub async fn add_own_shard(&mut self, name: &str) -> Result<(), SystemError> {
        let program = built(toolchain::own_shard).await?;
        self.lone.push(Lone::shard(&self.base, &program, name).await?);
        Ok(())
    }

    /// Ends a shard as the kubelet does with a native sidecar, the operator first, and deletes its Pod.
    pub async fn remove_shard(&mut self, name: &str) -> Result<(), SystemError> {
        match take(&mut self.lone, name, Lone::name) {
            Ok(shard) => shard.stop(&self.base).await,
            Err(_) => take(&mut self.shards, name, Shard::name)?.stop(&self.base).await,
        }
    }

    /// Ends a shard in the same way, after the hooks that `ringside inject` gives a Pod: its objects are handed over first.
    /// Returns why some were left, where that is so.
    pub async fn retire_shard(&mut self, name: &str) -> Result<Option<ProbeError>, SystemError> {
        let handed_over = self.shard(name)?.hand_over().await;
        self.remove_shard(name).await?;
        Ok(handed_over.err())
    }

    /// Ends a shard in the same way and starts it again, as the same Pod.
    pub async fn restart_shard(&mut self, name: &str) -> Result<(), SystemError> {
        let mut shard = take(&mut self.shards, name, Shard::name)?;
        shard.restart(&self.base).await?;
        self.shards.push(shard);
        Ok(())
    }

    /// Kills proxy and operator of a shard at once (SIGKILL).
    pub async fn kill_shard(&mut self, name: &str) -> Result<(), SystemError> {
        match take(&mut self.lone, name, Lone::name) {
            Ok(shard) => shard.kill(&self.base).await,
            Err(_) => take(&mut self.shards, name, Shard::name)?.kill(&self.base).await,
        }
    }

    /// The shards that run behind a proxy.
    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter()
    }

    /// The operators that run, with a proxy or without one.
    pub fn operators(&self) -> impl Iterator<Item = &Process> {
        self.lone.iter().map(Lone::process).chain(self.shards.iter().map(Shard::operator))
    }

    /// The names of all shards that run.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        let own = self.lone.iter().filter(|one| one.is_shard).map(Lone::name);
        self.shards.iter().map(Shard::name).chain(own).collect()
    }
}

/// Takes out the one of this name.
pub(super) fn take<T>(all: &mut Vec<T>, name: &str, named: fn(&T) -> &str) -> anyhow::Result<T> {
    let index = all.iter().position(|one| named(one) == name).with_context(|| format!("no {name} runs"))?;
    Ok(all.remove(index))
}
