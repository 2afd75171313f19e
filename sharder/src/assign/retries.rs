//! Objects that could not be written to: each is tried again by itself, after a pause that grows, whatever the watch shows.
//!
//! One that is refused for ever makes no other wait, nor do thousands. They outlive the worker: its successor does not begin
//! with them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::explain::{code, explain};
use tokio::time::Instant;

use super::{BATCH, tasks::version, write::is_undone};
use crate::target::Target;

/// How soon an object that could not be written to is tried again, at first and at last.
pub(super) const RETRY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// How soon an unchanged object that was refused twice is tried again: what refuses it may be mended.
pub(super) const SYNC: Duration = Duration::from_secs(300);
/// Objects that wait at most: memory must not grow with the objects. A new list shows the others.
pub(super) const CAPACITY: usize = 5_000;

/// For how long an object is refused until people are told.
pub(crate) const LASTS: Duration = Duration::from_secs(60);
/// Characters that are kept of why an object is refused: there may be thousands.
const MAX_REASON_LENGTH: usize = 512;

/// How the write of an object failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// It may work in a moment.
    Passing,
    /// It will be refused, or taken back, for as long as the object is the same.
    Refused,
}

/// What came of the last attempt at an object.
struct Attempt {
    /// None where the object itself was not to blame: the next version of a child is shown by no watch.
    failure: Option<Failure>,
    /// In the API server's words; none while it takes no writes at all.
    why: Option<String>,
}

/// Objects whose labels the API server has refused to write for [`LASTS`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RefusedObjects {
    pub(crate) count: usize,
    /// The one that has waited for the longest.
    pub(crate) first: Target,
    pub(crate) why: String,
}

/// The objects of one resource that wait; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Retries(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    waiting: HashMap<String, Waiting>,
    due: BTreeSet<(Instant, String)>,
    /// What is about to be added, by uid.
    failed: HashMap<String, Attempt>,
}

struct Waiting {
    target: Target,
    /// None where it waits for something else than a write.
    failure: Option<Failure>,
    /// Why it is refused, if it is, and since when.
    why: Option<String>,
    since: Instant,
    /// Whether this was told of this version.
    told: bool,
    pause: Duration,
    /// When the pause is over.
    over: Instant,
    /// When it is tried again; none while it is.
    due: Option<Instant>,
}

impl Retries {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().waiting.is_empty()
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.0.lock().waiting.contains_key(uid)
    }

    /// Whether it is not being tried right now.
    pub(super) fn rests(&self, uid: &str) -> bool {
        self.0.lock().waiting.get(uid).is_some_and(|waiting| waiting.due.is_some())
    }

    /// When the first is to be tried again, if there is one.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.lock().due.first().map(|(due, _)| *due)
    }

    /// The longest pause. It grows with those that wait, so that no more than a batch is tried within [`RETRY`].
    pub(super) fn longest(&self) -> Duration {
        self.0.lock().longest()
    }

    /// Those whose time has come, as many as are worked on together with others.
    pub(super) fn take_due(&self) -> Vec<Target> {
        let (state, now) = (&mut *self.0.lock(), Instant::now());
        let mut taken = Vec::new();
        while taken.len() < BATCH / 4
            && state.due.first().is_some_and(|(due, _)| *due <= now)
            && let Some((_, uid)) = state.due.pop_first()
        {
            taken.extend(state.waiting.get_mut(&uid).map(|waiting| {
                waiting.due = None;
                waiting.target.clone()
            }));
        }
        taken
    }

    /// A write to the object failed, which is added when its batch ends.
    pub(super) fn failed(&self, target: &Target, error: &kube::Error) {
        let is_refused = is_undone(error) || matches!(code(error), Some(400 | 413 | 422));
        let failure = Some(if is_refused { Failure::Refused } else { Failure::Passing });
        self.note(target, Attempt { failure, why: is_about_object(error).then(|| explain(error)) });
    }

    /// A write to something that it controls failed, which is to be moved first.
    pub(super) fn child_failed(&self, target: &Target, child: &GroupResource, error: &kube::Error) {
        let why = is_about_object(error).then(|| format!("of '{child}' that it controls: {}", explain(error)));
        self.note(target, Attempt { failure: None, why });
    }

    fn note(&self, target: &Target, mut attempt: Attempt) {
        if let Some(why) = &mut attempt.why {
            why.truncate(why.floor_char_boundary(MAX_REASON_LENGTH));
        }
        let failed = &mut self.0.lock().failed;
        if failed.len() < CAPACITY {
            failed.insert(target.uid.clone(), attempt);
        }
    }

    /// What has been refused for long.
    pub(crate) fn refused(&self) -> Option<RefusedObjects> {
        let state = self.0.lock();
        let first = state.refused().min_by_key(|waiting| (waiting.since, &waiting.target.uid))?;
        let (first, why) = (first.target.clone(), first.why.clone().unwrap_or_default());
        Some(RefusedObjects { count: state.refused().count(), first, why })
    }

    /// One of those, and why, if it was not told yet of this version.
    pub(crate) fn take_untold(&self) -> Option<(Target, String)> {
        let mut state = self.0.lock();
        let untold = state.waiting.values_mut().find(|waiting| waiting.is_refused() && !waiting.told)?;
        untold.told = true;
        Some((untold.target.clone(), untold.why.clone()?))
    }

    /// These were not done; those that failed wait whatever is shown of them. `wait` says for how long nothing can come of
    /// one. Returns whether there was room for all.
    pub(super) fn add(&self, again: Vec<Target>, wait: impl Fn(&Target) -> Duration) -> bool {
        let (state, now, mut kept) = (&mut *self.0.lock(), Instant::now(), true);
        for target in again {
            let (attempt, before) = (state.failed.remove(&target.uid), state.remove(&target.uid));
            let failure = attempt.as_ref().and_then(|attempt| attempt.failure);
            if before.is_none() && state.waiting.len() >= CAPACITY {
                kept = false;
                continue;
            }
            let longest = if failure == Some(Failure::Refused) { SYNC } else { state.longest() };
            let pause = before.as_ref().map_or(RETRY[0], |before| (before.pause * 2).min(longest));
            let is_same = before.as_ref().is_some_and(|before| version(&before.target) == version(&target));
            let is_final = failure == Some(Failure::Refused)
                && is_same
                && before.as_ref().is_some_and(|before| before.failure == failure);
            let told = is_same && before.as_ref().is_some_and(|before| before.told);
            let (since, known) = before.map_or((now, None), |before| (before.since, before.why));
            let since = if known.is_some() { since } else { now };
            // While no write is taken it is as it was.
            let why = attempt.and_then(|attempt| attempt.why.or(known));
            let (over, due) = (now + pause, now + if is_final { SYNC } else { pause.max(wait(&target)) });
            state.due.insert((due, target.uid.clone()));
            state
                .waiting
                .insert(target.uid.clone(), Waiting { target, failure, why, since, told, pause, over, due: Some(due) });
        }
        kept
    }

    /// Whether an object that is shown is to be worked on now. One that failed is not before its time, which a new version
    /// brings nearer.
    pub(super) fn admit(&self, shown: &Target) -> bool {
        let State { waiting, due: all, .. } = &mut *self.0.lock();
        let Some(waiting) = waiting.get_mut(&shown.uid) else { return true };
        let (Some(mut due), Some(_)) = (waiting.due, waiting.failure) else { return true };
        if version(shown) > version(&waiting.target) && waiting.over < due {
            all.remove(&(due, shown.uid.clone()));
            due = waiting.over;
            all.insert((due, shown.uid.clone()));
            waiting.due = Some(due);
        }
        let is_due = due <= Instant::now();
        if is_due {
            all.remove(&(due, shown.uid.clone()));
            waiting.due = None;
        }
        is_due
    }

    /// The longest that one of these has waited, as far as it matters.
    pub(super) fn pause(&self, uids: &[String]) -> Duration {
        let waiting = &self.0.lock().waiting;
        let pauses = uids.iter().filter_map(|uid| waiting.get(uid)).map(|waiting| waiting.pause);
        pauses.max().unwrap_or_default().min(RETRY[1])
    }

    /// These have been worked on: whatever fails next begins anew.
    pub(super) fn worked<'a>(&self, uids: impl Iterator<Item = &'a String>) {
        let state = &mut *self.0.lock();
        uids.for_each(|uid| drop(state.remove(uid)));
    }

    /// Those that the worker before had begun with wait again.
    pub(super) fn resume(&self) {
        let State { waiting, due, .. } = &mut *self.0.lock();
        for (uid, waiting) in waiting.iter_mut().filter(|(_, waiting)| waiting.due.is_none()) {
            let over = Instant::now() + waiting.pause;
            waiting.due = Some(over);
            due.insert((over, uid.clone()));
        }
    }
}

impl Waiting {
    fn is_refused(&self) -> bool {
        self.why.is_some() && self.since.elapsed() >= LASTS
    }
}

/// Whether it is about what was written: no answer, or one that asks for a pause, is not.
fn is_about_object(error: &kube::Error) -> bool {
    code(error).is_some_and(|code| !matches!(code, 429 | 502..=504))
}

impl State {
    fn refused(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.values().filter(|waiting| waiting.is_refused())
    }

    fn longest(&self) -> Duration {
        RETRY[1] * u32::try_from(self.waiting.len().div_ceil(BATCH)).unwrap_or(u32::MAX).max(1)
    }

    fn remove(&mut self, uid: &str) -> Option<Waiting> {
        let waiting = self.waiting.remove(uid)?;
        if let Some(due) = waiting.due {
            self.due.remove(&(due, uid.to_owned()));
        }
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn target(uid: &str) -> Target {
        at(uid, 1)
    }

    fn at(uid: &str, version: u32) -> Target {
        Target { uid: uid.to_owned(), resource_version: version.to_string(), ..Target::default() }
    }

    fn add(retries: &Retries, again: Vec<Target>, failure: Failure) -> bool {
        let code = if failure == Failure::Refused { 422 } else { 403 };
        let error = kube::Error::Api(kube::core::Status::failure("no", "no").with_code(code).boxed());
        again.iter().for_each(|target| retries.failed(target, &error));
        retries.add(again, |_| Duration::ZERO)
    }

    async fn next(retries: &Retries) -> Vec<String> {
        tokio::time::sleep_until(retries.due().unwrap()).await;
        retries.take_due().into_iter().map(|target| target.uid).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_refused_for_ever_makes_no_other_wait() {
        let retries = Retries::default();
        for _ in 0..8 {
            assert!(add(&retries, vec![target("stuck")], Failure::Passing));
            assert_eq!(next(&retries).await, ["stuck"]);
        }
        assert!(add(&retries, vec![target("stuck"), target("once")], Failure::Passing));
        let start = Instant::now();
        assert_eq!(next(&retries).await, ["once"]);
        assert_eq!(start.elapsed(), RETRY[0]);
        assert_eq!(next(&retries).await, ["stuck"]);
        assert_eq!(start.elapsed(), RETRY[1]);
        assert!(retries.due().is_none());
        retries.worked([&"stuck".to_owned()].into_iter());
        add(&retries, vec![target("stuck")], Failure::Passing);
        let start = Instant::now();
        next(&retries).await;
        assert_eq!(start.elapsed(), RETRY[0], "it was written to in between");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_refused_twice_at_one_version_waits_for_a_new_one() {
        for (changes, waits) in [(true, RETRY[0] * 2), (false, SYNC)] {
            let (retries, start) = (Retries::default(), Instant::now());
            for _ in 0..2 {
                add(&retries, vec![at("o", 1)], Failure::Refused);
            }
            assert!(!retries.admit(&at("o", 1 + u32::from(changes))), "not before its pause is over");
            assert!(retries.rests("o"));
            assert_eq!(next(&retries).await, ["o"]);
            assert!(!retries.rests("o"), "what is shown now may be what its own write made of it");
            assert_eq!(start.elapsed(), waits, "changes: {changes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_back_each_time_waits_longer_and_longer_also_when_that_makes_new_versions() {
        let (retries, start, mut tries) = (Retries::default(), Instant::now(), 0);
        while start.elapsed() < SYNC * 2 {
            tries += 1;
            add(&retries, vec![at("o", tries)], Failure::Refused);
            assert!(!retries.admit(&at("o", tries + 1)), "its own write is shown");
            next(&retries).await;
        }
        assert!(tries < 12, "{tries}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_something_else_than_a_write_is_taken_up_when_it_is_shown() {
        let retries = Retries::default();
        retries.add(vec![at("o", 1)], |_| Duration::ZERO);
        assert!(retries.admit(&at("o", 1)));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_waits_already_is_not_tried_twice() {
        let retries = Retries::default();
        for _ in 0..3 {
            assert!(add(&retries, vec![target("twice"), target("once")], Failure::Passing));
        }
        let mut tried = next(&retries).await;
        tried.sort_unstable();
        assert_eq!((tried, retries.due()), (vec!["once".to_owned(), "twice".to_owned()], None));
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_bounded_and_the_more_there_are_the_longer_each_waits() {
        let retries = Retries::default();
        let all = || (0..CAPACITY).map(|number| target(&number.to_string())).collect();
        assert!(add(&retries, all(), Failure::Passing));
        assert!(!add(&retries, vec![target("more")], Failure::Passing));
        assert!(!retries.contains("more") && retries.admit(&target("more")));
        for _ in 0..12 {
            add(&retries, all(), Failure::Passing);
        }
        let start = Instant::now();
        next(&retries).await;
        assert_eq!(start.elapsed(), SYNC, "no more than a batch within the longest pause of one");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_begun_by_a_worker_that_ended_waits_again() {
        let retries = Retries::default();
        add(&retries, vec![target("o")], Failure::Passing);
        next(&retries).await;
        assert_eq!(retries.due(), None);
        retries.resume();
        assert_eq!(next(&retries).await, ["o"]);
    }

    fn refuse(retries: &Retries, target: Target, code: u16) {
        let error = kube::Error::Api(kube::core::Status::failure("too large", "").with_code(code).boxed());
        retries.failed(&target, &error);
        retries.add(vec![target], |_| Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_for_a_minute_is_told_until_it_was_worked_on() {
        for code in [400, 403, 409, 413, 422, 500] {
            let retries = Retries::default();
            refuse(&retries, at("first", 1), code);
            tokio::time::advance(LASTS / 2).await;
            refuse(&retries, at("first", 1), code);
            refuse(&retries, at("second", 1), code);
            assert_eq!(retries.refused(), None, "it may pass");
            tokio::time::advance(LASTS / 2).await;
            let told = |told: Option<RefusedObjects>| told.map(|it| (it.count, it.first.uid, it.why));
            let why = if code == 403 {
                "missing permission: too large".to_owned()
            } else {
                format!("the API server answered {code}: too large")
            };
            assert_eq!(told(retries.refused()), Some((1, "first".to_owned(), why.clone())));
            tokio::time::advance(LASTS / 2).await;
            assert_eq!(told(retries.refused()), Some((2, "first".to_owned(), why)));
            retries.worked(["first".to_owned(), "second".to_owned()].iter());
            assert_eq!(retries.refused(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_away_refuses_no_object_and_mends_none() {
        let retries = Retries::default();
        refuse(&retries, at("waits", 1), 503);
        refuse(&retries, at("refused", 1), 422);
        tokio::time::advance(LASTS).await;
        for uid in ["waits", "refused"] {
            refuse(&retries, at(uid, 1), 503);
        }
        assert_eq!(retries.refused().map(|it| (it.count, it.first.uid)), Some((1, "refused".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn each_version_that_is_refused_is_told_once() {
        let retries = Retries::default();
        refuse(&retries, at("o", 1), 422);
        assert_eq!(retries.take_untold(), None);
        tokio::time::advance(LASTS).await;
        for version in [1, 2] {
            refuse(&retries, at("o", version), 422);
            assert_eq!(retries.take_untold().map(|(target, _)| target), Some(at("o", version)));
            assert_eq!(retries.take_untold(), None);
        }
    }
}
