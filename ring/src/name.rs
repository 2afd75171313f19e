//! Names of rings and shards: both end up as label values, so both are bounded by what a label value may be.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

/// The most characters that a label value can have (Kubernetes, "Labels and Selectors: Syntax and character set").
pub const MAX_NAME_LEN: usize = 63;

/// Why a string can't name a ring or a shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// The name is empty.
    #[error("the {what} name is empty: it must have 1 to {MAX_NAME_LEN} characters")]
    Empty {
        /// What is named.
        what: &'static str,
    },
    /// The name does not fit a label value.
    #[error(
        "the {what} name '{name}' has {} characters: it is also a label value, so it may have {MAX_NAME_LEN} at most; choose a shorter name",
        .name.len()
    )]
    TooLong {
        /// What is named.
        what: &'static str,
        /// The name as it was given.
        name: String,
    },
    /// The name is not one that Kubernetes would give to an object.
    #[error(
        "the {what} name '{name}' is not a DNS name: use lower case letters, digits, '-' and '.', beginning and ending with a letter or digit"
    )]
    NotDns {
        /// What is named.
        what: &'static str,
        /// The name as it was given.
        name: String,
    },
}

fn check(what: &'static str, name: &str) -> Result<(), InvalidName> {
    if name.is_empty() {
        return Err(InvalidName::Empty { what });
    }
    if name.len() > MAX_NAME_LEN {
        return Err(InvalidName::TooLong { what, name: name.to_owned() });
    }
    // RFC 1123 subdomain, the rule for names of ClusterRings, Leases and Pods.
    let label_ok = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if name.split('.').all(label_ok) { Ok(()) } else { Err(InvalidName::NotDns { what, name: name.to_owned() }) }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as it stands in labels and Leases.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = InvalidName;

            fn from_str(name: &str) -> Result<Self, InvalidName> {
                check($what, name).map(|()| Self(name.into()))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// The name of a `ClusterRing`: at most 63 characters, because it is the value of a label on Leases.
    RingName,
    "ring"
);
name_type!(
    /// The name of a shard, which is the name of its Pod and of its Lease: at most 63 characters, because
    /// it is the value of the shard label on objects.
    ShardName,
    "shard"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_must_fit_a_label_value() {
        assert!("a".repeat(63).parse::<RingName>().is_ok());
        let error = "a".repeat(64).parse::<ShardName>().expect_err("64 characters");
        assert!(error.to_string().contains("64 characters"), "{error}");
        assert!(matches!(error, InvalidName::TooLong { what: "shard", .. }));
    }

    #[test]
    fn a_name_must_be_a_dns_name() {
        for good in ["a", "a-b", "web-6f7c9d5b8-2x7lq", "a.b-c.0"] {
            assert!(good.parse::<RingName>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a..b", "a_b", "a b", "ä", ".a", "a."] {
            assert!(bad.parse::<RingName>().is_err(), "{bad}");
        }
    }
}
