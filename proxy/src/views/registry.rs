//! The views of each resource, and who waits for them.
//!
//! ResourceVersions are comparable within one resource only, so nothing is shared between resources.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Bound,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use ringside_ring::{ResourceVersion, cluster_ring::GroupResource, doing};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{CacheProbe, DrainingObject, Kind, Scope, broken_watches::BrokenWatch, resumption::SkippedRange};

#[derive(Debug, Default)]
pub(super) struct Registry {
    last_id: u64,
    /// The controller has ended: no client continues what ends.
    pub(super) over: bool,
    /// That there were views of which nothing is known.
    pub(super) unknown: Option<BrokenWatch>,
    /// The API server has answered a view.
    pub(super) begins: Arc<Notify>,
    pub(super) resources: HashMap<GroupResource, OfResource>,
    /// What the API server does not serve: there can be no view of it.
    pub(super) unserved: BTreeSet<GroupResource>,
}

#[derive(Debug, Default)]
pub(super) struct OfResource {
    /// Those that are open, and those that ended and are remembered.
    pub(super) open: HashMap<u64, Open>,
    /// When the last one ended that the API server had answered.
    pub(super) last_begun: Option<Instant>,
    /// And the last one that it had no time for, so that its client tries again.
    pub(super) last_postponed: Option<Instant>,
    /// Ordered by what they wait for, so that progress wakes only those whom it may concern.
    pub(super) waiting: BTreeMap<(ResourceVersion, u64), WaitingDrain>,
    /// Objects that were drained up to here have been released.
    pub(super) gone: Option<ResourceVersion>,
    /// The last objects that were drained.
    pub(super) leaving: VecDeque<Arc<DrainingObject>>,
    /// The lists that were answered lately, the oldest first, and when they ended.
    pub(super) lists: VecDeque<(Instant, Arc<Scope>)>,
    /// A watch has begun, or its initial events have ended.
    pub(super) watched: Arc<Notify>,
    /// Those that ended and were forgotten, because there were too many.
    pub(super) ended_evicted: u64,
    /// Objects that were drained, the same.
    pub(super) leaving_evicted: u64,
    /// Lists, the same.
    pub(super) lists_evicted: u64,
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) scope: Arc<Scope>,
    pub(super) is_watch: bool,
    /// Whether its client notices by itself what is gone.
    pub(super) replaces: bool,
    /// Where it began.
    pub(super) from: Option<ResourceVersion>,
    pub(super) position: Option<ResourceVersion>,
    /// What it may have skipped, of a watch that began behind another.
    pub(super) skipped: Option<SkippedRange>,
    /// What it skipped, and its client has yet to be told.
    pub(super) missed: Vec<Arc<DrainingObject>>,
    pub(super) state: Arc<ViewState>,
    /// When the API server answered, or else when it was asked for.
    pub(super) opened: Instant,
    /// When the API server answered, of a watch that continues none.
    pub(super) fresh: Option<Instant>,
    /// That it was broken off, or one in whose place it goes on.
    pub(super) broken_watches: Option<BrokenWatch>,
    /// Of one that ended: when.
    pub(super) ended: Option<Instant>,
    /// And until when it holds objects.
    pub(super) ends: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct ViewState {
    /// The API server has answered it.
    pub(super) begun: AtomicBool,
    /// The API server had no time for it: its client will ask again, and goes on with what it knows meanwhile.
    pub(super) postponed: AtomicBool,
    /// It ends, and not because its client wants no more.
    pub(super) broken_off: AtomicBool,
    /// The client took all that came.
    pub(super) idle: AtomicBool,
    /// Pieces that the client's connection was handed, and bytes of the last one.
    pub(super) pieces: AtomicU64,
    pub(super) waiting: AtomicUsize,
    /// What the client calls itself, and what closes its connection.
    pub(super) client: OnceLock<(Box<str>, CancellationToken)>,
    pub(super) cut: CancellationToken,
    /// How it is found out what the API server knows that serves it.
    pub(super) probe: OnceLock<CacheProbe>,
    /// Tells when the client took all that came, or the view has ended.
    pub(super) taken: Notify,
    /// It has ended.
    pub(super) over: AtomicBool,
}

impl ViewState {
    /// What its client calls itself.
    pub(super) fn agent(&self) -> &str {
        self.client.get().map_or("unknown", |(agent, _)| agent)
    }
}

#[derive(Debug)]
pub(super) struct WaitingDrain {
    pub(super) object: Arc<DrainingObject>,
    pub(super) wake: oneshot::Sender<()>,
}

impl Registry {
    pub(super) fn of(&mut self, resource: &GroupResource) -> &mut OfResource {
        self.resources.entry(resource.clone()).or_default()
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

impl Open {
    pub(super) fn new(scope: Arc<Scope>, kind: Kind, state: Arc<ViewState>) -> Self {
        let replaces = kind == Kind::StreamingList;
        let is_watch = replaces || matches!(kind, Kind::Watch(_));
        let from = match kind {
            Kind::List | Kind::StreamingList => None,
            Kind::Page(version) => Some(version),
            Kind::Watch(from) => from,
        };
        let position = from.clone();
        Self {
            scope,
            is_watch,
            replaces,
            from,
            position,
            skipped: None,
            missed: Vec::new(),
            state,
            opened: Instant::now(),
            fresh: None,
            broken_watches: None,
            ended: None,
            ends: None,
        }
    }

    /// Whether it is open, or its client may go on from it.
    pub(super) fn is_told(&self, now: Instant) -> bool {
        self.ends.is_none() || self.is_remembered(now)
    }

    /// What is told of it.
    pub(super) fn tell(&self, now: Instant) -> doing::Stream {
        let begun = self.state.begun.load(Ordering::Acquire);
        doing::Stream {
            resource: self.scope.resource.to_string(),
            is_watch: self.is_watch,
            state: match (begun, self.ends) {
                (_, Some(_)) => doing::StreamState::Ended,
                (true, None) => doing::StreamState::Open,
                (false, None) => doing::StreamState::Opening,
            },
            version: self.position.as_ref().map(ToString::to_string),
            client: self.state.agent().to_owned(),
            unread: self.state.waiting.load(Ordering::Relaxed),
            millis: doing::millis(now.saturating_duration_since(self.opened)),
        }
    }

    fn holds(&self, id: u64, object: &DrainingObject, now: Instant) -> bool {
        let is_behind = self.position.as_ref().is_none_or(|at| *at < object.version);
        let is_decided = self.is_watch && self.state.idle.load(Ordering::Acquire) && !self.scope.selects(object);
        let shows = is_behind && !is_decided && self.scope.covers(object);
        self.ends.is_none_or(|ends| now < ends) && (shows || self.has_missed(object)) && !object.is_proved_not_shown(id)
    }
}

impl OfResource {
    pub(super) fn holding<'a>(&'a self, object: &'a DrainingObject) -> impl Iterator<Item = (u64, &'a Open)> {
        let now = Instant::now();
        self.open.iter().map(|(id, open)| (*id, open)).filter(move |(id, open)| open.holds(*id, object, now))
    }

    /// Wakes those who wait for something above `from` and up to `to`, if nothing holds them any more.
    pub(super) fn wake(&mut self, from: Option<&ResourceVersion>, to: Option<&ResourceVersion>) {
        let above = from.map_or(Bound::Unbounded, |from| Bound::Excluded((from.clone(), u64::MAX)));
        let up_to = to.map_or(Bound::Unbounded, |to| Bound::Included((to.clone(), u64::MAX)));
        let candidates: Vec<_> = self.waiting.range((above, up_to)).map(|(key, _)| key.clone()).collect();
        for key in candidates {
            let holds = self.waiting.get(&key).is_some_and(|it| self.holding(&it.object).next().is_some());
            if !holds && let Some(waiting) = self.waiting.remove(&key) {
                // The task that waited may have ended.
                let _ = waiting.wake.send(());
            }
        }
    }

    pub(super) fn remove(&mut self, id: u64) {
        if let Some(open) = self.open.remove(&id) {
            self.released(&open);
        }
    }

    /// This view holds nothing any more.
    pub(super) fn released(&mut self, open: &Open) {
        let from = open.position.as_ref().filter(|_| open.missed.is_empty());
        self.wake(from, None);
    }
}
