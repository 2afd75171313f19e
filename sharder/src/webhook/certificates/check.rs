//! Whether certificates are what they should be, asked as the API server will ask: by a TLS client's own check.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use ringside_runtime::certificates::{Authority, ServingPair, Validity};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    sign::CertifiedKey,
};

use super::{AUTHORITY, Signer};

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

/// A certificate with its chain and key, ready to be served; both as PEM.
pub(crate) fn certified(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, UnusableCertificate> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key)?;
    Ok(CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?)
}

/// Whether a client that trusts this authority, as PEM, takes the pair for a server of all these names.
pub(super) fn accepted(authority: &str, pair: &ServingPair, names: &BTreeSet<String>, now: Timestamp) -> bool {
    let check = || {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).ok()?).ok()?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
        // That the key fits as well.
        let served = certified(pair.certificate.as_bytes(), pair.key.as_bytes()).ok()?;
        let now = UnixTime::since_unix_epoch(now.duration_since(Timestamp::UNIX_EPOCH).try_into().ok()?);
        let (certificate, chain) = served.cert.split_first()?;
        for name in names {
            let name = ServerName::try_from(name.clone()).ok()?;
            verifier.verify_server_cert(certificate, chain, &name, &[], now).ok()?;
        }
        Some(())
    };
    check().is_some()
}

impl Signer {
    /// Whether a client that trusts the certificate trusts what the key signs.
    pub(super) fn is_whole(&self, now: Timestamp) -> bool {
        let name = "localhost".to_owned();
        let sample = Authority::with_key(AUTHORITY, &self.key).and_then(|authority| {
            let validity = Validity::lasting(now, std::time::Duration::from_secs(1));
            authority.sign("ringside-sharder", [name.clone()], validity)
        });
        sample.is_ok_and(|sample| accepted(&self.certificate, &sample, &[name].into(), now))
    }

    /// How long the certificate is valid; not at all where it is none.
    pub(super) fn validity(&self) -> Option<Validity> {
        Validity::of(self.certificate.as_bytes()).ok()
    }
}
