//! The grace: how long nothing was sent about an object before its shard releases it.
//!
//! An addition of ours to the contract, optional on both sides. A shard says on its Lease what it keeps to, and the sharder
//! repeats that in the drain's value, behind the id of the move. So an acknowledgement says that the shard created nothing
//! under the object for so long, whatever the shard was restarted with meanwhile: who finds a grace in a drain keeps to it.

use std::{fmt, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;

use crate::labels::LEASE_GRACE;

/// A time in whole milliseconds, more than none; as text it is a duration as Go writes them, such as `1500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grace(u32);

/// What the value of a drain label looks like that carries a grace, as a regular expression (RE2) for admission policies: what
/// [`Grace::asked`] reads, and numbers that are too large for it.
pub const CARRIES_GRACE: &str = "^[^.]*[.]0*[1-9][0-9]{0,9}ms$";

impl Grace {
    /// As much of `duration` as can be said; nothing when that is no time at all.
    pub fn of(duration: Duration) -> Option<Self> {
        let milliseconds = u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
        (milliseconds > 0).then_some(Self(milliseconds))
    }

    /// What a shard keeps to, by its Lease; nothing when it does not say, or not in these words.
    pub fn promised(lease: &Lease) -> Option<Self> {
        Self::parse(lease.metadata.annotations.as_ref()?.get(LEASE_GRACE)?)
    }

    /// What the shard is asked to keep to, by the value of a drain label.
    pub fn asked(drain: &str) -> Option<Self> {
        Self::parse(drain.split_once('.')?.1)
    }

    /// The value of a drain label, for a move of this id from a shard that promised this.
    pub fn drain_value(id: &str, promised: Option<Self>) -> String {
        promised.map_or_else(|| id.to_owned(), |grace| format!("{id}.{grace}"))
    }

    /// The same as a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0 as u64)
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_suffix("ms")?;
        let only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
        let milliseconds = digits.parse().ok().filter(|_| only_digits)?;
        (milliseconds > 0).then_some(Self(milliseconds))
    }
}

impl fmt::Display for Grace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lease(grace: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.annotations = Some([(LEASE_GRACE.to_owned(), grace.to_owned())].into());
        lease
    }

    #[test]
    fn what_a_shard_does_not_say_in_these_words_is_no_promise() {
        assert_eq!(Grace::promised(&Lease::default()), None);
        for unclear in ["", "1", "1s", "ms", "0ms", "-1ms", "+1ms", "1.5ms", "1000 ms", "99999999999ms"] {
            assert_eq!(Grace::promised(&lease(unclear)), None, "{unclear}");
        }
        assert_eq!(Grace::promised(&lease("1500ms")), Grace::of(Duration::from_millis(1500)));
        assert_eq!(Grace::of(Duration::from_micros(999)), None);
    }

    #[test]
    fn a_drain_without_a_grace_asks_for_none() {
        for drain in ["", "x", "100ms", "x-100ms", "x.100", "x.100ms.y"] {
            assert_eq!(Grace::asked(drain), None, "{drain}");
        }
        assert_eq!(Grace::drain_value("x", None), "x");
    }

    proptest! {
        #[test]
        fn what_looks_as_if_it_carried_a_grace_does(
            drain in proptest::string::string_regex(CARRIES_GRACE.trim_matches(['^', '$'])).unwrap(),
        ) {
            let too_large = drain.rsplit('.').next().and_then(|it| it.strip_suffix("ms")?.parse::<u32>().ok()).is_none();
            prop_assert!(Grace::asked(&drain).is_some() || too_large, "{drain}");
        }

        #[test]
        fn what_was_promised_is_what_is_asked_and_a_valid_label(
            id in "[0-9a-f]{11}-[A-Za-z0-9]{12}",
            milliseconds in 1..=u64::MAX,
        ) {
            let duration = Duration::from_millis(milliseconds);
            let grace = Grace::of(duration);
            prop_assert!(grace.is_some_and(|grace| grace.duration() <= duration));
            prop_assert_eq!(Grace::promised(&lease(&grace.map(|grace| grace.to_string()).unwrap_or_default())), grace);
            let value = Grace::drain_value(&id, grace);
            prop_assert_eq!(Grace::asked(&value), grace);
            prop_assert!(value.len() <= 63 && value.ends_with(|c: char| c.is_ascii_alphanumeric()));
        }
    }
}
