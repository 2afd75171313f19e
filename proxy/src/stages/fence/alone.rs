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
use crate::{body::Body, fence::Ticket, stages::admit::Admitted, status::Refusal};

/// How many answers are waited for at once. Beyond that drains wait instead: there is no lack of memory, and no client
/// cancels so many.
const MAX_AWAITED: usize = 1024;

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
    /// Held as long as the request is under way.
    ticket: Arc<Ticket>,
    is_foreign: bool,
    /// Not longer than this: a write that waits to be sent must not be carried out when the shard, or the lead, is another's.
    admitted: Admitted,
    alone: Alone,
}

impl Sent {
    pub(super) fn new(
        answer: BoxFuture<'static, Result<Response<Body>, Refusal>>,
        (ticket, is_foreign): (Arc<Ticket>, bool),
        admitted: Admitted,
        alone: Alone,
    ) -> Self {
        Self { answer: Some(answer), ticket, is_foreign, admitted, alone }
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
        if self.alone.tasks.len() >= MAX_AWAITED {
            return;
        }
        let (ticket, is_foreign) = (self.ticket.clone(), self.is_foreign);
        let (over, abort) = (self.admitted.over(), self.alone.abort.clone());
        self.alone.tasks.spawn(contained(async move {
            tokio::select! {
                () = settle(answer, &ticket, is_foreign) => {}
                () = ticket.outlived() => {}
                _ = over => {}
                () = abort.cancelled() => {}
            }
        }));
    }
}

/// Returns when the write has ended, which the ticket is told: it is under way until the end of its answer.
async fn settle(answer: BoxFuture<'static, Result<Response<Body>, Refusal>>, ticket: &Ticket, is_foreign: bool) {
    let answered = answer.await;
    heed(&answered, ticket, is_foreign);
    if let Ok(response) = answered {
        let mut body = response.into_body();
        while let Some(Ok(_)) = body.frame().await {}
    }
}
