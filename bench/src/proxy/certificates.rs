//! The one certificate of all servers of a run, and how clients trust it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::loads::Protocol;

/// The name in the certificate.
pub(super) const SERVER: &str = "localhost";

/// Certificate and key, as files of one folder.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes a certificate that signs itself.
    ///
    /// # Errors
    /// When it can't be made or written.
    pub fn create(folder: &Path) -> anyhow::Result<Self> {
        let own = rcgen::generate_simple_self_signed([SERVER.to_owned(), "127.0.0.1".to_owned()])?;
        let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
        let made = Self { folder: folder.to_owned() };
        fs::write(made.certificate(), &certificate).context("write the certificate")?;
        fs::write(made.key(), &key).context("write the key")?;
        fs::write(made.both(), certificate + &key).context("write certificate and key")?;
        Ok(made)
    }

    /// Those in a folder, where they were created by another process.
    #[must_use]
    pub fn of(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn certificate(&self) -> PathBuf {
        self.folder.join("server.crt")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.folder.join("server.key")
    }

    /// Certificate and key in one file.
    pub(super) fn both(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    /// How a server of ours is secured.
    pub(super) fn of_server(&self) -> anyhow::Result<ServerConfig> {
        let certificate = CertificateDer::from_pem_file(self.certificate()).context("read the certificate")?;
        let key = PrivateKeyDer::from_pem_file(self.key()).context("read the key")?;
        let mut tls = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(tls)
    }
}

/// A client of the server whose certificate this file vouches for.
pub(super) fn of_client(authority: &Path, protocols: &[Protocol]) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).with_context(|| format!("read {}", authority.display()))?)?;
    let mut tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.alpn().to_vec()).collect();
    Ok(Arc::new(tls))
}
