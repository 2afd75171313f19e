//! A [`kube::Client`] on connections of its own.

use std::time::Duration;

use kube::{
    Client,
    client::{Body, retry::RetryPolicy},
};
use tower::{ServiceBuilder, retry::RetryLayer, timeout::TimeoutLayer};
use tower_http::timeout::ResponseBodyTimeoutLayer;

use super::{ApiServer, BoxError, ConnectError};

impl ApiServer {
    /// A client whose requests wait behind nobody else's.
    ///
    /// An answer that is silent for longer than `silence` ends with an error, before its head or after. Pings notice a
    /// peer that is gone; this notices one that is there and has nothing behind it.
    ///
    /// # Errors
    /// When the credentials can't be used.
    pub fn client(&self, silence: Option<Duration>) -> Result<Client, ConnectError> {
        let transport = self.transport(Body::empty)?;
        // What kube's own client does with 429, 503 and 504.
        let retry = RetryLayer::new(RetryPolicy::server_retry());
        let namespace = self.default_namespace();
        let Some(silence) = silence else {
            let whole = ServiceBuilder::new().layer(retry).map_err(BoxError::from).service(transport);
            return Ok(Client::new(whole, namespace));
        };
        let bounded = ServiceBuilder::new()
            .layer(retry)
            .layer(ResponseBodyTimeoutLayer::new(silence))
            .layer(TimeoutLayer::new(silence))
            .service(transport);
        Ok(Client::new(bounded, namespace))
    }
}
