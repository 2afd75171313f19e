//! [`kube::Client`]s, each on connections of its own, so that their requests wait behind no others.

use std::{io, time::Duration};

use http::{HeaderValue, Request, Response, header::USER_AGENT};
use http_body_util::BodyExt as _;
use kube::{
    Client,
    client::{Body as KubeBody, retry::RetryPolicy},
};
use tower::{ServiceBuilder, retry::RetryLayer, timeout::TimeoutLayer};
use tower_http::timeout::{ResponseBodyTimeoutLayer, TimeoutBody, TimeoutError};

use super::{
    ApiServer, Body, BodyError, BoxError, ConnectError, Held, Transport,
    handshake::Pings,
    pauses::{Pause, Telling},
};

/// How often a request is sent again that the API server had no time for.
const ATTEMPTS: u32 = 6;
/// The first pause before that, and the longest. Where the API server names one itself, that one counts.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(1)];

impl ApiServer {
    /// A client for any use.
    ///
    /// # Errors
    /// When the credentials can't be used.
    pub fn client(&self) -> Result<Client, ConnectError> {
        self.client_with(Pings::default())
    }

    /// A client for the renewal of a Lease of this duration. It notices a peer that is gone early enough for the Lease to
    /// be renewed on another connection: the keeper has 4/5 of the duration for that, and this takes less than half of it.
    ///
    /// # Errors
    /// When the credentials can't be used.
    pub fn lease_client(&self, duration: Duration) -> Result<Client, ConnectError> {
        self.client_with(Pings { after: duration / 10, timeout: duration / 5 })
    }

    /// A client of which an answer that is silent for longer than `silence` ends, before its head or after. Pings notice a
    /// peer that is gone; this notices one that is there and has nothing behind it. A watch then just ends, as by the API
    /// server, and is opened again: there may have been nothing to say. All else fails. Each attempt has that time: what is
    /// answered with 429, 503 or 504 is sent again for a second or so.
    ///
    /// # Errors
    /// When the credentials can't be used.
    pub fn client_within(&self, silence: Duration) -> Result<Client, ConnectError> {
        self.client_telling(silence, |_| {})
    }

    /// The same, and `asked` hears of each pause that the API server asks for, by 429 or by 503 with `Retry-After`. What is
    /// answered so is sent again after that; what else is to be sent there can wait as well.
    ///
    /// # Errors
    /// When the credentials can't be used.
    pub fn client_telling(
        &self,
        silence: Duration,
        asked: impl Fn(Pause) + Clone + Send + Sync + 'static,
    ) -> Result<Client, ConnectError> {
        let bounded = ServiceBuilder::new()
            .layer(retry())
            .map_request(signed(self.agent()))
            .layer_fn(|inner| Telling::new(inner, asked.clone()))
            .map_response(|answer: Response<TimeoutBody<Held>>| answer.map(|body| body.map_err(cut_off)))
            .layer(ResponseBodyTimeoutLayer::new(silence))
            .layer(TimeoutLayer::new(silence))
            .service(self.transport()?);
        Ok(Client::new(bounded, self.default_namespace()))
    }

    fn client_with(&self, pings: Pings) -> Result<Client, ConnectError> {
        let whole = ServiceBuilder::new()
            .layer(retry())
            .map_request(signed(self.agent()))
            .map_err(BoxError::from)
            .service(Transport::new(self.clone(), pings)?);
        Ok(Client::new(whole, self.default_namespace()))
    }
}

/// By this kind of error kube takes a watch for one that has ended.
fn cut_off(error: BoxError) -> BoxError {
    if error.is::<TimeoutError>() {
        return io::Error::new(io::ErrorKind::UnexpectedEof, "the API server was silent for too long").into();
    }
    error
}

/// Says in each request who asks.
fn signed(agent: HeaderValue) -> impl Fn(Request<KubeBody>) -> Request<Body> + Clone + Send + Sync + 'static {
    move |mut request| {
        request.headers_mut().insert(USER_AGENT, agent.clone());
        request.map(|body| body.map_err(|error| BodyError(error.into())).boxed_unsync())
    }
}

/// What kube's own client does with 429, 503 and 504, for a moment: after that the caller is told, and says so in a log
/// or a status. By kube's own policy a request can be tried again for minutes, the last pause being a third of that:
/// long after the API server is well again.
fn retry() -> RetryLayer<RetryPolicy> {
    let [first, longest] = PAUSES;
    RetryLayer::new(RetryPolicy::new(first, longest, ATTEMPTS, true).unwrap_or_else(|_| RetryPolicy::server_retry()))
}
