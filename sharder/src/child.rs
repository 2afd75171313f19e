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
    let before = child.clone();
    Ok(gather(scope, kind, child, to, |now| now.follows_same(&before)).await?.wrote())
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
    let seen = child.resource_version.clone();
    Ok(match gather(scope, kind, child, to, |now| now.resource_version == seen).await? {
        Outcome::Needless(now) if !is_with(&now, to) => AsSeen::Changed(now),
        outcome => AsSeen::There { wrote: outcome.wrote() },
    })
}

/// Writes a child that is not with the shard, while it may go there.
async fn gather(
    scope: &Scope,
    kind: &Resource,
    child: Target,
    to: &ShardName,
    may_go: impl Fn(&Target) -> bool,
) -> Result<Outcome, kube::Error> {
    let labels = &scope.snapshot.labels;
    let decide = |now: &Target| (may_go(now) && !is_with(now, to)).then(|| patch::gather(labels, &now.seen(), to));
    write(&scope.writes, (&scope.client, kind), labels, child, decide).await
}

#[cfg(test)]
mod tests;
