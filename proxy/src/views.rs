//! What the controller can still see: its open watches and lists, and how far each of them has come.
//!
//! Written by the tap, read by the handover. The shard may release an object when every view that could show it is past
//! the resourceVersion X of the write that drained it. Events of one watch come in the order of their resourceVersions
//! (tried on the API server), so "past X" is `position >= X`, and the views need to remember nothing about objects. A
//! view without a position (a list under way, a watch that began with "the state as it is" and has delivered neither
//! `DELETED` nor `BOOKMARK` yet) is past nothing.
//!
//! A watch whose own label selector does not select the object holds it only while the client has something in hand: that
//! may be how it gets to know that the object is selected no more. Of other selectors the API server is asked.
//!
//! Two kinds of views outlive their request. A watch that ended is to be continued: the controller still sees what it
//! saw, until it watches again (`resumption`). And between two pages of a list the controller has the first. Both are
//! forgotten after a while; pages of a list from before an object was released are refused from then on, and a watch
//! may go on from anywhere, since it is sent the `DELETED`.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http::HeaderValue;
use parking_lot::Mutex;
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource, doing};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep_until},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

mod broken_watches;
mod catch_up;
#[cfg(test)]
pub(crate) mod fixtures;
mod registry;
mod resumption;
mod scope;
#[cfg(test)]
mod tests;

pub use catch_up::{CacheProbe, Watching};
use registry::{OfResource, Open, Registry, ViewState, WaitingDrain};
pub use scope::{DrainingObject, Fields, Scope};

/// How long a watch that ended holds what it has not seen go, unless it is continued: clients try again within a second or two.
const WATCHES_AGAIN: Duration = Duration::from_secs(30);
/// How long one is waited for whose client tries and is refused: client-go waits for up to 30 s and as much again, at random
/// (`NewExponentialBackoffManager` of k8s.io/apimachinery, as its reflector has it).
const TRIES_AGAIN: Duration = Duration::from_secs(60);
/// How long after a page the next one is waited for. A client that takes longer has to list again.
const NEXT_PAGE: Duration = Duration::from_secs(2);
/// The most views of a resource that are remembered after their end; the oldest make room.
const MAX_ENDED: usize = 1_000;
/// The most drained objects of a resource that are remembered for watches that begin behind them; the oldest make room.
const MAX_LEAVING: usize = 4_096;

/// Characters of a `User-Agent` that are remembered.
const MAX_AGENT_LENGTH: usize = 100;

/// The open views of the controller. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Views(Arc<Mutex<Registry>>);

/// What there is, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Views that are open.
    pub open: usize,
    /// Views that ended and are remembered, with what they may have shown.
    pub ended: usize,
    /// Of those how many were forgotten, because there were too many.
    pub ended_evicted: u64,
    /// Drained objects that are remembered for watches that begin behind them.
    pub leaving: usize,
    /// Of those how many were forgotten, because there were too many.
    pub leaving_evicted: u64,
    /// Lists that are remembered, for watches that have yet to begin.
    pub lists: usize,
    /// Of those how many were forgotten, because there were too many.
    pub lists_evicted: u64,
}

/// A view, open until this is dropped.
#[derive(Debug)]
pub struct View {
    views: Views,
    scope: Arc<Scope>,
    id: u64,
    state: Arc<ViewState>,
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
pub struct UnobservedDeletions {
    /// The objects.
    pub objects: Vec<Arc<DrainingObject>>,
    /// Where the watch goes on from.
    pub from: Option<ResourceVersion>,
}

/// The page is of a list from before an object was released, and shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("objects were handed to other shards since this list began: list again from its beginning")]
pub struct Expired;

/// An open view that holds an object.
#[derive(Clone, Debug)]
pub struct BlockingView {
    /// Which one.
    pub id: u64,
    /// What it shows.
    pub scope: Arc<Scope>,
    /// Whether it is a watch, and no list.
    pub is_watch: bool,
    /// Whether it is known how far it has come.
    pub is_placed: bool,
    /// When the API server answered.
    pub opened: Instant,
    state: Arc<ViewState>,
}

impl Views {
    /// No views.
    pub fn new() -> Self {
        Self::default()
    }

    fn of<T>(&self, resource: &GroupResource, change: impl FnOnce(&mut OfResource) -> T) -> T {
        change(self.0.lock().of(resource))
    }

    /// Opens a view, before its request is sent: what is drained from then on may still be shown by it.
    ///
    /// # Errors
    /// When it would show what was released already, and could not be told so later.
    pub fn open(&self, scope: Scope, kind: Kind) -> Result<View, Expired> {
        let mut registry = self.0.lock();
        let id = registry.next_id();
        let of = registry.of(&scope.resource);
        let is_page = matches!(kind, Kind::Page(_));
        let (scope, state) = (Arc::new(scope), Arc::new(ViewState::default()));
        let open = Open::new(scope.clone(), kind, state.clone());
        if is_page && open.position < of.gone {
            return Err(Expired);
        }
        of.open.insert(id, open);
        Ok(View { views: self.clone(), scope, id, state })
    }

    /// How many views could still show the object, or have yet to take it back.
    pub fn count_blocking(&self, object: &DrainingObject) -> usize {
        self.of(&object.resource, |of| of.holding(object).count())
    }

    /// Those among them that are open.
    pub fn open_blocking(&self, object: &DrainingObject) -> Vec<BlockingView> {
        self.of(&object.resource, |of| {
            let holding = of.holding(object).filter(|(_, open)| open.ends.is_none());
            let holding = holding.map(|(id, open)| BlockingView {
                id,
                scope: open.scope.clone(),
                is_watch: open.is_watch,
                is_placed: open.position.is_some(),
                opened: open.opened,
                state: open.state.clone(),
            });
            holding.collect()
        })
    }

    /// Until when the controller is there for a resource, if it comes back `within` that time after its last view; none before
    /// the API server has answered one. An answer that refuses is none: the controller knows no objects by it.
    pub fn here_until(&self, resource: &GroupResource, within: Duration) -> Option<Instant> {
        self.of(resource, |of| {
            let mut open = of.open.values().filter(|open| open.ends.is_none());
            let is_open = open.any(|open| open.state.begun.load(Ordering::Acquire));
            is_open.then(Instant::now).or(of.last_begun).map(|at| at + within)
        })
    }

    /// The same, with the time for another try where the API server did not answer yet, or had no time.
    pub fn expected_until(&self, resource: &GroupResource, within: Duration) -> Option<Instant> {
        let tried = self.of(resource, |of| {
            let open = of.open.values().filter(|open| open.ends.is_none());
            let waits = open.filter(|open| !open.state.begun.load(Ordering::Acquire)).map(|open| open.opened);
            waits.chain(of.last_postponed).max()
        });
        self.here_until(resource, within).max(tried.map(|at| at + within.max(TRIES_AGAIN)))
    }

    /// Whether the API server serves a resource, as was found out just now.
    pub fn is_served(&self, resource: &GroupResource, is_served: bool) {
        let registry = &mut *self.0.lock();
        let is_news = match is_served {
            true => registry.unserved.remove(resource),
            false => registry.unserved.insert(resource.clone()),
        };
        if is_news {
            registry.begins.notify_one();
        }
    }

    /// The resources that the API server does not serve.
    pub fn unserved(&self) -> BTreeSet<GroupResource> {
        self.0.lock().unserved.clone()
    }

    /// Tells when the API server has answered a view, or serves another resource, to one who waits for that.
    pub fn begins(&self) -> Arc<Notify> {
        self.0.lock().begins.clone()
    }

    /// The object was drained: a watch that begins behind that may have missed it, also before it is released. So may
    /// one have that began before this was known.
    pub fn leaves(&self, object: &Arc<DrainingObject>) {
        self.of(&object.resource, |of| {
            of.leaving.retain(|it| it.uid != object.uid);
            of.leaving.push_back(object.clone());
            if of.leaving.len() > MAX_LEAVING {
                of.leaving.pop_front();
                of.leaving_evicted += 1;
            }
            of.open.values_mut().for_each(|open| open.may_have_missed(object));
        });
    }

    /// Notes that the object is released from now on: no page of a list from before shows it any more.
    pub fn gone(&self, object: &DrainingObject) {
        self.of(&object.resource, |of| {
            if of.gone.as_ref().is_none_or(|gone| *gone < object.version) {
                of.gone = Some(object.version.clone());
            }
        });
    }

    /// The API server's time went back to this resourceVersion: pages of lists are of another past.
    pub fn went_back(&self, resource: &GroupResource, to: &ResourceVersion) {
        self.of(resource, |of| drop(of.gone.take_if(|gone| *gone > *to)));
    }

    /// Notes that the controller has left. No client continues what ended, so it holds nothing, and neither does what
    /// ends from now on. A request of a connection that is gone may end after it.
    pub fn end(&self) {
        let mut registry = self.0.lock();
        registry.over = true;
        for of in registry.resources.values_mut() {
            of.open.retain(|_, open| open.ends.is_none());
            of.wake(None, None);
        }
    }

    /// What there is at the moment.
    pub fn numbers(&self) -> Numbers {
        let (registry, now) = (self.0.lock(), Instant::now());
        let mut numbers = Numbers::default();
        for of in registry.resources.values() {
            for open in of.open.values() {
                match open.ends {
                    None => numbers.open += 1,
                    Some(_) => numbers.ended += usize::from(open.is_remembered(now)),
                }
            }
            numbers.ended_evicted += of.ended_evicted;
            numbers.leaving += of.leaving.len();
            numbers.leaving_evicted += of.leaving_evicted;
            numbers.lists += of.listed_lately(now);
            numbers.lists_evicted += of.lists_evicted;
        }
        numbers
    }

    /// Those that began first, at most so many, and how many there are.
    pub fn oldest(&self, at_most: usize) -> (Vec<doing::Stream>, usize) {
        let (registry, now) = (self.0.lock(), Instant::now());
        let all = registry.resources.values().flat_map(|of| &of.open);
        let mut all: Vec<_> = all.filter(|(_, open)| open.is_told(now)).collect();
        all.sort_by_key(|(id, _)| **id);
        (all.iter().take(at_most).map(|(_, open)| open.tell(now)).collect(), all.len())
    }

    /// Returns once no view holds the object.
    pub async fn wait_delivered(&self, object: &Arc<DrainingObject>) {
        loop {
            let (waiter, woken, over) = {
                let mut registry = self.0.lock();
                let id = registry.next_id();
                let of = registry.of(&object.resource);
                let holding: Vec<_> = of.holding(object).map(|(_, open)| open.ends).collect();
                if holding.is_empty() {
                    return;
                }
                let over = holding.into_iter().flatten().min();
                let ((wake, woken), key) = (oneshot::channel(), (object.version.clone(), id));
                of.waiting.insert(key.clone(), WaitingDrain { object: object.clone(), wake });
                (Waiter { views: self, resource: &object.resource, key }, woken, over)
            };
            // The sender lives as long as the waiter; either way the condition is looked at again.
            tokio::select! {
                _ = woken => {}
                () = sleep_until(over.unwrap_or_else(Instant::now)), if over.is_some() => {}
            }
            drop(waiter);
        }
    }
}

/// Takes a waiter out again, also one that gave up.
struct Waiter<'a> {
    views: &'a Views,
    resource: &'a GroupResource,
    key: (ResourceVersion, u64),
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.views.of(self.resource, |of| of.waiting.remove(&self.key));
    }
}

impl View {
    fn of<T>(&self, change: impl FnOnce(&mut OfResource) -> T) -> T {
        self.views.of(&self.scope.resource, change)
    }

    /// What it shows.
    pub fn scope(&self) -> &Arc<Scope> {
        &self.scope
    }

    /// Up to where its client has seen everything, as far as is known.
    pub fn position(&self) -> Option<ResourceVersion> {
        self.of(|of| of.open.get(&self.id)?.position.clone())
    }

    /// The API server has answered: a watch goes on in place of one that ended, and a page is there in place of the last.
    /// Returns what moved away in between, which this view holds until its client is told.
    pub fn begun(&self) -> Option<UnobservedDeletions> {
        let mut registry = self.views.0.lock();
        if self.state.begun.swap(true, Ordering::AcqRel) {
            return None;
        }
        registry.begins.notify_one();
        let unknown = registry.unknown;
        registry.of(&self.scope.resource).take_over(self.id, unknown)
    }

    /// Notes that the API server was out of reach, or had no time. The client that asked for this watch tries again,
    /// with what it knew before.
    pub fn postponed(&self) {
        self.state.postponed.store(true, Ordering::Release);
    }

    /// The client was told what it missed of these.
    pub fn mark_notified(&self, missed: &UnobservedDeletions) {
        self.of(|of| {
            if let Some(open) = of.open.get_mut(&self.id) {
                open.missed.retain(|it| !missed.objects.iter().any(|told| Arc::ptr_eq(told, it)));
            }
            of.wake(None, None);
        });
    }

    /// The client was handed an event that proves it has seen everything up to `version`.
    pub fn advance(&self, version: &ResourceVersion) {
        self.of(|of| {
            let Some(open) = of.open.get_mut(&self.id) else { return };
            if open.position.as_ref().is_some_and(|at| at >= version) {
                return;
            }
            let before = open.advance(version);
            if before.is_none() {
                of.is_whole(self.id);
                of.watched.notify_waiters();
            }
            of.wake(before.as_ref(), Some(version));
        });
    }

    /// It ends, and its client would have gone on.
    pub fn broken_off(&self) {
        self.state.broken_off.store(true, Ordering::Release);
    }

    /// The client took all that came.
    pub fn idle(&self) {
        if self.state.idle.swap(true, Ordering::AcqRel) {
            return;
        }
        self.state.taken.notify_waiters();
        if !self.scope.labels.is_empty() {
            self.of(|of| {
                let Some(open) = of.open.get(&self.id).filter(|open| open.is_watch) else { return };
                let at = open.position.clone();
                of.wake(at.as_ref(), None);
            });
        }
    }

    /// So many bytes are handed to the client's connection, which took all before them.
    pub fn passes(&self, bytes: usize) {
        self.state.idle.store(false, Ordering::Release);
        self.state.waiting.store(bytes, Ordering::Relaxed);
        self.state.pieces.fetch_add(1, Ordering::Relaxed);
    }

    /// It is shown to a client that calls itself so, on a connection that is closed by the token.
    pub fn shown_to(&self, agent: Option<&HeaderValue>, connection: CancellationToken) {
        let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or("without a name");
        // Once.
        let _ = self.state.client.set((agent.chars().take(MAX_AGENT_LENGTH).collect(), connection));
    }

    /// Ready when its connection has to be closed, as its client does not read what drains wait for.
    pub fn closed(&self) -> Option<WaitForCancellationFutureOwned> {
        self.state.client.get().map(|(_, connection)| connection.clone().cancelled_owned())
    }

    /// Ready when the watch has to end, because it can't be told how far it has come.
    pub fn cut(&self) -> WaitForCancellationFutureOwned {
        self.state.cut.clone().cancelled_owned()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Release);
        self.state.taken.notify_waiters();
        let (begun, postponed) = [&self.state.begun, &self.state.postponed].map(|it| it.load(Ordering::Acquire)).into();
        let mut registry = self.views.0.lock();
        let over = registry.over;
        let of = registry.of(&self.scope.resource);
        let Some(mut open) = of.open.remove(&self.id) else { return };
        match (begun, postponed) {
            (true, _) => of.last_begun = Some(Instant::now()),
            (false, true) => of.last_postponed = Some(Instant::now()),
            (false, false) => {}
        }
        if begun && !open.is_watch {
            of.listed(&open);
        }
        if postponed && open.from.is_none() {
            of.renew(&open.scope);
        }
        // Nothing holds what a list has shown whose watch has yet to begin.
        let goes_on = begun || (postponed && open.is_watch && open.from.is_some() && !of.wait_for_longer(&open));
        let remembered = match (open.is_watch, &open.position) {
            (true, _) if postponed => TRIES_AGAIN,
            (true, _) => WATCHES_AGAIN,
            (false, Some(_)) => NEXT_PAGE,
            (false, None) => Duration::ZERO,
        };
        if over || !goes_on || remembered.is_zero() || (begun && of.is_continued(&open)) {
            of.released(&open);
            return;
        }
        open.interrupt(begun && self.state.broken_off.load(Ordering::Acquire));
        let now = Instant::now();
        (open.ended, open.ends) = (Some(now), Some(now + remembered));
        of.open.insert(self.id, open);
        let ended = of.ended();
        let too_many = ended.len().saturating_sub(MAX_ENDED);
        ended.into_iter().take(too_many).for_each(|(_, id)| of.remove(id));
        of.ended_evicted += u64::try_from(too_many).unwrap_or(u64::MAX);
    }
}

impl BlockingView {
    /// Whether its client took all that came.
    pub fn is_idle(&self) -> bool {
        self.state.idle.load(Ordering::Acquire)
    }

    /// How many pieces its client's connection was handed so far.
    pub fn pieces(&self) -> u64 {
        self.state.pieces.load(Ordering::Relaxed)
    }

    /// What its client calls itself, and how many bytes wait for it here; its connection may have more.
    pub fn client(&self) -> (&str, usize) {
        (self.state.agent(), self.state.waiting.load(Ordering::Relaxed))
    }

    /// Closes its client's connection, or the stream on it: a body that the client does not read is not asked for its
    /// end. Returns whether that is new.
    pub fn close(&self) -> bool {
        let connection = self.state.client.get().map(|(_, connection)| connection).filter(|it| !it.is_cancelled());
        connection.inspect(|it| it.cancel()).is_some()
    }

    /// Ends the watch, so that its client lists again. Returns whether this is the first such call.
    pub fn cut(&self) -> bool {
        let is_first = !self.state.cut.is_cancelled();
        self.state.cut.cancel();
        is_first
    }
}
