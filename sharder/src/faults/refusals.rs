//! Objects of one resource whose labels can't be written, since when, and why.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::lock::Mutex;
use ringside_runtime::explain::{code, explain};
use tokio::time::Instant;

use crate::target::Target;

/// For how long an object is refused until people are told.
pub(crate) const LASTS: Duration = Duration::from_secs(60);
/// Objects that are remembered: beyond that there are many, and which does not matter.
const MAX_OBJECTS: usize = 10_000;
/// Characters that are kept of why an object is refused: there may be thousands.
const MAX_REASON_LENGTH: usize = 512;

/// Objects whose labels the API server has refused to write for [`LASTS`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RefusedObjects {
    pub(crate) count: usize,
    /// The one that has waited for the longest.
    pub(crate) first: Target,
    pub(crate) why: String,
}

/// The objects that failed, by their number in the index; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Refusals(Arc<Mutex<HashMap<u32, Failing>>>);

struct Failing {
    target: Target,
    /// In the API server's words; none while it takes no writes at all.
    why: Option<String>,
    since: Instant,
    /// Whether this was told of this version.
    told: bool,
}

impl Failing {
    fn is_refused(&self) -> bool {
        self.why.is_some() && self.since.elapsed() >= LASTS
    }
}

impl Refusals {
    /// A write to the object failed, or one to something that it controls.
    pub(crate) fn failed(&self, number: u32, target: &Target, child: Option<&str>, error: &kube::Error) {
        let why = is_about_object(error).then(|| {
            let mut why = match child {
                None => explain(error),
                Some(child) => format!("of '{child}' that it controls: {}", explain(error)),
            };
            why.truncate(why.floor_char_boundary(MAX_REASON_LENGTH));
            why
        });
        let failing = &mut *self.0.lock();
        if failing.len() >= MAX_OBJECTS && !failing.contains_key(&number) {
            return;
        }
        let before = failing.remove(&number).filter(|before| before.target.uid == target.uid);
        let is_same = before.as_ref().is_some_and(|before| before.target.resource_version == target.resource_version);
        let told = is_same && before.as_ref().is_some_and(|before| before.told);
        let now = Instant::now();
        let (since, known) = before.map_or((now, None), |before| (before.since, before.why));
        let since = if known.is_some() { since } else { now };
        // While no write is taken it is as it was.
        failing.insert(number, Failing { target: target.clone(), why: why.or(known), since, told });
    }

    /// The object was worked on, or is gone; returns whether it was the last one.
    pub(crate) fn worked(&self, number: u32) -> bool {
        let failing = &mut *self.0.lock();
        failing.remove(&number).is_some() && failing.is_empty()
    }

    /// Forgets the objects that are not there any more; returns whether none is left by that. `is_there` is asked without the lock.
    pub(crate) fn keep(&self, is_there: impl Fn(u32, &str) -> bool) -> bool {
        let known = |(number, failing): (&u32, &Failing)| (*number, failing.target.uid.clone());
        let mut gone: Vec<_> = self.0.lock().iter().map(known).collect();
        gone.retain(|(number, uid)| !is_there(*number, uid));
        let failing = &mut *self.0.lock();
        for (number, uid) in &gone {
            if failing.get(number).is_some_and(|failing| failing.target.uid == *uid) {
                failing.remove(number);
            }
        }
        !gone.is_empty() && failing.is_empty()
    }

    /// What has been refused for long.
    pub(crate) fn refused(&self) -> Option<RefusedObjects> {
        let failing = self.0.lock();
        let refused = || failing.values().filter(|failing| failing.is_refused());
        let first = refused().min_by_key(|failing| (failing.since, &failing.target.uid))?;
        let (first, why) = (first.target.clone(), first.why.clone().unwrap_or_default());
        Some(RefusedObjects { count: refused().count(), first, why })
    }

    /// One of those, and why, if it was not told yet of this version.
    pub(crate) fn take_untold(&self) -> Option<(Target, String)> {
        let mut failing = self.0.lock();
        let untold = failing.values_mut().find(|failing| failing.is_refused() && !failing.told)?;
        untold.told = true;
        Some((untold.target.clone(), untold.why.clone()?))
    }
}

/// Whether it is about what was written: no answer, or one that asks for a pause, is not.
fn is_about_object(error: &kube::Error) -> bool {
    code(error).is_some_and(|code| !matches!(code, 429 | 502..=504))
}
