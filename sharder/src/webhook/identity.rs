//! The certificate that the webhook shows, exchangeable while it serves.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use ringside_runtime::certificates::Validity;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio_rustls::TlsAcceptor;

use super::certificates::{UnusableCertificate, certified};
use crate::metrics::Metrics;

/// The certificate that is shown in new handshakes; clones share it. None at first: handshakes then fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServingIdentity {
    shown: Arc<ArcSwapOption<CertifiedKey>>,
    metrics: Metrics,
}

impl ServingIdentity {
    /// Shows no certificate yet; the end of each is in these metrics.
    pub(crate) fn measured(metrics: Metrics) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Shows this certificate, with its chain and its key as PEM, from now on; returns when it ends, if it says so.
    pub(crate) fn set(&self, certificate: &[u8], key: &[u8]) -> Result<Option<Timestamp>, UnusableCertificate> {
        self.shown.store(Some(Arc::new(certified(certificate, key)?)));
        let until = Validity::of(certificate).map(|validity| validity.until).ok();
        self.metrics.certified_until(until);
        Ok(until)
    }

    /// What is shown at the moment.
    #[cfg(test)]
    pub(super) fn shown(&self) -> Option<Arc<CertifiedKey>> {
        self.shown.load_full()
    }

    /// Accepts TLS connections with whatever certificate is current.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into());
        let resolver = Arc::new(self.clone());
        let mut config =
            builder.with_safe_default_protocol_versions()?.with_no_client_auth().with_cert_resolver(resolver);
        // The API server's client offers both.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl ResolvesServerCert for ServingIdentity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.shown.load_full()
    }
}
