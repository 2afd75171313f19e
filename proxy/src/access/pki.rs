//! The proxy's own CA and server certificate.
//!
//! The CA signs this one certificate and its key is then forgotten: nothing else can ever be signed with it.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::jiff::Timestamp;
use ringside_runtime::certificates::{Authority, CertificateError, ServingPair, Validity};
use rustls::{
    RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use super::AccessError;

pub(super) const CA: &str = "ca.crt";
pub(super) const CERTIFICATE: &str = "tls.crt";
pub(super) const KEY: &str = "tls.key";

/// The names that clients know an API server by. kubeadm's certificates have those of the Service too.
const NAMES: [&str; 7] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];
/// A certificate that expires sooner than this is issued again at a start.
const MARGIN_DAYS: u64 = 30;
const DAY: u64 = 24 * 60 * 60;

/// CA, certificate and key, in PEM.
pub(super) struct Pair {
    pub(super) ca: String,
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Pair {
    /// For a server that is reached by [`NAMES`] and at `listen`.
    pub(super) fn generate(listen: IpAddr) -> Result<Self, CertificateError> {
        let (authority, validity) = (Authority::new("ringside-proxy CA")?, Validity::long(Timestamp::now()));
        let ServingPair { certificate, key } = authority.sign("ringside-proxy", names(listen), validity)?;
        Ok(Self { ca: authority.certificate(validity)?, certificate, key })
    }

    /// The pair, if a client that trusts the CA would accept the certificate, now and for a while.
    pub(super) fn still_good(self, listen: IpAddr) -> Option<Self> {
        let now = UnixTime::now();
        let later = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.as_secs() + MARGIN_DAYS * DAY));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.as_bytes()).ok()?).ok()?;
        let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).build().ok()?;
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).ok()?;
        for name in names(listen) {
            let name = ServerName::try_from(name).ok()?;
            for at in [now, later] {
                verifier.verify_server_cert(&certificate, &[], &name, &[], at).ok()?;
            }
        }
        // Also checks that the key belongs to the certificate.
        self.server_config().ok()?;
        Some(self)
    }

    pub(super) fn server_config(&self) -> Result<ServerConfig, AccessError> {
        let bad = rustls::Error::General;
        let pem = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).map_err(|error| bad(error.to_string()));
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| bad(error.to_string()))?;
        let mut config =
            ServerConfig::builder().with_no_client_auth().with_single_cert(vec![pem(&self.certificate)?], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// An address that listens everywhere is no name: which addresses that are is not known, and may change.
fn names(listen: IpAddr) -> Vec<String> {
    let own = Some(listen).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string());
    let own = own.filter(|ip| !NAMES.contains(&ip.as_str()));
    NAMES.iter().map(|&name| name.to_owned()).chain(own).collect()
}
