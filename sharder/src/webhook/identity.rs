//! The certificate that the webhook shows, exchangeable while it serves.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio_rustls::TlsAcceptor;

use super::certificates::Certificates;

/// Why certificates can't be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnusableCertificate {
    /// They are not what they should be.
    #[error("it is no PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// Certificate and key don't fit.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// The certificate that is shown in new handshakes; clones share it. None at first: handshakes then fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServingIdentity(Arc<ArcSwapOption<CertifiedKey>>);

impl ServingIdentity {
    /// Shows these from now on.
    pub(crate) fn set(&self, certificates: &Certificates) -> Result<(), UnusableCertificate> {
        let chain = CertificateDer::pem_slice_iter(&certificates.certificate).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&certificates.key)?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        self.0.store(Some(Arc::new(certified)));
        Ok(())
    }

    /// Accepts TLS connections with whatever certificate is current.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(ring::default_provider().into());
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
        self.0.load_full()
    }
}
