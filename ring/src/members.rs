//! The shards of one ring, and which of them take part in partitioning.

use std::collections::BTreeMap;

use crate::{lease::ShardState, name::ShardName};

/// The shards that have a Lease in a ring, or had one until a moment ago, with their states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members(BTreeMap<ShardName, ShardState>);

impl Members {
    /// The state of a shard; `None` when it has no Lease.
    pub fn state(&self, shard: &str) -> Option<ShardState> {
        self.0.get(shard).copied()
    }

    /// Whether the shard of this name takes part in partitioning: a name without a Lease does not.
    pub fn is_available(&self, shard: &str) -> bool {
        self.state(shard).is_some_and(ShardState::is_available)
    }

    /// The shards that take part in partitioning, sorted by name.
    pub fn available(&self) -> impl Iterator<Item = &ShardName> {
        self.0.iter().filter(|(_, state)| state.is_available()).map(|(shard, _)| shard)
    }

    /// All shards with their states, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ShardName, ShardState)> {
        self.0.iter().map(|(shard, state)| (shard, *state))
    }

    /// How many shards have a Lease, whatever its state.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no shard has a Lease.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(ShardName, ShardState)> for Members {
    fn from_iter<T: IntoIterator<Item = (ShardName, ShardState)>>(shards: T) -> Self {
        Self(shards.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_expired_and_uncertain_shards_take_part() {
        let members: Members =
            ShardState::ALL.into_iter().map(|state| (state.as_str().parse().expect("valid"), state)).collect();
        let available: Vec<_> = members.available().map(ShardName::as_str).collect();
        assert_eq!(available, ["expired", "ready", "uncertain"]);
        assert!(members.is_available("ready") && !members.is_available("dead") && !members.is_available("nobody"));
    }
}
