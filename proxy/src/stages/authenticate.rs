//! Refuses requests without the local token or another account's.
//!
//! Takes the token and all else that says who is asking off the request (`access/credentials.rs`): the API server is given our
//! own credentials. A request with another account's token keeps that, and is sent with nothing of the pod's.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    FutureExt, TryFutureExt,
    future::{BoxFuture, Either, ready},
};
use http::{Request, Response, StatusCode, header};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::Service;

use super::Next;
use crate::{
    access::{
        Token,
        credentials::{self, Credentials},
    },
    body::Body,
    config::ForeignTokens,
    gap::Gaps,
    metrics::Metrics,
    serve::Caller,
    status::Refusal,
    views::Views,
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Authenticate<S> {
    next: S,
    token: Arc<Token>,
    gaps: Gaps,
    views: Views,
    foreign: Foreign,
}

/// What is done with another account's token.
#[derive(Clone, Debug)]
pub struct Foreign {
    tokens: ForeignTokens,
    metrics: Metrics,
    /// When the log last said that one came.
    told: Arc<Mutex<Option<Instant>>>,
}

/// How often the log says it at most.
const TELL_EVERY: Duration = Duration::from_hours(1);

impl Foreign {
    /// As an option says it.
    pub fn new(tokens: ForeignTokens, metrics: Metrics) -> Self {
        Self { tokens, metrics, told: Arc::default() }
    }

    /// Whether a request with one passes.
    fn passes(&self, request: &Request<Body>) -> bool {
        let passes = self.tokens == ForeignTokens::Pass;
        self.metrics.foreign(if passes { "passed" } else { "refused" });
        let mut told = self.told.lock();
        if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            let agent = request.headers().get(header::USER_AGENT).and_then(|it| it.to_str().ok());
            tracing::info!(agent, passes, "request with another account's token: --foreign-tokens decides");
        }
        passes
    }
}

impl<S> Authenticate<S> {
    /// Around the stages for those who have the token; of which generation it is shows who ran through a gap, and that its views
    /// of before are not known.
    pub fn new(next: S, token: Arc<Token>, gaps: Gaps, views: Views, foreign: Foreign) -> Self {
        Self { next, token, gaps, views, foreign }
    }
}

impl<S: Next> Service<Request<Body>> for Authenticate<S> {
    type Response = Response<Body>;
    type Error = Refusal;
    type Future = Either<S::Future, BoxFuture<'static, Result<Response<Body>, Refusal>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.next.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let caller = request.extensions().get::<Arc<Caller>>().cloned();
        let shows_token = move |proven| caller.iter().for_each(|caller| caller.shows_token(proven));
        match credentials::take(request.headers_mut(), &self.token) {
            Credentials::Own(generation) => {
                shows_token(true);
                self.gaps.seen(generation, || self.views.follow_others());
                Either::Left(self.next.call(request))
            }
            Credentials::Foreign if self.foreign.passes(&request) => {
                shows_token(false);
                // Whether it is right, the API server knows.
                let is_right = |status: StatusCode| status != StatusCode::UNAUTHORIZED && !status.is_server_error();
                let answered = self.next.call(request);
                Either::Right(answered.inspect_ok(move |answer| shows_token(is_right(answer.status()))).boxed())
            }
            Credentials::Foreign | Credentials::None => Either::Right(ready(Err(Refusal::Unauthorized)).boxed()),
        }
    }
}
