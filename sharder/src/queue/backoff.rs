//! How long a key that failed waits until it is tried again.

use std::{collections::HashMap, time::Duration};

use crate::index::Slot;

/// The wait after the first failure; it doubles with each.
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
/// The longest wait after a failure that may pass.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// The keys that failed, until they succeed.
#[derive(Debug, Default)]
pub(super) struct Backoff(HashMap<Slot, Failures>);

#[derive(Debug, Default)]
struct Failures {
    count: u8,
    /// The version that was refused last.
    refused: Option<u64>,
}

impl Backoff {
    /// How long the key waits after one more failure that may pass.
    pub(super) fn failed(&mut self, key: Slot) -> Duration {
        let failures = self.0.entry(key).or_default();
        failures.refused = None;
        failures.next()
    }

    /// How long the key waits after the API server refused this version of its object, and how long another version would. `rest`:
    /// how long after the same version was refused twice, as it will be again.
    pub(super) fn refused(&mut self, key: Slot, (version, rest): (u64, Duration)) -> [Duration; 2] {
        let failures = self.0.entry(key).or_default();
        let wait = failures.next();
        if failures.refused.replace(version) == Some(version) { [rest, wait] } else { [wait, wait] }
    }

    /// Whether another version than this was refused last.
    pub(super) fn refused_another(&self, key: Slot, version: u64) -> bool {
        self.0.get(&key).and_then(|failures| failures.refused).is_some_and(|refused| refused != version)
    }

    /// The key succeeded, or its object is another one now.
    pub(super) fn forget(&mut self, key: Slot) {
        self.0.remove(&key);
    }
}

impl Failures {
    fn next(&mut self) -> Duration {
        let wait = FIRST_BACKOFF.saturating_mul(1 << self.count.min(16)).min(MAX_BACKOFF);
        self.count = self.count.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_of_a_key_doubles_up_to_a_minute_and_begins_anew_after_a_success() {
        let (mut backoff, a, b) = (Backoff::default(), Slot(1), Slot(2));
        let waits: Vec<_> = (0..300).map(|_| backoff.failed(a).as_millis()).collect();
        assert_eq!(waits[..9], [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200]);
        assert!(waits[9..].iter().all(|wait| *wait == 60_000));
        assert_eq!(backoff.failed(b), FIRST_BACKOFF, "another key");
        backoff.forget(a);
        assert_eq!(backoff.failed(a), FIRST_BACKOFF);
    }

    #[test]
    fn what_is_refused_twice_in_the_same_version_waits_for_long() {
        let (mut backoff, a, rest) = (Backoff::default(), Slot(1), Duration::from_secs(300));
        assert_eq!(
            [1, 1, 1].map(|version| backoff.refused(a, (version, rest))[0].as_millis()),
            [200, 300_000, 300_000]
        );
        assert!(backoff.refused_another(a, 2) && !backoff.refused_another(a, 1));
        assert_eq!(backoff.refused(a, (2, rest))[0].as_millis(), 1_600, "another version may be taken");
        assert_eq!(backoff.failed(a).as_millis(), 3_200);
        assert_eq!(backoff.refused(a, (2, rest))[0].as_millis(), 6_400, "it was not refused in between");
        backoff.forget(a);
        assert_eq!(backoff.refused(a, (2, rest)), [FIRST_BACKOFF; 2]);
    }
}
