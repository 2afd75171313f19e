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
    /// It works, and its Pod is about to end: the shard gets nothing new, and hands over what it has.
    Leaving,
    /// It does not run, or does not ask for objects: the shard gets nothing new, and what it has goes to other shards.
    Absent,
}

impl Controller {
    /// What a shard's Lease says.
    pub fn of(lease: &Lease) -> Self {
        let said = lease.metadata.annotations.as_ref().and_then(|all| all.get(LEASE_CONTROLLER));
        let is_said = |it: &Self| said.is_some_and(|said| said == it.as_str());
        [Self::Leaving, Self::Absent].into_iter().find(is_said).unwrap_or_default()
    }

    /// The annotation's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Leaving => "leaving",
            Self::Absent => "absent",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_works_unless_the_lease_says_otherwise() {
        let said = |value: Option<&str>| {
            let mut lease = Lease::default();
            lease.metadata.annotations = value.map(|value| [(LEASE_CONTROLLER.to_owned(), value.to_owned())].into());
            Controller::of(&lease)
        };
        assert_eq!([Some("absent"), Some("leaving")].map(said), [Controller::Absent, Controller::Leaving]);
        for value in [None, Some("working"), Some(""), Some("resting")] {
            assert_eq!(said(value), Controller::Working, "{value:?}");
        }
    }
}
