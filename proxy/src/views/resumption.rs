//! Which watch goes on in place of which, and what its client missed in between.
//!
//! A client that listed between two watches goes on from behind what the one before had seen, and of what moved away
//! there it is sent no `DELETED`: not each client notices what is gone from a list. What is known to have moved by then
//! it is told first (`UnobservedDeletions`). But a client can be faster than the proxy's own watch, which says what was drained: so
//! each watch remembers what it may have skipped, its gap, and is ended for its client to list again when such a drain
//! shows up after it began. The shard releases nothing before the proxy's own watch has shown it, and nothing that a
//! watch missed before its client was told. So this sends no request, and is late for no client.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use ringside_ring::ResourceVersion;
use tokio::time::Instant;

use super::{
    DrainingObject, Scope, TRIES_AGAIN, UnobservedDeletions,
    broken_watches::BrokenWatch,
    registry::{OfResource, Open},
};

/// How long before the end of a watch the one that continues it may have begun: to notice that a connection is gone can take
/// longer than to make another. On loopback that is what a busy machine takes. Longer, and of two clients that watch the same
/// the one that has just begun would be taken for the other one.
pub(super) const EARLY: Duration = Duration::from_secs(1);
/// How long the position of a watch that ended is remembered, for what its client missed.
pub(super) const REMEMBERED: Duration = Duration::from_secs(600);
/// The most lists of a resource that are remembered, for watches that do not begin.
pub(super) const MAX_LISTS: usize = 256;

/// The resourceVersions that a watch skips: those above the first, up to the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SkippedRange {
    above: Option<ResourceVersion>,
    up_to: Option<ResourceVersion>,
}

impl SkippedRange {
    /// Between the end of one watch and the beginning of the next.
    fn between(above: Option<&ResourceVersion>, up_to: Option<&ResourceVersion>) -> Option<Self> {
        let is_empty = above.is_some_and(|above| up_to.is_some_and(|up_to| up_to <= above));
        (!is_empty).then(|| Self { above: above.cloned(), up_to: up_to.cloned() })
    }

    /// Both, and what is between them: that may have been seen, and is told once more then.
    fn join(self, other: Self) -> Self {
        let up_to = self.up_to.zip(other.up_to).map(|(one, another)| one.max(another));
        // `None` is below all.
        Self { above: self.above.min(other.above), up_to }
    }

    /// Whether the object may have been drained there. When that was, is known for sure of what our own watch has seen
    /// drained; else it was at some time before.
    fn may_have_hidden(&self, object: &DrainingObject) -> bool {
        let in_time = self.up_to.as_ref().is_none_or(|up_to| object.version <= *up_to) || !object.is_exact;
        in_time && self.above.as_ref().is_none_or(|above| *above < object.version)
    }
}

/// What a watch leaves to the one that goes on in its place.
#[derive(Clone, Debug, Default)]
struct PreviousWatch {
    position: Option<ResourceVersion>,
    skipped: Option<SkippedRange>,
    missed: Vec<Arc<DrainingObject>>,
}

impl PreviousWatch {
    /// Returns what several watches leave, where it is unknown which one is meant: of the one that had come least
    /// far, with all that any of them missed.
    fn of<'a>(watches: impl IntoIterator<Item = &'a Open>) -> Option<Self> {
        let one = |open: &Open| Self {
            position: open.position.clone(),
            skipped: open.skipped.clone(),
            missed: open.missed.clone(),
        };
        watches.into_iter().map(one).reduce(|mut all, one| {
            all.missed.extend(one.missed);
            Self {
                position: all.position.min(one.position),
                skipped: joined(all.skipped, one.skipped),
                missed: all.missed,
            }
        })
    }
}

fn joined(one: Option<SkippedRange>, another: Option<SkippedRange>) -> Option<SkippedRange> {
    match (one, another) {
        (Some(one), Some(another)) => Some(one.join(another)),
        (one, another) => one.or(another),
    }
}

/// Whether the watch of a list that ended then would have begun by now.
fn is_old(ended: Instant, now: Instant) -> bool {
    now >= ended + TRIES_AGAIN
}

impl Open {
    pub(super) fn is_remembered(&self, now: Instant) -> bool {
        let longer = if self.is_watch { REMEMBERED } else { Duration::ZERO };
        self.ends.is_none_or(|ends| now < ends + longer)
    }

    /// Whether it ended, and its client may be about to continue it.
    fn is_awaited(&self, now: Instant) -> bool {
        self.ends.is_some_and(|ends| now < ends)
    }

    /// Its client tries in vain. Not for ever: who does may be another one, of the same scope.
    fn is_waited_for(&mut self, now: Instant) {
        self.ends = self.ended.map(|ended| (now + TRIES_AGAIN).min(ended + REMEMBERED));
    }

    /// Returns the position before.
    pub(super) fn advance(&mut self, version: &ResourceVersion) -> Option<ResourceVersion> {
        // A watch that begins with the state as it is says so how old that was: its initial events end with a bookmark.
        if let Some(skipped) = &mut self.skipped {
            skipped.up_to.get_or_insert_with(|| version.clone());
        }
        self.position.replace(version.clone())
    }

    pub(super) fn has_missed(&self, object: &DrainingObject) -> bool {
        self.missed.iter().any(|it| it.uid == object.uid)
    }

    /// The object was drained. If this watch skipped that, its client has to list again: the next watch begins with it.
    pub(super) fn may_have_missed(&mut self, object: &Arc<DrainingObject>) {
        self.missed.retain(|it| it.uid != object.uid);
        if self.skipped.as_ref().is_some_and(|skipped| skipped.may_have_hidden(object)) && self.miss(object) {
            self.state.cut.cancel();
        }
    }

    /// Returns whether its client is to be told.
    fn miss(&mut self, object: &Arc<DrainingObject>) -> bool {
        let is_new = self.scope.covers(object) && self.scope.selects(object) && !self.has_missed(object);
        if is_new {
            self.missed.push(object.clone());
        }
        is_new
    }

    /// Goes on in place of another.
    fn resume_from(&mut self, before: PreviousWatch, leaving: &VecDeque<Arc<DrainingObject>>) {
        if self.replaces {
            return;
        }
        let skipped = SkippedRange::between(before.position.as_ref(), self.from.as_ref().or(self.position.as_ref()));
        let is_skipped =
            |object: &&Arc<DrainingObject>| skipped.as_ref().is_some_and(|skipped| skipped.may_have_hidden(object));
        for object in before.missed.iter().chain(leaving.iter().filter(is_skipped)) {
            self.miss(object);
        }
        self.skipped = joined(before.skipped, skipped);
    }
}

impl OfResource {
    /// Those that ended and are remembered, the oldest first, without those whose time is over.
    pub(super) fn ended(&mut self) -> Vec<(Instant, u64)> {
        let now = Instant::now();
        self.open.retain(|_, open| open.is_remembered(now));
        let mut ended: Vec<_> = self.open.iter().filter_map(|(id, open)| Some((open.ends?, *id))).collect();
        ended.sort_unstable();
        ended
    }

    /// A view has begun, in place of a page before it or of a watch that ended. Of several watches that one goes which
    /// had come furthest: then the others hold and miss no less than they do. One that is in place of none may be so of one that
    /// is `unknown`. Returns what this one missed.
    pub(super) fn take_over(&mut self, id: u64, unknown: Option<BrokenWatch>) -> Option<UnobservedDeletions> {
        let ended = self.ended();
        let mut this = self.open.remove(&id)?;
        let is_before = |open: &Open| {
            let same_list = open.position == this.position;
            open.is_watch == this.is_watch && open.scope == this.scope && (this.is_watch || same_list)
        };
        let before = ended.iter().filter_map(|(_, id)| Some((*id, self.open.get(id)?)));
        let before: Vec<_> = before.filter(|(_, open)| is_before(open)).collect();
        let furthest = before.iter().max_by_key(|(_, open)| &open.position).map(|(id, _)| *id);
        let ids: Vec<_> = before.iter().map(|(id, _)| *id).collect();
        match PreviousWatch::of(before.into_iter().map(|(_, open)| open)) {
            Some(previous) if this.is_watch => this.resume_from(previous, &self.leaving),
            Some(_) => {}
            None => this.fresh = Some(Instant::now()),
        }
        this.opened = Instant::now();
        if this.is_watch {
            let unknown = unknown.filter(|_| ids.is_empty());
            this.broken_watches = self.reconnected(&ids, furthest).or_else(|| unknown.map(BrokenWatch::is_over));
            self.watched.notify_waiters();
        }
        let missed = UnobservedDeletions { objects: this.missed.clone(), from: this.from.clone() };
        self.open.insert(id, this);
        furthest.into_iter().for_each(|id| self.remove(id));
        (!missed.objects.is_empty()).then_some(missed)
    }

    /// Whether one that ended is where a watch was to go on that did not begin: its client is waited for again. A
    /// client goes on from the last event that it had, which is often later than the last one that says how far a watch
    /// has come. But one that has listed may be another, which has that list and no watch yet.
    pub(super) fn wait_for_longer(&mut self, postponed: &Open) -> bool {
        let now = Instant::now();
        let has_listed = self.was_listed(&postponed.scope, now);
        let is_there = |open: &&mut Open| {
            let is_where = open.position == postponed.position || (!has_listed && open.position < postponed.position);
            open.is_watch && open.is_awaited(now) && open.scope == postponed.scope && is_where
        };
        let before: Vec<_> = self.open.values_mut().filter(is_there).collect();
        let is_known = !before.is_empty();
        before.into_iter().for_each(|open| open.is_waited_for(now));
        is_known
    }

    /// A client that lists before it watches again was refused: what it knows it knows for longer.
    pub(super) fn renew(&mut self, scope: &Scope) {
        let now = Instant::now();
        let awaited =
            self.open.values_mut().filter(|open| open.is_watch && *open.scope == *scope && open.is_awaited(now));
        awaited.for_each(|open| open.is_waited_for(now));
    }

    /// The initial events of a watch have ended.
    pub(super) fn is_whole(&mut self, id: u64) {
        self.open.get_mut(&id).into_iter().for_each(Open::is_whole);
    }

    /// A list was answered, to the end or not.
    pub(super) fn listed(&mut self, list: &Open) {
        let now = Instant::now();
        self.forget_lists(now);
        self.lists.push_back((now, list.scope.clone()));
        if self.lists.len() > MAX_LISTS {
            self.lists.pop_front();
            self.lists_evicted += 1;
        }
    }

    /// Forgets those whose watch would have begun by now.
    fn forget_lists(&mut self, now: Instant) {
        while self.lists.front().is_some_and(|(ended, _)| is_old(*ended, now)) {
            self.lists.pop_front();
        }
    }

    /// How many were, for as long as that counts.
    pub(super) fn listed_lately(&self, now: Instant) -> usize {
        self.lists.iter().filter(|(ended, _)| !is_old(*ended, now)).count()
    }

    /// Whether a client may have listed this lately whose watch has yet to begin. So it is where that is not remembered.
    fn was_listed(&mut self, scope: &Scope, now: Instant) -> bool {
        self.forget_lists(now);
        let is_under_way = |open: &Open| !open.is_watch && *open.scope == *scope;
        self.lists.len() >= MAX_LISTS
            || self.lists.iter().any(|(_, listed)| **listed == *scope)
            || self.open.values().any(is_under_way)
    }

    /// Whether a watch that has begun already goes on in place of this one, which ends. What that one has missed its client
    /// is told after it has listed again.
    pub(super) fn is_continued(&mut self, ending: &Open) -> bool {
        let now = Instant::now();
        let continues = |open: &&mut Open| {
            open.is_watch
                && open.ends.is_none()
                && open.scope == ending.scope
                && open.fresh.is_some_and(|begun| now < begun + EARLY)
        };
        let Some(next) = self.open.values_mut().find(continues).filter(|_| ending.is_watch) else { return false };
        next.fresh = None;
        next.resume_from(PreviousWatch::of([ending]).unwrap_or_default(), &self.leaving);
        if !next.missed.is_empty() {
            next.state.cut.cancel();
        }
        true
    }
}
