//! Whether the controller may not know of what there is, as its watch was broken off and is not back.
//!
//! An object that comes to a shard has its children already. A controller whose watch on the children is there sees them before
//! their owner. One whose watches of them were broken off (the proxy had lost its Lease, an API server ended) gets them back one
//! after the other: client-go waits up to a minute for each. If the owners' is back first, owners seem to have no children, and the
//! controller would create them a second time. What it creates under owners is held until the watch is back, and refused then:
//! it has to look again. A watch that the client closed itself, or that lasted as long as it had asked for, is not broken off;
//! and one that is not back a minute later, or a minute after the Lease is held again, is waited for no more, also after the next
//! gap.
//!
//! Where another proxy was there before (it was killed, say), and the controller has run on, it is unknown which
//! watches it had: it is taken to have had one on each resource. One that has none has to do without creates under
//! owners for that minute, also one that began since: that it has a newer token does not prove that.

use std::{sync::atomic::Ordering, time::Duration};

use ringside_ring::cluster_ring::GroupResource;
use tokio::time::{Instant, sleep_until};

use super::{
    Fields, TRIES_AGAIN, Views,
    registry::{OfResource, Open},
};

/// How soon a watch that is continued is nothing to speak of: without the proxy a client would notice as much of it.
pub(super) const UNNOTICED: Duration = Duration::from_secs(1);
/// How long after a watch is back its client may have yet to take in what came meanwhile.
pub(super) const SETTLE_TIME: Duration = Duration::from_millis(500);
/// The longest that a request is held. Clients give theirs 10 s and more.
pub(super) const HOLD_TIMEOUT: Duration = Duration::from_secs(5);

/// That a watch was broken off.
#[derive(Clone, Copy, Debug)]
pub(super) struct BrokenWatch {
    since: Instant,
    /// Since when another one goes on in its place: the one that this is noted of.
    back: Option<Instant>,
}

/// What has to be waited for.
struct Missing {
    until: Instant,
    /// Whether more may have come meanwhile than a client that watches would have yet to take in.
    is_long: bool,
}

impl BrokenWatch {
    /// Marks the watch as back, as far as is known.
    pub(super) fn is_over(self) -> Self {
        Self { back: Some(Instant::now()), ..self }
    }

    /// Until when it is waited for, by one that can watch since then.
    fn given_up(self, watchable: Instant) -> Instant {
        self.since.max(watchable) + TRIES_AGAIN
    }

    /// Whether it has to be waited for; `is_unplaced` says that its initial events are on their way.
    fn missing(self, is_unplaced: bool, now: Instant, watchable: Instant) -> Option<Missing> {
        let Self { since, back } = self;
        let (given_up, is_long) = (self.given_up(watchable), back.unwrap_or(now) >= since + UNNOTICED);
        if now >= given_up {
            return None;
        }
        let (is_missing, until) = match back {
            None => (true, given_up),
            Some(_) if is_unplaced => (is_long, given_up),
            Some(back) => (is_long && now < back + SETTLE_TIME, back + SETTLE_TIME),
        };
        is_missing.then_some(Missing { until, is_long })
    }
}

impl Views {
    /// The controller was there before this proxy: what it watches was broken off with the one before.
    pub fn follow_others(&self) {
        let mut registry = self.0.lock();
        if registry.unknown.is_none() {
            // It is unknown for how long there was no proxy: long enough to be noticed.
            let since = Instant::now().checked_sub(UNNOTICED).unwrap_or_else(Instant::now);
            registry.unknown = Some(BrokenWatch { since, back: None });
        }
    }

    /// The Lease, held since `began`, is lost. What was waited for in vain as long as it was held is not waited for again.
    pub fn term_over(&self, began: Instant) {
        let (mut registry, now) = (self.0.lock(), Instant::now());
        let is_given_up = |it: &mut BrokenWatch| now >= it.given_up(began);
        registry.unknown.take_if(is_given_up);
        for open in registry.resources.values_mut().flat_map(|of| of.open.values_mut()) {
            open.broken_watches.take_if(is_given_up);
        }
    }

    /// Waits until the controller's watches on a resource are there, for 5 s at most. Returns whether it may not know of
    /// objects of that namespace that were there before. It could watch `since` then: no watch is back before that.
    pub async fn interrupted(&self, resource: &GroupResource, namespace: Option<&str>, since: Instant) -> bool {
        let (patient, mut is_long) = (Instant::now() + HOLD_TIMEOUT, false);
        loop {
            let (missing, changed) = {
                let mut registry = self.0.lock();
                let unknown = registry.unknown;
                let of = registry.of(resource);
                (of.missing(unknown, namespace, since), of.watched.clone().notified_owned())
            };
            let Some(missing) = missing else { return is_long };
            is_long |= missing.is_long;
            if Instant::now() >= patient {
                return true;
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(missing.until.min(patient)) => {}
            }
        }
    }
}

impl OfResource {
    fn missing(&self, unknown: Option<BrokenWatch>, namespace: Option<&str>, watchable: Instant) -> Option<Missing> {
        let now = Instant::now();
        let is_of = |open: &&Open| {
            let its = open.scope.namespace.as_deref();
            its.is_none_or(|its| Some(its) == namespace) && open.scope.fields == Fields::default()
        };
        let is_there = |open: &&Open| is_of(open) && open.is_watch && open.state.begun.load(Ordering::Acquire);
        let unknown = unknown.filter(|_| !self.open.values().any(|open| is_there(&open)));
        let unknown = unknown.and_then(|it| it.missing(false, now, watchable));
        let missing = self.open.values().filter(is_of).filter_map(|open| open.missing(now, watchable));
        missing.chain(unknown).reduce(|one, another| Missing {
            until: one.until.min(another.until),
            is_long: one.is_long || another.is_long,
        })
    }

    /// A watch begins in place of one of these, which is forgotten. Of several that were broken off one is back, and it
    /// is unknown which: the others are waited for.
    pub(super) fn reconnected(&mut self, before: &[u64], forgotten: Option<u64>) -> Option<BrokenWatch> {
        let since = |id: &u64| Some((self.open.get(id)?.broken_watches?.since, *id));
        let (since, id) = before.iter().filter_map(since).min()?;
        let others = self.open.get_mut(&forgotten?)?.broken_watches.take().filter(|_| forgotten != Some(id));
        self.open.get_mut(&id)?.broken_watches = others;
        Some(BrokenWatch { since, back: Some(Instant::now()) })
    }
}

impl Open {
    /// It ends, or was broken off. What another one before had missed its client has yet to see, if it was not back for
    /// long; what is waited for no more is broken off again.
    pub(super) fn interrupt(&mut self, is_broken_off: bool) {
        let now = Instant::now();
        let is_missed = |it: &BrokenWatch| it.back.is_some_and(|back| !self.has_taken_in(back, now));
        let is_waited_for = |it: &BrokenWatch| now < it.given_up(it.since);
        let before = self.broken_watches.filter(is_missed).filter(is_waited_for).map(|it| it.since);
        let since = before.or_else(|| is_broken_off.then_some(now));
        self.broken_watches = since.map(|since| BrokenWatch { since, back: None });
    }

    /// Its initial events have ended: from now on its client takes them in.
    pub(super) fn is_whole(&mut self) {
        let back = self.broken_watches.as_mut().filter(|_| self.replaces).and_then(|it| it.back.as_mut());
        back.into_iter().for_each(|back| *back = Instant::now());
    }

    fn missing(&self, now: Instant, watchable: Instant) -> Option<Missing> {
        self.broken_watches?.missing(self.is_unplaced(), now, watchable)
    }

    fn has_taken_in(&self, back: Instant, now: Instant) -> bool {
        !self.is_unplaced() && now >= back + SETTLE_TIME
    }

    /// Its initial events, which a bookmark ends, are on their way.
    fn is_unplaced(&self) -> bool {
        self.replaces && self.position.is_none()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::FutureExt;
    use tokio::time::advance;

    use super::*;
    use crate::views::{
        Kind, Scope, View,
        fixtures::{at, scope, watch},
    };

    const SHORT: Duration = Duration::from_millis(900);

    fn parts() -> GroupResource {
        GroupResource { group: "x.io".into(), resource: "parts".into() }
    }

    fn break_off(view: View) {
        view.broken_off();
        drop(view);
    }

    fn broken() -> Views {
        let views = Views::new();
        break_off(watch(&views, parts(), Some(5)));
        views
    }

    fn here(views: &Views) -> impl Future<Output = bool> {
        let views = views.clone();
        let since = Instant::now() - Duration::from_secs(3600);
        async move { views.interrupted(&parts(), Some("mine"), since).await }
    }

    #[tokio::test(start_paused = true)]
    async fn who_creates_waits_for_the_watch_and_then_for_what_it_may_have_missed() {
        let views = broken();
        let mut creates = Box::pin(here(&views));
        advance(2 * UNNOTICED).await;
        assert_eq!((&mut creates).now_or_never(), None);
        let _back = watch(&views, parts(), Some(5));
        assert_eq!((&mut creates).now_or_never(), None, "events are on their way");
        advance(SETTLE_TIME).await;
        assert_eq!(creates.now_or_never(), Some(true), "it looked before they came");
        assert_eq!(here(&views).now_or_never(), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_back_at_once_refuses_nothing() {
        let views = broken();
        let mut creates = Box::pin(here(&views));
        advance(SHORT).await;
        assert_eq!((&mut creates).now_or_never(), None);
        let _back = watch(&views, parts(), Some(5));
        assert_eq!(creates.now_or_never(), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_longer_than_clients_do_nor_for_a_watch_that_does_not_come() {
        let (views, began) = (broken(), Instant::now());
        assert!(here(&views).await);
        assert_eq!(began.elapsed(), HOLD_TIMEOUT);
        advance(TRIES_AGAIN).await;
        assert_eq!(here(&views).now_or_never(), Some(false), "its client does without");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_waited_for_from_when_it_can_be_back() {
        let views = broken();
        // The Lease was away for so long.
        advance(2 * TRIES_AGAIN).await;
        let again = Instant::now();
        let create = || {
            let views = views.clone();
            async move { views.interrupted(&parts(), Some("mine"), again).await }
        };
        advance(TRIES_AGAIN - HOLD_TIMEOUT / 2).await;
        assert_eq!(create().now_or_never(), None);
        assert!(create().await, "it has to look again");
        assert_eq!(create().now_or_never(), Some(false), "its client does without");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_nobody_waits_for_to_its_end_holds_nobody_for_ever() {
        let views = broken();
        advance(2 * UNNOTICED).await;
        let replaces = views.open(scope(parts(), None), Kind::StreamingList).unwrap();
        replaces.begun();
        drop(replaces);
        assert_eq!(here(&views).now_or_never(), None, "its client may try again");
        advance(TRIES_AGAIN).await;
        assert_eq!(here(&views).now_or_never(), Some(false));
        // Nor does a watch that goes on to be refused.
        let views = broken();
        for _ in 0..7 {
            views.open(scope(parts(), None), Kind::Watch(Some(at(5)))).unwrap().postponed();
            advance(TRIES_AGAIN / 6).await;
        }
        assert_eq!(here(&views).now_or_never(), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_taken_in_is_over_for_all_watches_to_come() {
        let views = broken();
        advance(2 * UNNOTICED).await;
        let mut watches = watch(&views, parts(), Some(5));
        for _ in 0..3 {
            advance(2 * SETTLE_TIME).await;
            assert_eq!(here(&views).now_or_never(), Some(false));
            drop(watches);
            assert_eq!(here(&views).now_or_never(), Some(false), "its client had asked for no more");
            watches = watch(&views, parts(), Some(5));
            assert_eq!(here(&views).now_or_never(), Some(false));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_missed_is_not_forgotten_with_a_watch_that_ends_at_once() {
        let views = broken();
        advance(SHORT).await;
        // "Too old resource version", say: its client has yet to list.
        break_off(watch(&views, parts(), Some(5)));
        advance(SHORT).await;
        let replaces = views.open(scope(parts(), None), Kind::StreamingList).unwrap();
        replaces.begun();
        let mut creates = Box::pin(here(&views));
        advance(2 * SETTLE_TIME).await;
        assert_eq!((&mut creates).now_or_never(), None, "it lists");
        replaces.advance(&at(9));
        assert_eq!((&mut creates).now_or_never(), None, "it has just got all of it");
        advance(SETTLE_TIME).await;
        assert_eq!(creates.now_or_never(), Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_broken_off_just_after_its_minute_is_waited_for_anew() {
        let views = broken();
        advance(TRIES_AGAIN).await;
        break_off(watch(&views, parts(), Some(5)));
        advance(2 * UNNOTICED).await;
        assert_eq!(here(&views).now_or_never(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_its_client_ended_and_what_shows_something_else_holds_nobody() {
        let views = Views::new();
        drop(watch(&views, parts(), Some(5)));
        let other = GroupResource { resource: "things".into(), ..parts() };
        let one = Scope { fields: Fields::parse("metadata.name=a"), ..scope(parts(), None) };
        for scope in [scope(other, None), scope(parts(), Some("other")), one] {
            let view = views.open(scope, Kind::Watch(Some(at(5)))).unwrap();
            view.begun();
            break_off(view);
        }
        // One that the API server never began.
        break_off(views.open(scope(parts(), None), Kind::Watch(Some(at(5)))).unwrap());
        advance(2 * UNNOTICED).await;
        assert_eq!(here(&views).now_or_never(), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_controller_that_was_there_before_nobody_knows_what_it_watched() {
        let views = Views::new();
        assert_eq!(here(&views).now_or_never(), Some(false), "it has begun since");
        views.follow_others();
        // Of things it has a watch, of parts none; its lists say nothing.
        let things = GroupResource { resource: "things".into(), ..parts() };
        let _things = watch(&views, things, Some(5));
        let _list = views.open(scope(parts(), None), Kind::List).unwrap();
        let _asked = views.open(scope(parts(), None), Kind::Watch(Some(at(5)))).unwrap();
        let mut creates = Box::pin(here(&views));
        assert_eq!((&mut creates).now_or_never(), None);
        let back = watch(&views, parts(), Some(5));
        assert_eq!((&mut creates).now_or_never(), None, "events are on their way");
        advance(SETTLE_TIME).await;
        assert_eq!(creates.now_or_never(), Some(true), "it looked before they came");
        assert_eq!(here(&views).now_or_never(), Some(false));
        drop(back);
        let _again = watch(&views, parts(), Some(5));
        assert_eq!(here(&views).now_or_never(), Some(false), "it goes on in place of one that is known");
        // However often it shows.
        advance(TRIES_AGAIN).await;
        views.follow_others();
        let _later = watch(&views, parts(), Some(5));
        assert_eq!(here(&views).now_or_never(), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn who_watches_nothing_does_without_for_a_minute() {
        let views = Views::new();
        // Known before.
        assert_eq!(here(&views).now_or_never(), Some(false));
        views.follow_others();
        assert!(here(&views).await);
        advance(TRIES_AGAIN).await;
        assert_eq!(here(&views).now_or_never(), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_watches_that_were_broken_off_both_have_to_be_back() {
        let views = Views::new();
        let both = [watch(&views, parts(), Some(5)), watch(&views, parts(), Some(5))];
        advance(UNNOTICED).await;
        both.into_iter().for_each(break_off);
        advance(2 * UNNOTICED).await;
        let _one = watch(&views, parts(), Some(5));
        advance(SETTLE_TIME).await;
        assert_eq!(here(&views).now_or_never(), None);
        let _other = watch(&views, parts(), Some(5));
        advance(SETTLE_TIME).await;
        assert_eq!(here(&views).now_or_never(), Some(false));
    }
}
