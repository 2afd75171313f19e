//! Names of rings and shards: both end up as label values, so both are bounded by what a label value may be.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use crate::kind::RingKind;

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
    /// What stands before the `/` is no kind of ring.
    #[error("'{text}' names no ring: write NAME for a ClusterRing, or controllerring/NAME for a ControllerRing")]
    NoKind {
        /// The name as it was given.
        text: String,
    },
    /// The labels of a `ControllerRing` of this name could be those of a `ClusterRing`.
    #[error(
        "a ControllerRing may not have the name '{name}': its labels could be those of a ClusterRing; choose one that does not begin with 'clusterring-'"
    )]
    OfOtherKind {
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

/// The name of a ring, with its kind: two rings of different kinds may have one name.
///
/// It is read and shown as `NAME` for a `ClusterRing`, and as `controllerring/NAME` for a `ControllerRing`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingName {
    kind: RingKind,
    name: Arc<str>,
}

impl RingName {
    /// The name of a ring of this kind, at most 63 characters: it is the value of a label on Leases.
    ///
    /// # Errors
    /// When no ring of the kind can have this name.
    pub fn new(kind: RingKind, name: &str) -> Result<Self, InvalidName> {
        check("ring", name)?;
        if kind == RingKind::ControllerRing && name.starts_with("clusterring-") {
            return Err(InvalidName::OfOtherKind { name: name.to_owned() });
        }
        Ok(Self { kind, name: name.into() })
    }

    /// The kind of the ring.
    pub const fn kind(&self) -> RingKind {
        self.kind
    }

    /// The name as it stands in the ring's metadata and on Leases.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Kind and name, for sentences: `ClusterRing 'example'`.
    pub fn titled(&self) -> impl fmt::Display {
        format!("{} '{}'", self.kind, self.name)
    }
}

impl FromStr for RingName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        match text.split_once('/') {
            None => Self::new(RingKind::ClusterRing, text),
            Some((kind, name)) => {
                let kind = RingKind::called(kind).ok_or_else(|| InvalidName::NoKind { text: text.to_owned() })?;
                Self::new(kind, name)
            }
        }
    }
}

impl fmt::Display for RingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RingKind::ClusterRing => f.write_str(&self.name),
            RingKind::ControllerRing => write!(f, "{}/{}", self.kind.names().singular, self.name),
        }
    }
}

impl fmt::Debug for RingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

/// The name of a shard, which is the name of its Pod and of its Lease: at most 63 characters, because it is the value of the
/// shard label on objects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardName(Arc<str>);

impl ShardName {
    /// The name as it stands in labels and Leases.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ShardName {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        check("shard", name).map(|()| Self(name.into()))
    }
}

impl fmt::Display for ShardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ShardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Borrow<str> for ShardName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ShardName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

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

    #[test]
    fn a_ring_is_named_with_its_kind() {
        let named =
            |text: &str| text.parse::<RingName>().map(|ring| (ring.kind(), ring.name().to_owned(), ring.to_string()));
        let newer = (RingKind::ControllerRing, "web".to_owned(), "controllerring/web".to_owned());
        for text in ["controllerring/web", "controllerrings/web", "controllerrings.sharding.timebertt.dev/web"] {
            assert_eq!(named(text), Ok(newer.clone()), "{text}");
        }
        for text in ["web", "clusterring/web", "ClusterRing/web"] {
            assert_eq!(named(text), Ok((RingKind::ClusterRing, "web".to_owned(), "web".to_owned())), "{text}");
        }
        for (bad, says) in [
            ("deployment/web", "controllerring/NAME"),
            ("controllerring/", "is empty"),
            ("controllerring/a/b", "not a DNS name"),
            ("controllerring/clusterring-50d858e0-example", "does not begin with"),
        ] {
            let fault = named(bad).expect_err(bad).to_string();
            assert!(fault.contains(says), "{bad}: {fault}");
        }
    }
}
