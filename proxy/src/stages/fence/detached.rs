//! Waits for the answer to a write whose client has gone away.
//!
//! The API server may go on with it, and only its answer tells when that is over: a drain would have to wait for as long as
//! any request can live. Controllers break off what they are sending when they end, so with each of them that restarts its
//! objects would stay where they are for half a minute.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::Response;
use http_body_util::BodyExt;
use ringside_runtime::contained::contained;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::write::heed;
use crate::{body::Body, fence::WriteGuard, stages::admit::Admitted, status::Refusal};

/// How many answers are waited for at once. Beyond that drains wait instead: there is no lack of memory, and no client
/// cancels so many.
const MAX_AWAITED: usize = 1024;

/// Where they are waited for.
#[derive(Clone, Debug)]
pub struct DetachedWrites {
    /// Those that are, as the connections that outlive their request.
    pub tasks: TaskTracker,
    /// Cuts them.
    pub abort: CancellationToken,
}

/// A write that is being sent.
pub(super) struct SendGuard {
    answer: Option<BoxFuture<'static, Result<Response<Body>, Refusal>>>,
    /// Held as long as the request is under way.
    write_guard: Arc<WriteGuard>,
    is_foreign: bool,
    /// Not longer than this: a write that waits to be sent must not be carried out when the shard, or the lead, is another's.
    admitted: Admitted,
    detached: DetachedWrites,
}

impl SendGuard {
    pub(super) fn new(
        answer: BoxFuture<'static, Result<Response<Body>, Refusal>>,
        (write_guard, is_foreign): (Arc<WriteGuard>, bool),
        admitted: Admitted,
        detached: DetachedWrites,
    ) -> Self {
        Self { answer: Some(answer), write_guard, is_foreign, admitted, detached }
    }
}

impl Future for SendGuard {
    type Output = Result<Response<Body>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(answer) = &mut self.answer else { return Poll::Pending };
        let answered = std::task::ready!(answer.as_mut().poll(context));
        self.answer = None;
        Poll::Ready(answered)
    }
}

impl Drop for SendGuard {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        if self.detached.tasks.len() >= MAX_AWAITED {
            return;
        }
        let (write_guard, is_foreign) = (self.write_guard.clone(), self.is_foreign);
        let (over, abort) = (self.admitted.over(), self.detached.abort.clone());
        self.detached.tasks.spawn(contained(async move {
            tokio::select! {
                () = settle(answer, &write_guard, is_foreign) => {}
                () = write_guard.outlived() => {}
                _ = over => {}
                () = abort.cancelled() => {}
            }
        }));
    }
}

/// Returns when the write has ended, which the guard is told: it is under way until the end of its answer.
async fn settle(
    answer: BoxFuture<'static, Result<Response<Body>, Refusal>>,
    write_guard: &WriteGuard,
    is_foreign: bool,
) {
    let answered = answer.await;
    heed(&answered, write_guard, is_foreign);
    if let Ok(response) = answered {
        let mut body = response.into_body();
        while let Some(Ok(_)) = body.frame().await {}
    }
}
