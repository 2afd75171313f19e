//! The one write of a child: it goes to the shard of its owner.

use ringside_ring::{ShardName, patch};

use crate::{
    assign::{
        Scope,
        write::{Outcome, write},
    },
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

/// What came of a child that was to be brought as it was seen.
#[derive(Debug, PartialEq)]
pub(crate) enum AsSeen {
    /// It is at the shard; `wrote`: by a write of ours.
    There { wrote: bool },
    /// It has changed since, so its owner may be elsewhere by now: nothing was written.
    Changed(Box<Target>),
}

/// Brings a child to the shard at which its owner was seen, unless it has changed since.
///
/// Who moves an owner decides where the children go. Any other view of the owner may be old when the child has changed.
pub(crate) async fn bring_as_seen(
    scope: &Scope,
    kind: &Resource,
    child: Target,
    to: &ShardName,
) -> Result<AsSeen, kube::Error> {
    let (labels, seen) = (&scope.snapshot.labels, child.resource_version.clone());
    let decide = |child: &Target| {
        (child.resource_version == seen && !is_with(child, to)).then(|| patch::gather(labels, &child.seen(), to))
    };
    Ok(match write(&scope.writes, (&scope.client, kind), labels, child, decide).await? {
        Outcome::Needless(now) if !is_with(&now, to) => AsSeen::Changed(now),
        outcome => AsSeen::There { wrote: outcome.wrote() },
    })
}

#[cfg(test)]
mod tests;
