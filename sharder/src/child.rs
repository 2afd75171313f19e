//! The one write of a child: it goes to the shard of its owner.

use kube::Client;
use ringside_ring::{RingLabels, ShardName, patch};

use crate::{resources::Resource, target::Target, write::write, writes::Writes};

/// Whether a shard sees a child. It sees none with a drain label, and never acknowledges it: the sharder drains no child.
pub(crate) fn is_with(child: &Target, shard: &ShardName) -> bool {
    child.shard.as_deref() == Some(shard.as_str()) && child.drain.is_none()
}

/// Brings a child to a shard. A child that has another owner by now stays where it is.
pub(crate) async fn bring(
    writes: &Writes,
    at: (&Client, &Resource),
    labels: &RingLabels,
    child: Target,
    to: &ShardName,
) -> Result<(), kube::Error> {
    let before = child.clone();
    gather(writes, at, labels, child, to, |now| now.still_follows(&before)).await
}

/// Brings a child to the shard at which its owner was seen, unless it has changed since.
///
/// The task that moves an owner decides where the children go. Any other view of the owner may be old when the child has
/// changed.
pub(crate) async fn bring_as_seen(
    writes: &Writes,
    at: (&Client, &Resource),
    labels: &RingLabels,
    child: Target,
    to: &ShardName,
) -> Result<(), kube::Error> {
    let seen = child.resource_version.clone();
    gather(writes, at, labels, child, to, |now| now.resource_version == seen).await
}

/// Writes a child that is not with the shard, while it may go there.
async fn gather(
    writes: &Writes,
    at: (&Client, &Resource),
    labels: &RingLabels,
    child: Target,
    to: &ShardName,
    may_go: impl Fn(&Target) -> bool,
) -> Result<(), kube::Error> {
    let decide = |now: &Target| (may_go(now) && !is_with(now, to)).then(|| patch::gather(labels, &now.seen(), to));
    write(writes, at, labels, child, decide).await.map(drop)
}

#[cfg(test)]
mod tests;
