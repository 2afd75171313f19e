//! How much of a ring's objects a shard gets, compared with the other shards.

use std::{fmt, num::NonZeroU32, str::FromStr};

use k8s_openapi::api::coordination::v1::Lease;

use crate::{
    labels::{LEASE_DRAINED, LEASE_INSTANCE, LEASE_WEIGHT},
    lease::annotation,
};

/// The weight of a shard: 2 gets twice as many objects as 1, and 0 none.
///
/// Counted in hundredths, and bounded: a shard's tokens are memory in each replica of the sharder, and a client that
/// may write the shard's Lease says how many they are. Only the proportion counts: 1 to 1000 can be said as 0.01 to 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u16);

const HUNDREDTHS: u16 = 100;

/// Why a text is no weight.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a weight: write a number from 0 to 10 with two decimals at most, such as 0.5, 1 or 2")]
pub struct InvalidWeight(pub String);

impl Weight {
    /// That of a shard which gets no objects.
    pub const ZERO: Self = Self(0);
    /// That of a shard about which nothing else is said.
    pub const ONE: Self = Self(HUNDREDTHS);
    /// The greatest.
    pub const MAX: Self = Self(10 * HUNDREDTHS);

    /// What a shard's Lease says; one without the annotation has weight 1, and one that is drained has none.
    ///
    /// # Errors
    /// When the annotation is there and is no weight: the shard then counts like any other.
    pub fn of(lease: &Lease) -> Result<Self, InvalidWeight> {
        if is_drained(lease) {
            return Ok(Self::ZERO);
        }
        annotation(lease, LEASE_WEIGHT).map_or(Ok(Self::ONE), str::parse)
    }

    /// How many tokens a shard of this weight has where one of weight 1 has `tokens_per_shard`. Few as they may be, only
    /// weight 0 has none.
    pub fn tokens(self, tokens_per_shard: NonZeroU32) -> u32 {
        let (hundredths, whole) = (u64::from(self.0), u64::from(HUNDREDTHS));
        let rounded = (u64::from(tokens_per_shard.get()) * hundredths + whole / 2) / whole;
        u32::try_from(rounded).unwrap_or(u32::MAX).max(u32::from(self > Self::ZERO))
    }
}

/// Whether a person drains the shard: the mark names the instance that it was set on, so that the next Pod of the same name
/// is not drained.
pub fn is_drained(lease: &Lease) -> bool {
    let instance = annotation(lease, LEASE_INSTANCE);
    annotation(lease, LEASE_DRAINED).is_some_and(|mark| instance.is_none_or(|instance| instance == mark))
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

impl From<Weight> for f64 {
    fn from(weight: Weight) -> Self {
        Self::from(weight.0) / Self::from(HUNDREDTHS)
    }
}

impl FromStr for Weight {
    type Err = InvalidWeight;

    fn from_str(text: &str) -> Result<Self, InvalidWeight> {
        let invalid = || InvalidWeight(text.to_owned());
        let number = |digits: &str| -> Result<u16, InvalidWeight> {
            let plain = (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            if plain { digits.parse().map_err(|_| invalid()) } else { Err(invalid()) }
        };
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let tenths = if decimals.len() == 1 { 10 } else { 1 };
        let weight = Self(number(whole)? * HUNDREDTHS + number(decimals)? * tenths);
        if weight <= Self::MAX { Ok(weight) } else { Err(invalid()) }
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / HUNDREDTHS, self.0 % HUNDREDTHS);
        match rest {
            0 => write!(f, "{whole}"),
            _ if rest % 10 == 0 => write!(f, "{whole}.{}", rest / 10),
            _ => write!(f, "{whole}.{rest:02}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_weight_is_a_whole_or_decimal_number_up_to_ten() {
        for (text, weight) in
            [("0", 0), ("0.01", 1), ("0.5", 50), ("1", 100), ("1.25", 125), ("2.0", 200), ("10", 1000)]
        {
            assert_eq!(text.parse(), Ok(Weight(weight)), "{text}");
        }
        for bad in
            ["", "-1", "+1", "1e1", "10.01", "11", "100", "0.001", "1.", ".5", "1,5", " 1", "NaN", "heavy", "1.0.0"]
        {
            assert_eq!(bad.parse::<Weight>(), Err(InvalidWeight(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn a_lease_without_the_annotation_has_weight_one() {
        let mut lease = Lease::default();
        assert_eq!(Weight::of(&lease), Ok(Weight::ONE));
        lease.metadata.annotations = Some([(LEASE_WEIGHT.to_owned(), "2".to_owned())].into());
        assert_eq!(Weight::of(&lease), Ok(Weight(200)));
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(LEASE_DRAINED.to_owned(), "true".to_owned());
        assert_eq!(Weight::of(&lease), Ok(Weight::ZERO), "whatever its weight");
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(LEASE_INSTANCE.to_owned(), "next".to_owned());
        assert_eq!(Weight::of(&lease), Ok(Weight(200)), "of the next Pod of that name");
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(LEASE_DRAINED.to_owned(), "next".to_owned());
        assert_eq!(Weight::of(&lease), Ok(Weight::ZERO));
        lease.metadata.annotations = Some([(LEASE_WEIGHT.to_owned(), "two".to_owned())].into());
        assert!(Weight::of(&lease).is_err());
    }

    #[test]
    fn tokens_are_in_proportion_and_only_weight_zero_has_none() {
        let tokens = |weight: &str, of| weight.parse::<Weight>().unwrap().tokens(NonZeroU32::new(of).unwrap());
        assert_eq!([tokens("1", 4_000), tokens("2", 4_000), tokens("0.5", 4_000)], [4_000, 8_000, 2_000]);
        assert_eq!([tokens("0", 4_000), tokens("0.01", 4), tokens("0.25", 50)], [0, 1, 13]);
        assert_eq!(tokens("10", u32::MAX), u32::MAX);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(hundredths in 0_u16..=1000) {
            prop_assert_eq!(Weight(hundredths).to_string().parse(), Ok(Weight(hundredths)));
        }
    }
}
