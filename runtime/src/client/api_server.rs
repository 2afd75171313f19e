//! Where the API server is and with which credentials, as the files say at the moment.
//!
//! Certificates, keys and CA bundles are rotated under a running process. [`ApiServer::follow`] looks whether the files
//! have changed, or a credential plugin's certificate ends, and takes up what they say once the API server has answered to
//! it: a file that is half written, or does not fit the API server yet, changes nothing. Connections made with the old ones
//! go on until their last answer has ended.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::{HeaderValue, Request, StatusCode};
use rustls::ClientConfig;
use tokio::time::{sleep, timeout};

use super::{
    Body, BoxError, ConnectError, Transport,
    access::Access,
    addresses::Addresses,
    connector::{Connector, Offer},
    handshake::Pings,
    source::Source,
    transport::Generation,
};
use crate::shutdown::Shutdown;

/// How often the files are looked at. The kubelet itself takes about a minute to renew what it mounts.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long the API server may take to answer to new credentials, connections included.
const ANSWER: Duration = Duration::from_secs(30);

/// The API server; clones are the same one.
#[derive(Clone, Debug)]
pub struct ApiServer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    agent: HeaderValue,
    source: Source,
    addresses: Arc<Addresses>,
    access: ArcSwap<Access>,
}

impl ApiServer {
    /// Finds out how to reach the API server: from `kubeconfig`'s current context, or else as a pod. `agent` is who asks, as
    /// the API server's audit log and metrics say it of what is asked by a [`kube::Client`].
    ///
    /// # Errors
    /// When the file, or the pod's mounted service account, can't be used.
    pub fn find(kubeconfig: Option<&Path>, agent: &'static str) -> Result<Self, ConnectError> {
        let (agent, source) = (HeaderValue::from_static(agent), Source::new(kubeconfig));
        let access = ArcSwap::from_pointee(Access::read(&source)?);
        Ok(Self(Arc::new(Inner { agent, source, addresses: Arc::default(), access })))
    }

    pub(super) fn agent(&self) -> HeaderValue {
        self.0.agent.clone()
    }

    /// The namespace of the pod or of the kubeconfig's context.
    pub fn default_namespace(&self) -> String {
        self.access().config.default_namespace.clone()
    }

    /// A set of connections of its own.
    ///
    /// # Errors
    /// When the credentials can't be used.
    pub fn transport(&self) -> Result<Transport, ConnectError> {
        Transport::new(self.clone(), Pings::default())
    }

    /// Takes up what the files say whenever they have changed, until the shutdown.
    ///
    /// # Errors
    /// Never; the type is what a supervised task returns.
    pub async fn follow(self, shutdown: Shutdown) -> Result<(), Infallible> {
        loop {
            tokio::select! {
                () = shutdown.wait() => return Ok(()),
                () = sleep(LOOK_AGAIN) => {}
            }
            match self.look().await {
                Ok(Look::Same) => {}
                Ok(Look::Changed(access)) => {
                    self.0.access.store(access);
                    tracing::info!(
                        "the files with the API server's address or credentials changed: new connections use them"
                    );
                }
                Err(fault) => tracing::warn!(
                    %fault,
                    "the files with the API server's address or credentials changed, and can't be used; going on with what was read before"
                ),
            }
        }
    }

    async fn look(&self) -> Result<Look, ConnectError> {
        let (source, before) = (self.0.source.clone(), self.access());
        let read = tokio::task::spawn_blocking(move || before.is_outdated().then(|| Access::read(&source)).transpose());
        let Some(access) = read.await.map_err(|error| ConnectError::Interrupted(error.into()))?? else {
            return Ok(Look::Same);
        };
        let access = Arc::new(access);
        self.try_out(access.clone()).await?;
        Ok(Look::Changed(access))
    }

    /// Asks what everybody may ask. Credentials that the API server does not know are refused nevertheless; and TLS alone
    /// would prove nothing about them: it asks for client certificates, and lets all of them pass.
    async fn try_out(&self, access: Arc<Access>) -> Result<(), ConnectError> {
        let refused = |error: BoxError| ConnectError::Refused(error);
        let question = Request::get("/version").body(Body::default()).map_err(|error| refused(error.into()))?;
        let answer = timeout(ANSWER, Generation::new(self, access, Pings::default())?.send(question)).await;
        let answer = answer.map_err(|elapsed| refused(elapsed.into()))?.map_err(|error| refused(error.into()))?;
        if answer.status() == StatusCode::UNAUTHORIZED { Err(ConnectError::Unauthorized) } else { Ok(()) }
    }

    /// What to make connections with.
    pub(super) fn access(&self) -> Arc<Access> {
        self.0.access.load_full()
    }

    pub(super) fn connector(
        &self,
        access: &Access,
        tls: &ClientConfig,
        offer: Offer,
    ) -> Result<Connector, ConnectError> {
        Connector::new(&access.config, tls, offer, self.0.addresses.clone())
    }
}

enum Look {
    Same,
    Changed(Arc<Access>),
}
