//! Writes to Leases that the API server refuses until a person does something about it.

use std::{collections::BTreeMap, time::Duration};

use ringside_ring::Moment;

use super::book::LeaseKey;

/// How soon a refused write is tried again, at first and at last.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

#[derive(Debug)]
struct Refusal {
    why: String,
    until: Moment,
    pause: Duration,
}

/// The Leases of which the last write was refused.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<LeaseKey, Refusal>);

impl Refusals {
    /// Returns why the last write to a Lease was refused, if it was.
    pub(super) fn why(&self, key: &LeaseKey) -> Option<&str> {
        self.0.get(key).map(|refusal| refusal.why.as_str())
    }

    /// Returns until when a Lease is left alone, as a write to it was refused.
    pub(super) fn until(&self, key: &LeaseKey) -> Option<Moment> {
        self.0.get(key).map(|refusal| refusal.until)
    }

    /// Takes in how a write to a Lease went; returns whether that is news to people.
    pub(super) fn wrote(&mut self, key: &LeaseKey, refused: Option<String>, now: Moment) -> bool {
        let before = self.0.remove(key);
        let Some(why) = refused else { return before.is_some() };
        let pause = before.as_ref().map_or(PAUSE[0], |before| (before.pause * 2).min(PAUSE[1]));
        let is_news = before.is_none_or(|before| before.why != why);
        self.0.insert(key.clone(), Refusal { why, until: now + pause, pause });
        is_news
    }

    /// Forgets the Leases that are no more.
    pub(super) fn keep_only(&mut self, exists: impl Fn(&LeaseKey) -> bool) {
        self.0.retain(|key, _| exists(key));
    }
}
