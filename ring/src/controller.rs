//! Whether the controller of a shard works, as the shard's Lease says it.

use k8s_openapi::api::coordination::v1::Lease;

use crate::labels::LEASE_CONTROLLER;

/// The state of a shard's controller.
///
/// A shard that shards itself holds its Lease in the controller's own process, and says nothing: its controller works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// It watches the ring's main resources, or the Lease says nothing of it.
    #[default]
    Working,
    /// It does not run, or does not ask for objects: the shard gets nothing new, and what it has goes to other shards.
    Absent,
}

impl Controller {
    /// What a shard's Lease says.
    pub fn of(lease: &Lease) -> Self {
        let annotation = lease.metadata.annotations.as_ref().and_then(|all| all.get(LEASE_CONTROLLER));
        if annotation.is_some_and(|text| text == Self::Absent.as_str()) { Self::Absent } else { Self::Working }
    }

    /// The annotation's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Absent => "absent",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_works_unless_the_lease_says_absent() {
        let said = |value: Option<&str>| {
            let mut lease = Lease::default();
            lease.metadata.annotations = value.map(|value| [(LEASE_CONTROLLER.to_owned(), value.to_owned())].into());
            Controller::of(&lease)
        };
        assert_eq!(said(Some("absent")), Controller::Absent);
        for value in [None, Some("working"), Some(""), Some("resting")] {
            assert_eq!(said(value), Controller::Working, "{value:?}");
        }
    }
}
