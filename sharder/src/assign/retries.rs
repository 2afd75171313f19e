//! Objects that could not be written to: each is tried again by itself, so that one which is refused for ever makes no other
//! wait longer.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use super::BATCH;
use crate::target::Target;

/// How soon an object that could not be written to is tried again, at first and at last.
pub(super) const RETRY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// Those that wait, by when their time comes, and how long each has waited last.
#[derive(Default)]
pub(super) struct Retries {
    waiting: BTreeMap<Instant, Vec<Target>>,
    count: usize,
    pauses: HashMap<String, Duration>,
}

impl Retries {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// When the first is to be tried again, if there is one.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.keys().next().copied()
    }

    /// Those whose time has come.
    pub(super) fn take_due(&mut self) -> Vec<Target> {
        let later = self.waiting.split_off(&(Instant::now() + Duration::from_nanos(1)));
        let due: Vec<_> = std::mem::replace(&mut self.waiting, later).into_values().flatten().collect();
        self.count -= due.len();
        due
    }

    /// These could not be written to. Returns whether all of them are kept: there is room for one batch, and the oldest go.
    pub(super) fn add(&mut self, failed: Vec<Target>) -> bool {
        let now = Instant::now();
        for target in failed {
            self.forget(&target.uid);
            let [first, longest] = RETRY;
            let pause = self.pauses.get(&target.uid).map_or(first, |pause| (*pause * 2).min(longest));
            self.pauses.insert(target.uid.clone(), pause);
            self.waiting.entry(now + pause).or_default().push(target);
            self.count += 1;
        }
        let kept = self.count <= BATCH;
        while self.count > BATCH
            && let Some(mut entry) = self.waiting.first_entry()
        {
            if let Some(target) = entry.get_mut().pop() {
                self.pauses.remove(&target.uid);
                self.count -= 1;
            }
            if entry.get().is_empty() {
                entry.remove();
            }
        }
        kept
    }

    /// The longest that one of these has waited.
    pub(super) fn pause(&self, uids: &[String]) -> Duration {
        uids.iter().filter_map(|uid| self.pauses.get(uid)).max().copied().unwrap_or_default()
    }

    /// One that waits already is not to be tried twice.
    fn forget(&mut self, uid: &str) {
        if !self.pauses.contains_key(uid) {
            return;
        }
        self.waiting.values_mut().for_each(|targets| targets.retain(|target| target.uid != uid));
        self.waiting.retain(|_, targets| !targets.is_empty());
        self.count = self.waiting.values().map(Vec::len).sum();
    }

    /// These have been worked on: whatever fails next begins anew.
    pub(super) fn worked<'a>(&mut self, uids: impl Iterator<Item = &'a String>) {
        // One that failed waits to be tried again, or has been: it is one of few.
        if !self.pauses.is_empty() {
            uids.for_each(|uid| {
                self.forget(uid);
                self.pauses.remove(uid);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn target(uid: &str) -> Target {
        Target { uid: uid.to_owned(), ..Target::default() }
    }

    async fn next(retries: &mut Retries) -> Vec<String> {
        tokio::time::sleep_until(retries.due().unwrap()).await;
        retries.take_due().into_iter().map(|target| target.uid).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_refused_for_ever_makes_no_other_wait() {
        let mut retries = Retries::default();
        for _ in 0..8 {
            assert!(retries.add(vec![target("stuck")]));
            assert_eq!(next(&mut retries).await, ["stuck"]);
        }
        assert!(retries.add(vec![target("stuck"), target("once")]));
        let start = Instant::now();
        assert_eq!(next(&mut retries).await, ["once"]);
        assert_eq!(start.elapsed(), RETRY[0]);
        assert_eq!(next(&mut retries).await, ["stuck"]);
        assert_eq!(start.elapsed(), RETRY[1]);
        assert!(retries.is_empty() && retries.due().is_none());
        retries.worked([&"stuck".to_owned()].into_iter());
        retries.add(vec![target("stuck")]);
        let start = Instant::now();
        next(&mut retries).await;
        assert_eq!(start.elapsed(), RETRY[0], "it was written to in between");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_waits_already_is_not_tried_twice() {
        let mut retries = Retries::default();
        for _ in 0..3 {
            assert!(retries.add(vec![target("twice"), target("once")]));
        }
        assert_eq!(retries.count, 2);
        let mut tried = next(&mut retries).await;
        tried.sort_unstable();
        assert_eq!((tried, retries.is_empty()), (vec!["once".to_owned(), "twice".to_owned()], true));
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_no_more_than_a_batch() {
        let mut retries = Retries::default();
        assert!(retries.add((0..BATCH).map(|number| target(&number.to_string())).collect()));
        assert!(!retries.add(vec![target("more")]));
        assert_eq!((retries.count, retries.pauses.len()), (BATCH, BATCH));
        assert_eq!(next(&mut retries).await.len(), BATCH);
    }
}
