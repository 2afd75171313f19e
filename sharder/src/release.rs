//! Takes a ring's labels off what the ring does not distribute, in the order of a handover.
//!
//! Callers say which objects, and what is next for one. That is asked about the object as it is when it is written to.

use std::time::SystemTime;

use kube::Client;
use ringside_ring::{RingLabels, ShardName, decide::Action, patch};

use crate::{
    move_id::move_id,
    resources::Resource,
    target::Target,
    write::{Outcome, write},
    writes::Writes,
};

/// Takes the labels off an object, or has its shard release it first, as `next` says.
pub(crate) async fn release_or_drain(
    writes: &Writes,
    at: (&Client, &Resource),
    labels: &RingLabels,
    object: Target,
    next: impl Fn(&Target) -> Action<ShardName>,
) -> Result<Outcome, kube::Error> {
    let decide = |now: &Target| match (next(now), &now.shard) {
        (Action::Release, _) => patch::release(labels, &now.seen()),
        (Action::Drain { .. }, Some(shard)) => Some(patch::drain(labels, &now.uid, shard, &move_id(SystemTime::now()))),
        _ => None,
    };
    write(writes, at, labels, object, decide).await
}
