//! What the controller can still see: its open watches and lists, and how far each of them has come.
//!
//! Written by the tap, read by the handover. An object may be let go when every view that could show it is past
//! the resourceVersion X of the write that drained it. Events of one watch come in the order of their
//! resourceVersions (tried on the API server), so "past X" is `position >= X`, and the views need to
//! remember nothing about objects. A view without a position (a list under way, a watch that began with
//! "the state as it is" and has delivered neither `DELETED` nor `BOOKMARK` yet) is past nothing.
//!
//! A watch whose own label selector does not select the object holds it only while the client has something in hand: that
//! may be how it gets to know that the object is selected no more. Of other selectors the API server is asked.
//!
//! Two kinds of views outlive their request. A watch that ended is to be continued: the controller still sees what it saw,
//! until it watches again. And between two pages of a list the controller has the first. Both are forgotten after a while;
//! pages of a list from before an object was let go are refused from then on, and a watch may go on from anywhere, since
//! it is sent the `DELETED`. One that goes on from behind the `DELETED` that it was not sent is told what it missed: its
//! client listed in between, and not each notices what is gone from a list.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

#[cfg(test)]
pub(crate) mod fixtures;
mod scope;
#[cfg(test)]
mod tests;

pub use scope::{Fields, Leaving, Scope};

/// How long a watch that ended holds what it has not seen go, unless it is continued: client-go and kube wait 30 s at most
/// between two attempts.
const WATCHES_AGAIN: Duration = Duration::from_secs(30);
/// How long before the end of a watch the one that continues it may have begun: to notice that a connection is gone can take
/// longer than to make another.
const EARLY: Duration = Duration::from_secs(5);
/// How long the position of a watch that ended is remembered, for what its client missed.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The most drained objects of a resource that are remembered for that; the oldest make room.
const MOST_LEAVING: usize = 4_096;
/// How long after a page the next one is waited for. A client that takes longer has to list again.
const NEXT_PAGE: Duration = Duration::from_secs(2);
/// The most views of a resource that are remembered after their end; the oldest make room.
const MOST_ENDED: usize = 1_000;

/// The open views of the controller. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Views(Arc<Mutex<Registry>>);

/// A view, open until this is dropped.
#[derive(Debug)]
pub struct View {
    views: Views,
    scope: Arc<Scope>,
    id: u64,
    state: Arc<State>,
}

/// How a view begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A list, or its first page.
    List,
    /// A later page of a list that shows the state at this resourceVersion.
    Page(ResourceVersion),
    /// A watch that goes on from this resourceVersion, or without one first shows a state of any age.
    Watch(Option<ResourceVersion>),
    /// A watch that first shows a state as a list does, to a client that replaces by it what it knew.
    StreamingList,
}

/// Objects that moved away since an earlier watch, and no event says so.
#[derive(Clone, Debug)]
pub struct Missed {
    /// The objects.
    pub objects: Vec<Arc<Leaving>>,
    /// Where the watch goes on from.
    pub from: Option<ResourceVersion>,
    /// The watch that this one continues.
    before: u64,
}

/// The page is of a list from before an object was let go, and shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("objects were handed to other shards since this list began: list again from its beginning")]
pub struct Expired;

/// A watch that holds an object and is told by nothing whether it ever showed it.
#[derive(Clone, Debug)]
pub struct Holding {
    /// Which one.
    pub id: u64,
    /// What it shows.
    pub scope: Arc<Scope>,
    /// Whether it is known how far it has come.
    pub is_placed: bool,
    state: Arc<State>,
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
    /// Objects that were drained up to here have been let go.
    gone: Option<ResourceVersion>,
    /// The last objects that were drained.
    leaving: VecDeque<Arc<Leaving>>,
}

#[derive(Debug)]
struct Open {
    scope: Arc<Scope>,
    is_watch: bool,
    /// Whether its client notices by itself what is gone.
    replaces: bool,
    position: Option<ResourceVersion>,
    state: Arc<State>,
    /// When the API server answered, of a watch that continues none.
    fresh: Option<Instant>,
    /// Of one that ended: until when it holds objects.
    ends: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    /// The API server has answered it.
    begun: AtomicBool,
    /// The client took all that came.
    idle: AtomicBool,
    cut: CancellationToken,
}

#[derive(Debug)]
struct Waiting {
    object: Arc<Leaving>,
    wake: oneshot::Sender<()>,
}

impl Open {
    fn is_remembered(&self, now: Instant) -> bool {
        let longer = if self.is_watch { REMEMBERED } else { Duration::ZERO };
        self.ends.is_none_or(|ends| now < ends + longer)
    }

    fn holds(&self, id: u64, object: &Leaving, now: Instant) -> bool {
        self.ends.is_none_or(|ends| now < ends)
            && self.position.as_ref().is_none_or(|at| *at < object.version)
            && self.scope.covers(object)
            && !(self.is_watch && self.state.idle.load(Ordering::Acquire) && !self.scope.selects(object))
            && !object.excuses(id)
    }
}

impl OfResource {
    fn holding<'a>(&'a self, object: &'a Leaving) -> impl Iterator<Item = (u64, &'a Open)> {
        let now = Instant::now();
        self.open.iter().map(|(id, open)| (*id, open)).filter(move |(id, open)| open.holds(*id, object, now))
    }

    /// Wakes those who wait for something above `from` and up to `to`, if nothing holds them any more.
    fn wake(&mut self, from: Option<&ResourceVersion>, to: Option<&ResourceVersion>) {
        let above = from.map_or(Bound::Unbounded, |from| Bound::Excluded((from.clone(), u64::MAX)));
        let up_to = to.map_or(Bound::Unbounded, |to| Bound::Included((to.clone(), u64::MAX)));
        let candidates: Vec<_> = self.waiting.range((above, up_to)).map(|(key, _)| key.clone()).collect();
        for key in candidates {
            let holds = self.waiting.get(&key).is_some_and(|it| self.holding(&it.object).next().is_some());
            if !holds && let Some(waiting) = self.waiting.remove(&key) {
                // Whoever waited may have given up.
                let _ = waiting.wake.send(());
            }
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(open) = self.open.remove(&id) {
            self.wake(open.position.as_ref(), None);
        }
    }

    /// Those that ended and are remembered, the oldest first, without those whose time is over.
    fn ended(&mut self) -> Vec<(Instant, u64)> {
        let now = Instant::now();
        self.open.retain(|_, open| open.is_remembered(now));
        let mut ended: Vec<_> = self.open.iter().filter_map(|(id, open)| Some((open.ends?, *id))).collect();
        ended.sort_unstable();
        ended
    }

    /// A view has begun, in place of a page before it or of a watch that ended. Of several watches that one goes which
    /// had come furthest: then the others hold and miss no less than they do. Returns what this one missed.
    fn take_over(&mut self, id: u64) -> Option<Missed> {
        let ended = self.ended();
        let this = self.open.get(&id)?;
        let same_list = |open: &Open| open.position == this.position;
        let is_before = |open: &Open| {
            open.is_watch == this.is_watch && open.scope == this.scope && (this.is_watch || same_list(open))
        };
        let before = ended.iter().filter_map(|(_, id)| Some((self.open.get(id)?.position.clone(), *id)));
        let mut before: Vec<_> = before.filter(|(_, id)| self.open.get(id).is_some_and(is_before)).collect();
        before.sort_unstable();
        let ((from, _), (_, furthest)) = (before.first()?, before.last()?);
        let objects = if this.is_watch && !this.replaces { self.missed(this, from.as_ref()) } else { Vec::new() };
        if objects.is_empty() {
            self.remove(*furthest);
            return None;
        }
        Some(Missed { objects, from: this.position.clone(), before: *furthest })
    }

    /// The watch that continues this one, which ends, if it has begun already.
    fn continued_by(&self, ending: &Open, now: Instant) -> Option<u64> {
        let continues = |open: &Open| {
            open.is_watch
                && open.ends.is_none()
                && open.scope == ending.scope
                && open.fresh.is_some_and(|begun| now < begun + EARLY)
        };
        self.open.iter().find(|(_, open)| continues(open)).map(|(id, _)| *id)
    }

    /// What moved away behind `from` and is not shown by this watch any more.
    fn missed(&self, this: &Open, from: Option<&ResourceVersion>) -> Vec<Arc<Leaving>> {
        let is_missed = |object: &&Arc<Leaving>| {
            from.is_none_or(|from| *from < object.version)
                && this.position.as_ref().is_none_or(|at| object.version <= *at)
                && this.scope.covers(object)
                && this.scope.selects(object)
        };
        self.leaving.iter().filter(is_missed).cloned().collect()
    }
}

impl Views {
    /// No views.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a view, before its request is sent: what is drained from then on may still be shown by it.
    ///
    /// # Errors
    /// When it would show what was let go already, and could not be told so later.
    pub fn open(&self, scope: Scope, kind: Kind) -> Result<View, Expired> {
        let mut registry = self.0.lock();
        registry.next_id += 1;
        let id = registry.next_id;
        let of = registry.resources.entry(scope.resource.clone()).or_default();
        let (is_page, replaces) = (matches!(kind, Kind::Page(_)), kind == Kind::StreamingList);
        let is_watch = replaces || matches!(kind, Kind::Watch(_));
        let position = match kind {
            Kind::List | Kind::StreamingList => None,
            Kind::Page(version) => Some(version),
            Kind::Watch(from) => from,
        };
        if is_page && position < of.gone {
            return Err(Expired);
        }
        let (scope, state) = (Arc::new(scope), Arc::new(State::default()));
        let open =
            Open { scope: scope.clone(), is_watch, replaces, position, state: state.clone(), fresh: None, ends: None };
        of.open.insert(id, open);
        Ok(View { views: self.clone(), scope, id, state })
    }

    /// How many views could still show the object, or have yet to take it back.
    pub fn behind(&self, object: &Leaving) -> usize {
        self.0.lock().resources.get(&object.resource).map_or(0, |of| of.holding(object).count())
    }

    /// The open watches among them of which the client took all that came.
    pub fn idle_behind(&self, object: &Leaving) -> Vec<Holding> {
        let registry = self.0.lock();
        let Some(of) = registry.resources.get(&object.resource) else { return Vec::new() };
        let idle = |open: &Open| open.is_watch && open.ends.is_none() && open.state.idle.load(Ordering::Acquire);
        let holding = of.holding(object).filter(|(_, open)| idle(open));
        let holding = holding.map(|(id, open)| Holding {
            id,
            scope: open.scope.clone(),
            is_placed: open.position.is_some(),
            state: open.state.clone(),
        });
        holding.collect()
    }

    /// The object was drained: a watch that begins behind that may have missed it, also before it is let go.
    pub fn leaves(&self, object: &Arc<Leaving>) {
        let mut registry = self.0.lock();
        let of = registry.resources.entry(object.resource.clone()).or_default();
        of.leaving.retain(|it| it.uid != object.uid);
        of.leaving.push_back(object.clone());
        if of.leaving.len() > MOST_LEAVING {
            of.leaving.pop_front();
        }
    }

    /// The object is let go from now on: no page of a list from before shows it any more.
    pub fn gone(&self, object: &Leaving) {
        let mut registry = self.0.lock();
        let of = registry.resources.entry(object.resource.clone()).or_default();
        if of.gone.as_ref().is_none_or(|gone| *gone < object.version) {
            of.gone = Some(object.version.clone());
        }
    }

    /// How many views are open.
    pub fn count(&self) -> usize {
        let registry = self.0.lock();
        registry.resources.values().flat_map(|of| of.open.values()).filter(|open| open.ends.is_none()).count()
    }

    /// Returns once no view holds the object.
    pub async fn past(&self, object: &Arc<Leaving>) {
        loop {
            let (ticket, woken, over) = {
                let mut registry = self.0.lock();
                registry.next_id += 1;
                let id = registry.next_id;
                let of = registry.resources.entry(object.resource.clone()).or_default();
                let holding: Vec<_> = of.holding(object).map(|(_, open)| open.ends).collect();
                if holding.is_empty() {
                    return;
                }
                let over = holding.into_iter().flatten().min();
                let ((wake, woken), key) = (oneshot::channel(), (object.version.clone(), id));
                of.waiting.insert(key.clone(), Waiting { object: object.clone(), wake });
                (Ticket { views: self, resource: &object.resource, key }, woken, over)
            };
            // The sender lives as long as the ticket; either way the condition is looked at again.
            tokio::select! {
                _ = woken => {}
                () = sleep_until(over.unwrap_or_else(Instant::now)), if over.is_some() => {}
            }
            drop(ticket);
        }
    }
}

/// Takes a waiter out again, also one that gave up.
struct Ticket<'a> {
    views: &'a Views,
    resource: &'a GroupResource,
    key: (ResourceVersion, u64),
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut registry = self.views.0.lock();
        if let Some(of) = registry.resources.get_mut(self.resource) {
            of.waiting.remove(&self.key);
        }
    }
}

impl View {
    fn of<T>(&self, change: impl FnOnce(&mut OfResource) -> T) -> Option<T> {
        self.views.0.lock().resources.get_mut(&self.scope.resource).map(change)
    }

    /// What it shows.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The API server has answered: a watch goes on in place of one that ended, and a page is there in place of the last.
    /// Returns what moved away in between.
    pub fn begun(&self) -> Option<Missed> {
        if self.state.begun.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.of(|of| {
            let ended = of.open.len();
            let missed = of.take_over(self.id);
            let is_fresh = missed.is_none() && of.open.len() == ended;
            if let Some(open) = of.open.get_mut(&self.id) {
                open.fresh = is_fresh.then(Instant::now);
            }
            missed
        })?
    }

    /// The client is told what it missed: the watch before is forgotten.
    pub fn told(&self, missed: &Missed) {
        self.of(|of| of.remove(missed.before));
    }

    /// The client was handed an event that proves it has seen everything up to `version`.
    pub fn advance(&self, version: &ResourceVersion) {
        self.of(|of| {
            let Some(open) = of.open.get_mut(&self.id) else { return };
            if open.position.as_ref().is_some_and(|at| at >= version) {
                return;
            }
            let before = open.position.replace(version.clone());
            of.wake(before.as_ref(), Some(version));
        });
    }

    /// Whether the client took all that came.
    pub fn idle(&self, idle: bool) {
        let before = self.state.idle.swap(idle, Ordering::AcqRel);
        if idle && !before && !self.scope.labels.is_empty() {
            self.of(|of| {
                let at = of.open.get(&self.id).and_then(|open| open.position.clone());
                of.wake(at.as_ref(), None);
            });
        }
    }

    /// Ready when the watch has to end, because nobody can say how far it has come.
    pub fn cut(&self) -> WaitForCancellationFutureOwned {
        self.state.cut.clone().cancelled_owned()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let (id, begun) = (self.id, self.state.begun.load(Ordering::Acquire));
        self.of(|of| {
            let now = Instant::now();
            let Some(mut open) = of.open.remove(&id) else { return };
            let next = of.continued_by(&open, now).filter(|_| open.is_watch && begun);
            if let Some(next) = next.and_then(|next| of.open.get_mut(&next)) {
                next.fresh = None;
            }
            let next = next.and_then(|next| of.open.get(&next));
            let missed = next.map(|next| !next.replaces && !of.missed(next, open.position.as_ref()).is_empty());
            if let (Some(true), Some(next)) = (missed, next) {
                // It begins anew, and then with what it missed. It is not remembered: this one is.
                next.state.begun.store(false, Ordering::Release);
                next.state.cut.cancel();
            }
            let remembered = match (open.is_watch, &open.position) {
                (true, _) => WATCHES_AGAIN,
                (false, Some(_)) => NEXT_PAGE,
                (false, None) => Duration::ZERO,
            };
            if !begun || remembered.is_zero() || missed == Some(false) {
                of.wake(open.position.as_ref(), None);
                return;
            }
            open.ends = Some(now + remembered);
            of.open.insert(id, open);
            let ended = of.ended();
            let too_many = ended.len().saturating_sub(MOST_ENDED);
            ended.into_iter().take(too_many).for_each(|(_, id)| of.remove(id));
        });
    }
}

impl Holding {
    /// Ends the watch, so that its client lists again.
    pub fn cut(&self) {
        self.state.cut.cancel();
    }
}
