//! Which requests wait before they are sent on.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::Request;
use http_body_util::{BodyExt as _, Full};
use tokio_util::sync::CancellationToken;

use super::{
    forward::{Fault, Passing},
    record::locked,
};

#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<HashMap<String, Arc<Hold>>>);

/// What requests with one mark wait for.
#[derive(Debug, Default)]
pub(super) struct Hold {
    waiting: AtomicUsize,
    released: CancellationToken,
}

impl Holds {
    pub(super) fn begin(&self, mark: &str) {
        locked(&self.0).entry(mark.to_owned()).or_default();
    }

    pub(super) fn end(&self, mark: &str) {
        if let Some(hold) = locked(&self.0).remove(mark) {
            hold.released.cancel();
        }
    }

    pub(super) fn of(&self, mark: &str) -> Option<Arc<Hold>> {
        locked(&self.0).get(mark).cloned()
    }

    pub(super) fn waiting(&self, mark: &str) -> usize {
        self.of(mark).map_or(0, |hold| hold.waiting.load(Ordering::Relaxed))
    }
}

impl Hold {
    /// Returns the request once it may be sent on. It is read to its end before it waits: nothing more of it has to come
    /// from its client then.
    pub(super) async fn wait(&self, request: Request<Passing>) -> Result<Request<Passing>, Fault> {
        let (head, body) = request.into_parts();
        let body = Full::new(body.collect().await?.to_bytes());
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.released.cancelled().await;
        Ok(Request::from_parts(head, body.map_err(|never| match never {}).boxed_unsync()))
    }
}
