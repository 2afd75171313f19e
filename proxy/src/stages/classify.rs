//! Finds out what is asked and adds it to the request, as an extension of type [`RequestInfo`].
//!
//! Refuses what is ambiguous. Takes off the wish to upgrade where it may not be; changes nothing else, but for a note of
//! the verb on the response, for the counters.

use futures::{FutureExt, TryFutureExt, future::ready};
use http::{Request, Response, header};

use super::{Answered, Next};
use crate::{
    body::Body,
    request::{RequestInfo, Verb},
};

/// On a response: the verb of its request.
#[derive(Clone, Copy, Debug)]
pub struct VerbSeen(pub Verb);

/// See the module.
#[derive(Clone, Debug)]
pub struct Classify<S> {
    next: S,
}

impl<S> Classify<S> {
    /// Around the stages that need to know what is asked.
    pub fn new(next: S) -> Self {
        Self { next }
    }
}

impl<S: Next> Next for Classify<S> {
    fn call(&self, mut request: Request<Body>) -> Answered {
        match RequestInfo::of(request.method(), request.uri(), request.headers()) {
            Ok(info) => {
                let verb = info.verb;
                if !info.upgrade {
                    for name in [header::CONNECTION, header::UPGRADE] {
                        request.headers_mut().remove(name);
                    }
                }
                request.extensions_mut().insert(info);
                let noted = move |mut response: Response<Body>| {
                    response.extensions_mut().insert(VerbSeen(verb));
                    response
                };
                self.next.call(request).map_ok(noted).boxed()
            }
            Err(bad) => ready(Err(bad.into())).boxed(),
        }
    }
}
