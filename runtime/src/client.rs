//! The connections to the API server, for all that either binary sends there.
//!
//! [`ApiServer`] knows where it is and with which credentials, and follows the files that say so. A [`Transport`] is a
//! set of connections made with them: HTTP/2 connections that carry a bounded number of requests each, and HTTP/1.1
//! where a connection becomes something else, for short reads, or where the API server has no HTTP/2. [`ApiServer::client`] gives a
//! [`kube::Client`] on a transport of its own.

use std::{io, path::PathBuf};

use kube::config::{InClusterError, KubeconfigError};
use rustls::pki_types::InvalidDnsNameError;

mod access;
mod addresses;
mod api_server;
mod connector;
mod handshake;
mod http2;
mod no_proxy;
mod pauses;
mod place;
mod requests;
mod silence;
mod source;
mod transport;

pub use crate::no_answer::{BoxError, NoAnswer};
pub use api_server::ApiServer;
pub use pauses::Pause;
pub use place::{Connection, CutOff, Held};
pub use transport::{Body, BodyError, Short, Transport, Watch};

/// How many bytes of a [`Watch`] come over HTTP/2 while its answer is not read.
pub const WATCH_WINDOW: u32 = 64 << 10;

/// Why the API server can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig file can't be used.
    #[error(
        "the kubeconfig '{path}' can't be used: {source}; check that it exists, is readable, and has a current context"
    )]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: KubeconfigError,
    },
    /// This is not a pod, or its service account is not mounted.
    #[error(
        "not inside a cluster: {0}; run as a pod with its service account's token mounted, or name a file with --kubeconfig"
    )]
    InCluster(#[from] InClusterError),
    /// A file that holds a certificate or a key.
    #[error("'{path}' can't be read: {source}; check that it exists and is readable")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Credentials or certificates.
    #[error("the credentials for the API server can't be used: {0}")]
    Credentials(String),
    /// The bundle of authorities is there, and there is none in it.
    #[error("the API server's CA bundle has no certificate in it: check the file or the kubeconfig that it comes from")]
    NoAuthority,
    /// The name that the server's certificate has to have.
    #[error("the name that the API server's certificate must have can't be used: {0}; check tls-server-name")]
    ServerName(#[source] InvalidDnsNameError),
    /// The kubeconfig wants a proxy on the way there.
    #[error("the kubeconfig names a proxy-url, which is not supported: the API server has to be reached directly")]
    ProxyUrl,
    /// The environment wants a proxy on the way there.
    #[error(
        "HTTPS_PROXY in the environment is not supported: the API server has to be reached directly; if it can be, add {0} to NO_PROXY"
    )]
    Proxied(String),
    /// Asked only of credentials that replace others.
    #[error("no answer with the new credentials: {0}")]
    Refused(#[source] BoxError),
    /// The API server does not know them, or not yet.
    #[error("the API server does not accept the new credentials")]
    Unauthorized,
    /// Reading the files was cut off.
    #[error("the files were not read to the end: {0}")]
    Interrupted(#[source] BoxError),
}
