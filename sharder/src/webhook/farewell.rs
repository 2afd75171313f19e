//! How a replica ends: it answers until no API server asks it any more. It sends each that asks to the other replicas.
//!
//! It takes a moment until a Service no longer leads to a Pod that is about to go, and on a busy node a long one. A
//! call that is refused meanwhile would let its write pass without an owner, unnoticed.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{
    HeaderValue, Version,
    header::{CONNECTION, HeaderName},
};
use ringside_runtime::shutdown::Shutdown;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// Who is not asked for so long after the signal to end, or after the last review, is not led to any more.
pub(super) const QUIET: Duration = Duration::from_secs(3);
/// An end at last also where an API server knows no other replica. With the time that connections have it is within what the
/// kubelet gives a Pod by default, which is 30 s.
pub(super) const FAREWELL_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE: (HeaderName, HeaderValue) = (CONNECTION, HeaderValue::from_static("close"));

pub(super) struct Farewell {
    shutdown: Shutdown,
    /// When the last review came after the signal; before that, when this was made.
    asked: watch::Sender<Instant>,
}

impl Farewell {
    pub(super) fn new(shutdown: Shutdown) -> Self {
        Self { shutdown, asked: watch::Sender::new(Instant::now()) }
    }

    /// Once the end was asked for: notes each request, and ends its connection with the answer. So the API server opens
    /// the next one, which the Service leads to another replica as soon as it knows, and none is cut off under a request.
    /// HTTP/2 has a frame for that, which is sent when this is over.
    pub(super) async fn see_off(State(this): State<Arc<Self>>, request: Request, next: Next) -> Response {
        let closes = request.version() < Version::HTTP_2;
        if this.shutdown.is_triggered() {
            this.asked.send_replace(Instant::now());
        }
        let mut response = next.run(request).await;
        if closes && this.shutdown.is_triggered() {
            response.headers_mut().extend([CLOSE]);
        }
        response
    }

    /// Returns when the end was asked for and no review has come for [`QUIET`], or after [`FAREWELL_TIMEOUT`].
    pub(super) async fn over(&self) {
        self.shutdown.wait().await;
        let begun = Instant::now();
        let mut end = begun + QUIET;
        while Instant::now() < end {
            sleep_until(end).await;
            end = (*self.asked.borrow() + QUIET).min(begun + FAREWELL_TIMEOUT);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;

    use axum::{Router, body::Body, middleware::from_fn_with_state, routing::get};
    use tokio::time::{advance, sleep};
    use tower::ServiceExt as _;

    use super::*;

    fn router(farewell: &Arc<Farewell>) -> Router {
        let see_off = from_fn_with_state(farewell.clone(), Farewell::see_off);
        Router::new().route("/", get(|| async { "answer" })).layer(see_off)
    }

    async fn ask(router: &Router, version: Version) -> Response {
        let request = Request::builder().version(version).uri("/").body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap()
    }

    /// Returns how long it takes after the signal, where a client asks so often, once a second.
    async fn over_after(questions: usize) -> Duration {
        let shutdown = Shutdown::new();
        let farewell = Arc::new(Farewell::new(shutdown.clone()));
        let router = router(&farewell);
        // Whatever was asked before counts for nothing.
        ask(&router, Version::HTTP_11).await;
        advance(Duration::from_secs(60)).await;
        shutdown.trigger();
        let begun = Instant::now();
        let asking = async {
            for _ in 0..questions {
                sleep(Duration::from_secs(1)).await;
                ask(&router, Version::HTTP_11).await;
            }
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            () = farewell.over() => begun.elapsed(),
            never = asking => match never {},
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_over_when_nobody_asks_any_more_and_after_a_while_in_any_case() {
        for (questions, expected) in [(0, QUIET), (1, QUIET + Duration::from_secs(1)), (30, FAREWELL_TIMEOUT)] {
            let took = over_after(questions).await;
            assert!(took >= expected && took < expected + Duration::from_millis(10), "{questions}: {took:?}");
        }
    }

    #[tokio::test]
    async fn connections_end_with_the_answer_once_the_end_was_asked_for_and_not_before() {
        let shutdown = Shutdown::new();
        let router = router(&Arc::new(Farewell::new(shutdown.clone())));
        assert_eq!(ask(&router, Version::HTTP_11).await.headers().get(CONNECTION), None);
        shutdown.trigger();
        assert_eq!(ask(&router, Version::HTTP_11).await.headers().get(CONNECTION).unwrap(), "close");
        assert_eq!(ask(&router, Version::HTTP_2).await.headers().get(CONNECTION), None, "it has no such header");
    }
}
