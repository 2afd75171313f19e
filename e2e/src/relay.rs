//! A relay between a client of the API server and the API server: it keeps what passes, to compare it with what was
//! sent, it holds requests back, and it answers by script what a real API server seldom does, hinders what concerns one
//! resource, or asks a stand-in before the API server.
//!
//! It passes everything on as it came, upgrades too, but for what belongs to one connection. Only requests that carry
//! a [`MARK`] are kept, held or answered by script, so that tests that run side by side don't see each other's. Where clients
//! can't say it themselves, one relay before another marks what passes.

mod connection;
mod forward;
mod hindrance;
mod holds;
mod record;
mod script;

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex, atomic::Ordering},
};

use http::{HeaderValue, Response, request::Parts};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};

use self::{
    connection::Connections,
    forward::Forward,
    holds::Hold,
    record::{Records, locked},
};
pub use self::{
    forward::Passing,
    hindrance::Hindrance,
    record::{Answered, KEPT, Recorded, Upgraded},
    script::{Part, Script},
};
use crate::control_plane::{AnotherApiServer, ControlPlane};

/// How many headers a request or an answer may have by HTTP/1.1. The API server counts none.
pub const MAX_HEADERS: usize = 1000;

/// The header that says which test a request belongs to.
pub const MARK: &str = "x-ringside-case";

/// Which versions of HTTP the relay agrees to when a client asks (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// HTTP/1.1 only, as load balancers that end TLS often do.
    Http1,
    /// HTTP/2, and HTTP/1.1 for who asks for that, as the API server itself.
    Both,
}

impl Offer {
    fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http1 => vec![b"http/1.1".to_vec()],
            Self::Both => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        }
    }
}

/// A running relay. It ends, with all its connections, when it is dropped.
pub struct Relay {
    address: SocketAddr,
    rules: Arc<Rules>,
    ended: CancellationToken,
    _accepting: AbortOnDropHandle<()>,
    _connections: DropGuard,
}

type StandIn = dyn Fn(&Parts) -> Option<Response<Passing>> + Send + Sync;

/// What came, and what becomes of what comes.
#[derive(Default)]
struct Rules {
    records: Records,
    /// What was said of requests, by their mark.
    marked: Mutex<HashMap<String, Rule>>,
    /// The answer to requests without a script of their own.
    others: Mutex<Option<Script>>,
    /// The resource, as a part of the path, and what becomes of requests for it.
    hindrance: Mutex<Option<(String, Hindrance)>>,
    /// Who is asked before the API server; none where the API server is to answer.
    stand_in: Mutex<Option<Arc<StandIn>>>,
}

/// What becomes of requests with one mark.
#[derive(Clone, Default)]
struct Rule {
    script: Option<Script>,
    route: Option<Forward>,
    hold: Option<Arc<Hold>>,
}

impl Relay {
    /// Starts one in front of the control plane's API server, with the API server's own certificate.
    pub async fn start(control_plane: &ControlPlane, offer: Offer) -> anyhow::Result<Self> {
        Self::before(control_plane, &control_plane.url(), &control_plane.ca_path(), offer, None).await
    }

    /// Starts one in front of another server that answers as an API server does, at this address and with a certificate
    /// of the authority in `ca`. To clients it is the control plane's API server. What passes by it is kept under the
    /// mark, and carries it from there on.
    pub async fn marking(
        control_plane: &ControlPlane,
        address: SocketAddr,
        ca: &Path,
        mark: &str,
    ) -> anyhow::Result<Self> {
        let mark = HeaderValue::from_str(mark)?;
        Self::before(control_plane, &format!("https://{address}"), ca, Offer::Both, Some(mark)).await
    }

    async fn before(
        control_plane: &ControlPlane,
        url: &str,
        ca: &Path,
        offer: Offer,
        mark: Option<HeaderValue>,
    ) -> anyhow::Result<Self> {
        let (certificate, key) = control_plane.server_pair();
        let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_file(key)?;
        let mut tls = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        tls.alpn_protocols = offer.protocols();

        let rules = Arc::<Rules>::default();
        let ended = CancellationToken::new();
        let forward = Forward::new(url, ca, ended.clone())?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let connections = Connections { acceptor, rules: rules.clone(), forward, mark, ended: ended.clone() };
        let accepting = AbortOnDropHandle::new(tokio::spawn(connections.accept(listener)));
        Ok(Self { address, rules, ended: ended.clone(), _accepting: accepting, _connections: ended.drop_guard() })
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it answers, as `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// From now on requests with this mark are answered so, and don't reach the API server.
    pub fn answer(&self, mark: &str, script: Script) {
        self.rule(mark, |rule| rule.script = Some(script));
    }

    /// From now on requests with this mark go to another API server, with the same certificate.
    pub fn send_on(&self, mark: &str, control_plane: &ControlPlane, to: &AnotherApiServer) -> anyhow::Result<()> {
        let forward = Forward::new(to.url(), &control_plane.ca_path(), self.ended.clone())?;
        self.rule(mark, |rule| rule.route = Some(forward));
        Ok(())
    }

    /// From now on requests with this mark wait here, read to their end, before they are sent on.
    pub fn hold(&self, mark: &str) {
        self.rule(mark, |rule| _ = rule.hold.get_or_insert_default());
    }

    /// How many requests with this mark wait.
    pub fn held(&self, mark: &str) -> usize {
        self.rule(mark, |rule| rule.hold.as_ref().map_or(0, |hold| hold.waiting.load(Ordering::Relaxed)))
    }

    /// Sends on all that wait with this mark; others that come don't wait.
    pub fn release(&self, mark: &str) {
        if let Some(hold) = self.rule(mark, |rule| rule.hold.take()) {
            hold.released.cancel();
        }
    }

    fn rule<T>(&self, mark: &str, change: impl FnOnce(&mut Rule) -> T) -> T {
        change(locked(&self.rules.marked).entry(mark.to_owned()).or_default())
    }

    /// From now on this becomes of requests for a resource, whatever they carry: of those with this part in their paths.
    pub fn hinder(&self, resource: &str, hindrance: Hindrance) {
        *locked(&self.rules.hindrance) = Some((resource.to_owned(), hindrance));
    }

    /// Nothing hinders requests any more.
    pub fn mend(&self) {
        *locked(&self.rules.hindrance) = None;
    }

    /// From now on this is asked first, whatever requests carry; what it does not answer passes on as before.
    pub fn ask_first(&self, answers: impl Fn(&Parts) -> Option<Response<Passing>> + Send + Sync + 'static) {
        *locked(&self.rules.stand_in) = Some(Arc::new(answers));
    }

    /// From now on all other requests are answered so, as by an API server of an aggregated group.
    pub fn answer_others(&self, script: Script) {
        *locked(&self.rules.others) = Some(script);
    }
}
