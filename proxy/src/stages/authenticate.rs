//! Refuses who does not have the local token.
//!
//! Takes the token and all else that says who is asking off the request (`access/credentials.rs`): the API server is given our
//! own credentials.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{Either, Ready, ready};
use http::{Request, Response};
use tower::Service;

use super::Next;
use crate::{
    access::{Token, credentials},
    body::Body,
    gap::Gaps,
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
}

impl<S> Authenticate<S> {
    /// Around the stages for those who have the token; of which generation it is shows who ran through a gap, and that its views
    /// of before are not known.
    pub fn new(next: S, token: Arc<Token>, gaps: Gaps, views: Views) -> Self {
        Self { next, token, gaps, views }
    }
}

impl<S: Next> Service<Request<Body>> for Authenticate<S> {
    type Response = Response<Body>;
    type Error = Refusal;
    type Future = Either<S::Future, Ready<Result<Response<Body>, Refusal>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.next.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(generation) = credentials::take(request.headers_mut(), &self.token) {
            self.gaps.seen(generation, || self.views.follow_others());
            Either::Left(self.next.call(request))
        } else {
            Either::Right(ready(Err(Refusal::Unauthorized)))
        }
    }
}
