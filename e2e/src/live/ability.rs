//! What only some versions of Kubernetes can do.

use crate::toolchain::{self, Minor};

/// Something that an API server can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// It serves MutatingAdmissionPolicies, so that labels of the ring are kept in the API server.
    LabelPolicies,
    /// It answers a watch with initial events, and a bookmark behind them.
    StreamingLists,
    /// The same in Tables: 1.32 answers 406.
    StreamingTables,
    /// It warns of Endpoints, which are deprecated.
    DeprecatedEndpoints,
    /// It compresses such a watch.
    CompressedWatches,
}

impl Ability {
    /// Whether the API servers can do it that this process starts.
    #[must_use]
    pub fn is_there(self) -> bool {
        toolchain::minor().is_none_or(|minor| self.is_of(minor))
    }

    fn is_of(self, minor: Minor) -> bool {
        match self {
            Self::LabelPolicies => minor >= Minor::new(1, 36),
            Self::StreamingLists => minor >= Minor::new(1, 32) && minor != Minor::new(1, 33),
            Self::StreamingTables => minor >= Minor::new(1, 34),
            Self::DeprecatedEndpoints => minor >= Minor::new(1, 33),
            Self::CompressedWatches => minor >= Minor::new(1, 37),
        }
    }

    /// Why a case that needs it does not run, where it is not there.
    pub(super) fn obstacle(self) -> Option<String> {
        let lacks = match self {
            Self::LabelPolicies => "no MutatingAdmissionPolicy before Kubernetes 1.36",
            Self::StreamingLists => "no streaming lists before Kubernetes 1.32 and in 1.33",
            Self::StreamingTables => "no streaming lists of Tables before Kubernetes 1.34",
            Self::DeprecatedEndpoints => "Endpoints are not deprecated before Kubernetes 1.33",
            Self::CompressedWatches => "no compressed watches before Kubernetes 1.37",
        };
        (!self.is_there()).then(|| lacks.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_what_it_serves_as_installed() {
        for (minor, policies, lists) in
            [(30, false, false), (32, false, true), (33, false, false), (34, false, true), (36, true, true)]
        {
            let of = |ability: Ability| ability.is_of(Minor::new(1, minor));
            assert_eq!((of(Ability::LabelPolicies), of(Ability::StreamingLists)), (policies, lists), "{minor}");
        }
    }
}
