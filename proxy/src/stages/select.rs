//! Shows a controller its shard of the ring's resources, and of that the present.
//!
//! Each request is narrowed to the shard (`narrow`). A watch that goes on from before the ring's resources changed is marked, for
//! the tap to end it (`resume`). Reads are kept from beginning in the past (`raise`).

use futures::{FutureExt, future::ready};

use super::{
    Answered, Handler, OwnRequests,
    context::AdmittedRequest,
    narrow::narrow,
    raise::raise,
    resume::{Resuming, VersionUnknown},
};
use crate::{fence::Fence, metrics::Metrics, views::Views};

/// Narrows, compares and raises what selects objects of the ring.
#[derive(Clone)]
pub struct Select<S> {
    next: S,
    own: OwnRequests,
    fence: Fence,
    views: Views,
    metrics: Metrics,
}

impl<S: Handler> Select<S> {
    /// Around the stages that send the request; `own` sends its questions.
    pub fn new(next: S, own: OwnRequests, fence: Fence, views: Views, metrics: Metrics) -> Self {
        Self { next, own, fence, views, metrics }
    }

    fn send(&self, mut asked: AdmittedRequest) -> Answered {
        match raise(&mut asked, &self.fence) {
            Ok(()) => self.next.call(asked),
            Err(refusal) => ready(Err(refusal)).boxed(),
        }
    }
}

impl<S: Handler> Handler for Select<S> {
    fn call(&self, mut asked: AdmittedRequest) -> Answered {
        if let Err(refusal) = narrow(&mut asked, &self.metrics) {
            return ready(Err(refusal)).boxed();
        }
        let Some(resuming) = Resuming::of(&asked) else { return self.send(asked) };
        let this = self.clone();
        async move {
            match resuming.judge(this.own.clone(), this.fence.clone(), this.views.clone()).await {
                Ok(is_stale) => asked.context.is_stale = is_stale,
                Err(VersionUnknown::MayNotList) => {}
                Err(VersionUnknown::Answer(answer)) => return Ok(*answer),
                Err(VersionUnknown::Refusal(refusal)) => return Err(refusal),
            }
            this.send(asked).await
        }
        .boxed()
    }
}
