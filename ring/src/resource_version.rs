//! The order of resourceVersions.

use std::{cmp::Ordering, fmt, str::FromStr};

/// A resourceVersion: a decimal number of any length, comparable within one resource only.
///
/// Kubernetes declares them comparable as such since 1.35 (KEP-5504); DESIGN, "Handover", relies on it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Box<str>);

/// The string is not a decimal number: the server is not one whose resourceVersions have an order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resourceVersion '{0}' is not a decimal number, so it can't be compared")]
pub struct IncomparableVersion(pub String);

impl FromStr for ResourceVersion {
    type Err = IncomparableVersion;

    fn from_str(version: &str) -> Result<Self, IncomparableVersion> {
        if version.is_empty() || !version.bytes().all(|b| b.is_ascii_digit()) {
            return Err(IncomparableVersion(version.to_owned()));
        }
        let digits = version.trim_start_matches('0');
        Ok(Self(if digits.is_empty() { "0" } else { digits }.into()))
    }
}

impl ResourceVersion {
    /// Whether this is `0`, which in a request means "any version, however old".
    pub fn is_zero(&self) -> bool {
        &*self.0 == "0"
    }
}

impl ResourceVersion {
    /// The number before this one; that of 0 is 0.
    #[must_use]
    pub fn before(&self) -> Self {
        let mut digits = self.0.as_bytes().to_vec();
        for digit in digits.iter_mut().rev() {
            if *digit > b'0' {
                *digit -= 1;
                break;
            }
            *digit = b'9';
        }
        if self.is_zero() {
            return self.clone();
        }
        let text: String = digits.into_iter().map(char::from).collect();
        let text = text.trim_start_matches('0');
        Self(if text.is_empty() { "0" } else { text }.into())
    }
}

impl Ord for ResourceVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        // Without leading zeros the longer number is the larger one.
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for ResourceVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> ResourceVersion {
        text.parse().expect("a number")
    }

    #[test]
    fn what_is_no_number_has_no_order() {
        for bad in ["", "-1", "+1", "1a", " 1", "0x1", "١"] {
            assert!(bad.parse::<ResourceVersion>().is_err(), "{bad}");
        }
        assert!(version("000").is_zero());
        assert!(
            version("340282366920938463463374607431768211457") > version("340282366920938463463374607431768211456")
        );
    }

    proptest! {
        #[test]
        fn before_is_one_less(a in prop_oneof![0..200_u128, 999_999..1_000_002_u128, any::<u128>()]) {
            prop_assert_eq!(version(&a.to_string()).before(), version(&a.saturating_sub(1).to_string()));
        }

        #[test]
        fn order_is_that_of_the_numbers(a: u128, b: u128, zeros in "0{0,5}") {
            prop_assert_eq!(version(&format!("{zeros}{a}")).cmp(&version(&b.to_string())), a.cmp(&b));
        }
    }
}
