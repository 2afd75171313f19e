//! Takes a ring's labels off what the ring does not distribute, in the order of a handover.
//!
//! Callers say which objects, and what is next for one. That is asked about the object as it is when it is written to.

use std::time::SystemTime;

use futures::{Stream, StreamExt, stream};
use kube::Client;
use ringside_ring::{RingLabels, ShardName, decide::Action, patch};

use crate::{
    move_id::move_id,
    resources::Resource,
    target::Target,
    write::{Outcome, write},
    writes::Writes,
};

/// Objects written to at once.
pub(crate) const PARALLEL: usize = 32;

/// The objects of one resource that lose their labels.
#[derive(Clone, Copy)]
pub(crate) struct Releases<'a> {
    pub(crate) client: &'a Client,
    pub(crate) writes: &'a Writes,
    pub(crate) labels: &'a RingLabels,
    pub(crate) resource: &'a Resource,
}

impl<'a> Releases<'a> {
    /// Does what is next with one object.
    pub(crate) async fn one(
        self,
        object: Target,
        next: impl Fn(&Target) -> Action<ShardName>,
    ) -> Result<Outcome, kube::Error> {
        let decide = |now: &Target| match (next(now), &now.shard) {
            (Action::Release, _) => patch::release(self.labels, &now.seen()),
            (Action::Drain { .. }, Some(shard)) => {
                Some(patch::drain(self.labels, &now.uid, shard, &move_id(SystemTime::now())))
            }
            _ => None,
        };
        write(self.writes, (self.client, self.resource), self.labels, object, decide).await
    }

    /// The same for many objects, some of them at once. `next` is told how each was when it was chosen, and how it is.
    pub(crate) fn all(
        self,
        objects: Vec<Target>,
        next: &impl Fn(&Target, &Target) -> Action<ShardName>,
    ) -> impl Stream<Item = (Target, Result<Outcome, kube::Error>)> {
        let one = move |object: Target| async move {
            let outcome = self.one(object.clone(), |now| next(&object, now)).await;
            (object, outcome)
        };
        stream::iter(objects).map(one).buffer_unordered(PARALLEL)
    }
}
