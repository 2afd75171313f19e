//! How an object that is kept should be, and how it stands.

use std::sync::Arc;

use kube::core::DynamicObject;
use tokio::time::Instant;

/// How an object should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Wish {
    /// It was not said yet.
    #[default]
    Unsaid,
    Absent,
    Like(Box<DynamicObject>),
}

/// How an object stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Standing {
    /// Nothing was written yet.
    #[default]
    Pending,
    /// It is as it should be.
    InPlace {
        /// Since when this generation is known to be stored, whichever client wrote it.
        since: Instant,
        /// As it is stored.
        object: Arc<DynamicObject>,
    },
    /// It was as it should be. Another client has changed or deleted it since, so it is written again soon.
    Disturbed {
        /// They did so right after it was written, and are left in peace for longer.
        again: bool,
    },
    /// The same edit came back after each write, and is left as it is.
    Edited {
        /// What users are told.
        why: String,
    },
    /// There is one of that name without our label. It stays as it is.
    NotOurs {
        /// What users are told.
        why: String,
    },
    /// It is not wanted, and not there.
    Absent,
    /// The API server refuses it; it is tried again.
    Refused {
        /// The HTTP status, if it was an answer.
        code: Option<u16>,
        /// What it says.
        why: String,
    },
}
