//! What outlives the work that began it: the watch on objects without owner, and the objects that were being worked on.
//!
//! The shards change, and the work begins anew with another watch. That one first shows all there is, which takes the API
//! server a while, and an object that is let go just then must not wait for it: so the watch of before goes on until the new
//! one has caught up, and what was seen already is looked at again at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    sync::Arc,
};

use futures::stream::BoxStream;
use kube::runtime::watcher::{self, Event};
use parking_lot::Mutex;
use ringside_ring::cluster_ring::GroupResource;

use super::{BATCH, retries::Retries};
use crate::{
    resources::{Object, Resource},
    target::Target,
};

/// Objects carried over at most: the new watch shows the others as well.
const CAPACITY: usize = 4 * BATCH;

/// The events of a watch.
pub(super) type Events = BoxStream<'static, Result<Event<Object>, watcher::Error>>;

/// What is carried over for one ring, by the main resource; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Carried(Arc<Mutex<BTreeMap<GroupResource, Over>>>);

#[derive(Default)]
struct Over {
    /// With the resource as it was.
    watch: Option<(Arc<Resource>, Events)>,
    targets: Vec<Target>,
    retries: Retries,
}

impl Carried {
    /// Leaves the watch on objects without owner to whoever goes on.
    pub(super) fn leave_watch(&self, resource: &Arc<Resource>, events: Events) {
        self.0.lock().entry(resource.id.clone()).or_default().watch = Some((resource.clone(), events));
    }

    /// The watch of before, if it was on the same resource.
    pub(super) fn take_watch(&self, resource: &Arc<Resource>) -> Option<Events> {
        let (of, events) = self.0.lock().get_mut(&resource.id)?.watch.take()?;
        (of == *resource).then_some(events)
    }

    /// Leaves objects that were seen, and have no owner by that.
    pub(super) fn leave(&self, resource: &GroupResource, targets: impl IntoIterator<Item = Target>) {
        let mut all = self.0.lock();
        let kept = &mut all.entry(resource.clone()).or_default().targets;
        let room = CAPACITY.saturating_sub(kept.len());
        kept.extend(targets.into_iter().take(room));
    }

    /// The objects that could not be written to.
    pub(super) fn retries(&self, resource: &GroupResource) -> Retries {
        self.0.lock().entry(resource.clone()).or_default().retries.clone()
    }

    /// Forgets the objects of all other resources, and ends the watches on them.
    pub(crate) fn keep_only(&self, resources: &BTreeSet<&GroupResource>) {
        self.0.lock().retain(|resource, _| resources.contains(resource));
    }

    /// The objects that were seen before: how they are now, nobody knows.
    pub(super) fn take(&self, resource: &GroupResource) -> Vec<Target> {
        self.0.lock().get_mut(resource).map(|over| take(&mut over.targets)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};

    use super::*;
    use crate::snapshot::tests::resource;

    #[test]
    fn of_a_resource_that_leaves_the_ring_nothing_is_kept() {
        let (carried, watched) = (Carried::default(), Arc::new(()));
        let [left, stays] = ["xs", "ys"].map(|plural| resource("", "X", plural));
        let held = watched.clone();
        let events = stream::poll_fn(move |_| {
            let _held = &held;
            std::task::Poll::Pending
        });
        carried.leave_watch(&left, events.boxed());
        for of in [&left, &stays] {
            carried.leave(&of.id, [Target::default()]);
        }
        carried.keep_only(&[&stays.id].into());
        assert_eq!(Arc::strong_count(&watched), 1, "its watch has ended");
        assert_eq!((carried.take(&left.id).len(), carried.take(&stays.id).len()), (0, 1));
    }
}
