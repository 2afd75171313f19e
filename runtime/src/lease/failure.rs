//! What can become of a request about a Lease, other than what was asked for.

use std::time::Duration;

use kube::core::Status;

use crate::explain::explain;

/// Why a request about the Lease came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{}", explain(.0))]
    Refused(#[from] kube::Error),
    #[error("no answer from the API server within {0:?}")]
    NoAnswer(Duration),
}

impl Failure {
    fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused(kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    }

    pub(super) fn is_conflict(&self) -> bool {
        self.status().is_some_and(Status::is_conflict)
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    pub(super) fn is_already_exists(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    /// Whether the same request would be refused again, so that it came to nothing. A conflict says less: a client or a server
    /// between may have tried again what had landed.
    pub(super) fn is_final(&self) -> bool {
        self.status().is_some_and(|status| matches!(status.code, 400..=407 | 410..=428))
    }
}
