//! What the controller can still see: its open watches and lists, and how far each of them has come.
//!
//! Written by the tap, read by the handover. An object may be let go when every view that covers it is past
//! the resourceVersion X of the write that drained it. Events of one watch come in the order of their
//! resourceVersions (tried on the API server), so "past X" is `position >= X`, and the views need to
//! remember nothing about objects. A view without a position (a list under way, a watch that began with
//! "the state as it is" and has delivered neither `DELETED` nor `BOOKMARK` yet) is past nothing.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::Arc,
};

use parking_lot::Mutex;
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};
use tokio::sync::oneshot;

/// The open views of the controller. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Views(Arc<Mutex<Registry>>);

/// A view, open until this is dropped.
#[derive(Debug)]
pub struct View {
    views: Views,
    resource: GroupResource,
    id: u64,
}

#[derive(Debug, Default)]
struct Registry {
    next_id: u64,
    resources: HashMap<GroupResource, OfResource>,
}

/// ResourceVersions are comparable within one resource only, so nothing is shared between resources.
#[derive(Debug, Default)]
struct OfResource {
    open: HashMap<u64, Open>,
    /// Ordered by what they wait for, so that progress wakes only those whom it may concern.
    waiting: BTreeMap<(ResourceVersion, u64), Waiting>,
}

#[derive(Debug)]
struct Open {
    /// `None`: all namespaces.
    namespace: Option<String>,
    position: Option<ResourceVersion>,
}

#[derive(Debug)]
struct Waiting {
    namespace: Option<String>,
    wake: oneshot::Sender<()>,
}

impl Open {
    fn covers(&self, namespace: Option<&str>) -> bool {
        self.namespace.as_deref().is_none_or(|mine| Some(mine) == namespace)
    }
}

impl OfResource {
    /// How many views that cover the namespace are not past `version`.
    fn behind(&self, namespace: Option<&str>, version: &ResourceVersion) -> usize {
        let behind = |open: &&Open| open.covers(namespace) && open.position.as_ref().is_none_or(|at| at < version);
        self.open.values().filter(behind).count()
    }

    /// Wakes those who wait for something above `from` and up to `to`, if nothing holds them any more.
    fn wake(&mut self, from: Option<&ResourceVersion>, to: Option<&ResourceVersion>) {
        let above = from.map_or(Bound::Unbounded, |from| Bound::Excluded((from.clone(), u64::MAX)));
        let up_to = to.map_or(Bound::Unbounded, |to| Bound::Included((to.clone(), u64::MAX)));
        let candidates: Vec<_> = self.waiting.range((above, up_to)).map(|(key, _)| key.clone()).collect();
        for key in candidates {
            let holds = self.waiting.get(&key).is_some_and(|it| self.behind(it.namespace.as_deref(), &key.0) > 0);
            if !holds && let Some(waiting) = self.waiting.remove(&key) {
                // Whoever waited may have given up.
                let _ = waiting.wake.send(());
            }
        }
    }
}

impl Views {
    /// No views.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a view, before its request is sent: what is drained from then on may still be shown by it.
    pub fn open(&self, resource: GroupResource, namespace: Option<String>, position: Option<ResourceVersion>) -> View {
        let mut registry = self.0.lock();
        registry.next_id += 1;
        let id = registry.next_id;
        registry.resources.entry(resource.clone()).or_default().open.insert(id, Open { namespace, position });
        View { views: self.clone(), resource, id }
    }

    /// How many open views could still show, or have yet to take back, an object drained at `version`.
    pub fn behind(&self, resource: &GroupResource, namespace: Option<&str>, version: &ResourceVersion) -> usize {
        self.0.lock().resources.get(resource).map_or(0, |of| of.behind(namespace, version))
    }

    /// How many views are open.
    pub fn count(&self) -> usize {
        self.0.lock().resources.values().map(|of| of.open.len()).sum()
    }

    /// Returns once no open view of the object is behind `version`.
    pub async fn past(&self, resource: &GroupResource, namespace: Option<&str>, version: &ResourceVersion) {
        loop {
            let (ticket, woken) = {
                let mut registry = self.0.lock();
                registry.next_id += 1;
                let id = registry.next_id;
                let of = registry.resources.entry(resource.clone()).or_default();
                if of.behind(namespace, version) == 0 {
                    return;
                }
                let (wake, woken) = oneshot::channel();
                let waiting = Waiting { namespace: namespace.map(str::to_owned), wake };
                of.waiting.insert((version.clone(), id), waiting);
                (Ticket { views: self, resource, key: Some((version.clone(), id)) }, woken)
            };
            // The sender lives as long as the ticket; either way the condition is looked at again.
            let _ = woken.await;
            drop(ticket);
        }
    }
}

/// Takes a waiter out again, also one that gave up.
struct Ticket<'a> {
    views: &'a Views,
    resource: &'a GroupResource,
    key: Option<(ResourceVersion, u64)>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut registry = self.views.0.lock();
        if let (Some(key), Some(of)) = (self.key.take(), registry.resources.get_mut(self.resource)) {
            of.waiting.remove(&key);
        }
    }
}

impl View {
    /// The client was handed an event that proves it has seen everything up to `version`.
    pub fn advance(&self, version: &ResourceVersion) {
        let mut registry = self.views.0.lock();
        let Some(of) = registry.resources.get_mut(&self.resource) else { return };
        let Some(open) = of.open.get_mut(&self.id) else { return };
        if open.position.as_ref().is_some_and(|at| at >= version) {
            return;
        }
        let before = open.position.replace(version.clone());
        of.wake(before.as_ref(), Some(version));
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let mut registry = self.views.0.lock();
        if let Some(of) = registry.resources.get_mut(&self.resource)
            && let Some(open) = of.open.remove(&self.id)
        {
            of.wake(open.position.as_ref(), None);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::FutureExt;

    use super::*;

    fn things() -> GroupResource {
        GroupResource { group: "x.io".into(), resource: "things".into() }
    }

    fn at(version: u64) -> ResourceVersion {
        version.to_string().parse().unwrap()
    }

    #[tokio::test]
    async fn a_drain_waits_for_each_view_that_covers_it() {
        let views = Views::new();
        let (all, other) = (views.open(things(), None, Some(at(3))), views.open(things(), Some("other".into()), None));
        let (resource, ten) = (things(), at(10));
        let mut past = Box::pin(views.past(&resource, Some("mine"), &ten));
        assert!((&mut past).now_or_never().is_none());
        all.advance(&at(9));
        assert!((&mut past).now_or_never().is_none(), "9 is not past 10");
        let late = views.open(things(), Some("mine".into()), None);
        all.advance(&at(10));
        assert!((&mut past).now_or_never().is_none(), "a watch of the present state may still show it");
        late.advance(&at(11));
        assert!(past.now_or_never().is_some(), "the view of another namespace does not count");
        drop(other);
    }

    #[tokio::test]
    async fn a_view_that_ends_holds_nobody() {
        let views = Views::new();
        let list = views.open(things(), None, None);
        let resource = things();
        let (low, high) = (at(1), at(100));
        let mut waits = [Box::pin(views.past(&resource, None, &low)), Box::pin(views.past(&resource, None, &high))];
        assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()));
        drop(list);
        assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_some()));
        assert_eq!(views.count(), 0);
    }

    #[tokio::test]
    async fn views_of_one_resource_say_nothing_about_another() {
        let views = Views::new();
        let _open = views.open(GroupResource { group: String::new(), resource: "things".into() }, None, None);
        assert!(views.past(&things(), None, &at(1)).now_or_never().is_some());
    }

    #[tokio::test]
    async fn who_gives_up_leaves_nothing_behind() {
        let views = Views::new();
        let open = views.open(things(), None, None);
        assert!(views.past(&things(), None, &at(5)).now_or_never().is_none());
        assert!(views.0.lock().resources.values().all(|of| of.waiting.is_empty()));
        drop(open);
    }

    #[tokio::test]
    async fn a_position_never_goes_back() {
        let views = Views::new();
        let view = views.open(things(), None, Some(at(10)));
        view.advance(&at(4));
        assert_eq!(views.behind(&things(), None, &at(10)), 0);
    }
}
