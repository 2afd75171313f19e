//! Refuses who does not have the local token.
//!
//! Takes the token off the request: it means nothing to the API server, which is given our own credentials.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{Either, Ready, ready};
use http::{Request, Response, header};
use tower::Service;

use super::Next;
use crate::{access::Token, body::Body, status::Refusal};

/// See the module.
#[derive(Clone, Debug)]
pub struct Authenticate<S> {
    next: S,
    token: Arc<Token>,
}

impl<S> Authenticate<S> {
    /// Around the stages for those who have the token.
    pub fn new(next: S, token: Arc<Token>) -> Self {
        Self { next, token }
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
        let authorization = request.headers_mut().remove(header::AUTHORIZATION);
        let text = authorization.as_ref().and_then(|value| value.to_str().ok());
        let scheme_and_token = text.and_then(|text| text.split_once(' '));
        let bearer = scheme_and_token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        match bearer {
            Some((_, token)) if self.token.matches(token.trim()) => Either::Left(self.next.call(request)),
            _ => Either::Right(ready(Err(Refusal::Unauthorized))),
        }
    }
}
