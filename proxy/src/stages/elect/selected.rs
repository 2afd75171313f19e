//! Lists and watches of one name, which may be that of a lock.
//!
//! Of what is known as a lock, or what the ring holds, they are answered from memory, as a get of that name is. Everything else
//! passes; a watch that passes is looked at (`passing`).

use http::{HeaderValue, Response, header};

use super::{
    super::{Handler, context::AdmittedRequest, upgrade::is_websocket},
    Elect, learn,
    passing::passing,
};
use crate::{
    body::{Body, empty},
    election::{
        LockName,
        follow::{WatchOptions, follow},
    },
    request::Verb,
    status::Refusal,
};

impl<S: Handler> Elect<S> {
    pub(super) async fn selected(self, name: LockName, mut asked: AdmittedRequest) -> Result<Response<Body>, Refusal> {
        let Self { next, locks, hold, closing } = self;
        let AdmittedRequest { request, context } = &mut asked;
        let info = &context.info;
        if info.upgrade && is_websocket(request.headers()) {
            // As from a server that knows no WebSockets: fabric8 goes on without. In what passes through one the proxy
            // would not see that the lock is the ring's by now.
            return Ok(Response::new(empty()));
        }
        if !locks.knows(&name) {
            learn((&locks, &hold), &name).await?;
        }
        if info.verb == Verb::List {
            return match locks.list(&name, request.headers()) {
                Some(list) => Ok(list),
                None => next.call(asked).await,
            };
        }
        let wish = WatchOptions::of(&info.query);
        if locks.knows(&name) || wish.goes_on_from_here() {
            let renewed = context.admitted.renewed();
            let end = async move {
                tokio::select! {
                    () = renewed => {}
                    () = closing.cancelled() => {}
                }
            };
            return Ok(follow(locks, name, wish, request.headers(), end));
        }
        // It has to be read here: since v1.37 API servers compress a watch with initial events for a client that
        // accepts that.
        request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let response = next.call(asked).await?;
        Ok(passing(response, locks, name, hold.holder().to_owned()))
    }
}
