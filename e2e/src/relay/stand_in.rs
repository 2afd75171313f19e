//! What answers in the API server's place, while it makes what it sends.

use std::{fmt, sync::Arc};

use http::{Response, request::Parts};

use super::forward::Passing;

type Answers = dyn Fn(&Parts) -> Option<Response<Passing>> + Send + Sync;

/// Who is asked before the API server.
#[derive(Clone)]
pub(super) struct StandIn(Arc<Answers>);

impl StandIn {
    pub(super) fn new(answers: impl Fn(&Parts) -> Option<Response<Passing>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(answers))
    }

    /// None where the API server is to answer.
    pub(super) fn answer(&self, request: &Parts) -> Option<Response<Passing>> {
        (self.0)(request)
    }
}

impl fmt::Debug for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandIn")
    }
}
