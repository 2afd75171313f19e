//! Waits for the answer to a write whose client has gone away.
//!
//! The API server may go on with it, and only its answer tells when that is over: a drain would have to wait for as long as
//! any request can live. Controllers break off what they are sending when they end, so with each of them that restarts its
//! objects would stay where they are for half a minute.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::Response;
use http_body_util::BodyExt;
use ringside_runtime::contained::contained;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::write::may_go_on;
use crate::{
    body::Body,
    fence::{Fence, Ticket},
    stages::admit::Admitted,
    status::Refusal,
};

/// How many answers are waited for at once. Beyond that drains wait instead: there is no lack of memory, and nobody breaks
/// off so many.
const MOST: usize = 1024;

/// Where they are waited for.
#[derive(Clone, Debug)]
pub struct Alone {
    /// Those that are, as the connections that outlive their request.
    pub tasks: TaskTracker,
    /// Cuts them.
    pub abort: CancellationToken,
}

/// A write that is being sent.
pub(super) struct Sent {
    answer: Option<BoxFuture<'static, Result<Response<Body>, Refusal>>>,
    fence: Fence,
    number: u64,
    /// Not longer than this: a write that waits to be sent must not be carried out when the shard, or the lead, is another's.
    admitted: Admitted,
    alone: Alone,
}

impl Sent {
    pub(super) fn new(
        answer: BoxFuture<'static, Result<Response<Body>, Refusal>>,
        (fence, ticket): (&Fence, &Ticket),
        admitted: Admitted,
        alone: Alone,
    ) -> Self {
        Self { answer: Some(answer), fence: fence.clone(), number: ticket.number(), admitted, alone }
    }
}

impl Future for Sent {
    type Output = Result<Response<Body>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(answer) = &mut self.answer else { return Poll::Pending };
        let answered = std::task::ready!(answer.as_mut().poll(context));
        self.answer = None;
        Poll::Ready(answered)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        if self.alone.tasks.len() >= MOST {
            return;
        }
        let (fence, number, over, abort) =
            (self.fence.clone(), self.number, self.admitted.over(), self.alone.abort.clone());
        self.alone.tasks.spawn(contained(async move {
            tokio::select! {
                () = settle(answer, fence, number) => {}
                _ = over => {}
                () = abort.cancelled() => {}
            }
        }));
    }
}

/// Says that the write has ended, if its answer says so.
async fn settle(answer: BoxFuture<'static, Result<Response<Body>, Refusal>>, fence: Fence, number: u64) {
    let answered = answer.await;
    if may_go_on(&answered) {
        return;
    }
    if let Ok(response) = answered {
        // It is under way until the end of its answer.
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return;
            }
        }
    }
    fence.settled(number);
}
