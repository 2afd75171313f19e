//! The one write of a child: it goes to the shard of its owner.

use ringside_ring::{ShardName, patch};

use crate::{
    assign::{Scope, write::write},
    resources::Resource,
    target::Target,
};

/// Whether a shard sees a child. It sees none with a drain label, and never acknowledges it: the sharder drains no child.
pub(crate) fn is_with(child: &Target, shard: &ShardName) -> bool {
    child.shard.as_deref() == Some(shard.as_str()) && child.drain.is_none()
}

/// Brings a child to a shard; returns whether that took a write. A child that has another owner by now stays where it is.
pub(crate) async fn bring(scope: &Scope, kind: &Resource, child: Target, to: &ShardName) -> Result<bool, kube::Error> {
    let (labels, before) = (&scope.snapshot.labels, child.clone());
    let decide = |child: &Target| {
        (child.follows_same(&before) && !is_with(child, to)).then(|| patch::gather(labels, &child.seen(), to))
    };
    Ok(write(&scope.writes, (&scope.client, kind), labels, child, decide).await?.wrote())
}

#[cfg(test)]
mod tests;
