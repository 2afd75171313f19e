//! Objects of one resource whose labels can't be written, since when, and why.

use std::{collections::HashMap, time::Duration};

use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::explain::{code, explain};
use tokio::time::Instant;

use super::SENTENCES;
use crate::{api_error::lasts, doing::RefusedNow, target::Target};

/// For how long an object is refused until people are told.
pub(super) const LASTS: Duration = Duration::from_secs(60);
/// Objects that are remembered: beyond that there are many, and which does not matter.
const MAX_OBJECTS: usize = 10_000;
/// Characters that are kept of why an object is refused: there may be thousands.
const MAX_REASON_LENGTH: usize = 512;

/// The objects that failed, by their number in the index.
#[derive(Default)]
pub(super) struct Refusals {
    failing: HashMap<u32, Failing>,
    /// The sentence that is told of them, and since when.
    told: Option<(String, Instant)>,
}

struct Failing {
    target: Target,
    /// In the API server's words; none while it takes no writes at all.
    why: Option<String>,
    since: Instant,
    /// Whether it will not pass by itself.
    lasts: bool,
    /// Whether an Event told of this version.
    told: bool,
}

impl Failing {
    fn has_lasted(&self) -> bool {
        self.why.is_some() && self.since.elapsed() >= LASTS
    }
}

impl Refusals {
    /// A read or a write of the object failed, or a write to something that it controls.
    pub(super) fn failed(
        &mut self,
        (number, target): (u32, &Target),
        child: Option<&GroupResource>,
        error: &kube::Error,
    ) {
        let why = is_about_object(error).then(|| {
            let mut why = match child {
                None => explain(error),
                Some(child) => format!("of '{child}' that it controls: {}", explain(error)),
            };
            why.truncate(why.floor_char_boundary(MAX_REASON_LENGTH));
            why
        });
        if self.failing.len() >= MAX_OBJECTS && !self.failing.contains_key(&number) {
            return;
        }
        let known = self.failing.remove(&number).filter(|known| known.target.uid == target.uid && known.why.is_some());
        let is_told = |known: &Failing| known.told && known.target.resource_version == target.resource_version;
        let told = known.as_ref().is_some_and(is_told);
        let (since, known) =
            known.map_or((Instant::now(), (None, false)), |known| (known.since, (known.why, known.lasts)));
        // While no write is taken it is as it was.
        let (why, lasts) = why.map_or(known, |why| (Some(why), lasts(error)));
        self.failing.insert(number, Failing { target: target.clone(), why, since, lasts, told });
    }

    /// The object was worked on, or is gone.
    pub(super) fn worked(&mut self, number: u32) {
        self.failing.remove(&number);
    }

    /// The objects that failed, by number and uid.
    pub(super) fn known(&self) -> impl Iterator<Item = (u32, String)> {
        self.failing.iter().map(|(number, failing)| (*number, failing.target.uid.clone()))
    }

    /// The object of this uid is gone.
    pub(super) fn forget(&mut self, number: u32, uid: &str) {
        if self.failing.get(&number).is_some_and(|failing| failing.target.uid == uid) {
            self.failing.remove(&number);
        }
    }

    /// What is refused for good, or has been for long.
    pub(super) fn refused(&self) -> Option<RefusedNow> {
        let refused = || self.failing.values().filter(|failing| failing.lasts || failing.has_lasted());
        let first = refused().min_by_key(|failing| (failing.since, &failing.target.uid))?;
        let why = first.why.clone().unwrap_or_default();
        Some(RefusedNow { objects: refused().count(), first: first.target.place(), why })
    }

    /// The same as a sentence, which stays as it is for a while.
    pub(super) fn sentence(&mut self, resource: &GroupResource) -> Option<String> {
        let refused = self.refused();
        self.told.take_if(|(_, at)| refused.is_none() || at.elapsed() >= SENTENCES);
        let RefusedNow { objects: count, first, why } = refused?;
        let now = || {
            let which = format!("{count} of them, such as '{first}'");
            (format!("objects of '{resource}' can't be labelled, {which}: {why}"), Instant::now())
        };
        Some(self.told.get_or_insert_with(now).0.clone())
    }

    /// An object that has been refused for long, and why, if no Event told of this version.
    pub(super) fn take_untold(&mut self) -> Option<(Target, String)> {
        let untold = self.failing.values_mut().find(|failing| failing.has_lasted() && !failing.told)?;
        untold.told = true;
        Some((untold.target.clone(), untold.why.clone()?))
    }
}

/// Whether it is about what was written: no answer, or one that asks for a pause, is not.
fn is_about_object(error: &kube::Error) -> bool {
    code(error).is_some_and(|code| !matches!(code, 429 | 502..=504))
}
