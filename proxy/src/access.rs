//! What the controller needs to use this proxy, in a folder that both containers mount.
//!
//! `kubeconfig`, `ca.crt`, `token` and `namespace`, as in a service account's folder, so that clients that
//! ignore KUBECONFIG can be given this folder in its place; the server's key, for nobody else; and `instance`, by
//! which a shard that is no pod knows its own Lease. Everything is kept over a restart of the proxy: a controller
//! that runs already stays connected.

use std::{io, net::SocketAddr, path::PathBuf};

use ringside_runtime::certificates::CertificateError;
use rustls::ServerConfig;

pub(crate) mod credentials;
mod folder;
mod kubeconfig;
mod pki;
mod random;
mod token;

use folder::Folder;
pub use token::Token;

/// The id of this instance, for a shard Lease: no secret, but nobody else's.
const INSTANCE_BYTES: usize = 16;

/// Why the folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A file can't be read or written.
    #[error(
        "the access folder can't be used: {action} '{path}': {source}; mount a volume that this user may write there, or name another folder with --access-dir"
    )]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A new certificate can't be made.
    #[error("can't make a certificate: {0}")]
    Generate(#[from] CertificateError),
    /// The certificate can't be served.
    #[error("can't serve the certificate: {0}")]
    Serve(#[from] rustls::Error),
}

/// The secrets of the local side.
#[derive(Debug)]
pub struct Access {
    /// What the controller authenticates with.
    pub token: Token,
    /// What the proxy serves with.
    pub tls: ServerConfig,
    /// A random id that is the same after a restart, and another with another folder.
    pub instance: String,
    /// Whether a proxy ran with this folder before that may have left writes under way.
    pub restarted: bool,
}

/// Written by a proxy at its end, when nothing that passed it is under way any more. Its absence says nothing.
const ENDED: &str = "ended-in-order";

/// Says that nothing which passed this proxy is under way any more.
///
/// # Errors
/// When the folder can't be written.
pub fn ended_in_order(path: &std::path::Path) -> Result<(), AccessError> {
    Folder::open(path)?.write_private(ENDED, "")
}

/// Reads the folder and writes what is missing or can't be used any more.
///
/// # Errors
/// When the folder can't be written, or no certificate can be made.
pub fn prepare(path: &std::path::Path, listen: SocketAddr, namespace: &str) -> Result<Access, AccessError> {
    let folder = Folder::open(path)?;
    let pair = match folder.read(pki::CA).zip(folder.read(pki::CERTIFICATE)).zip(folder.read(pki::KEY)) {
        Some(((ca, certificate), key)) => pki::Pair { ca, certificate, key }.still_good(listen.ip()),
        None => None,
    };
    let pair = if let Some(pair) = pair {
        tracing::info!(folder = %path.display(), "using the certificate that is there");
        pair
    } else {
        let pair = pki::Pair::generate(listen.ip())?;
        folder.write_private(pki::KEY, &pair.key)?;
        folder.write(pki::CERTIFICATE, &pair.certificate)?;
        folder.write(pki::CA, &pair.ca)?;
        pair
    };
    let token = folder.read("token").and_then(|text| Token::parse(&text)).unwrap_or_else(Token::generate);
    folder.write("token", token.secret())?;
    let instance = folder.read("instance").filter(|text| random::is_ours::<INSTANCE_BYTES>(text));
    let restarted = instance.is_some() && !folder.take(ENDED)?;
    let instance = instance.unwrap_or_else(random::generate::<INSTANCE_BYTES>);
    folder.write("instance", &instance)?;
    folder.write("namespace", namespace)?;
    folder.write("kubeconfig", &kubeconfig::render(listen, &pair.ca, token.secret(), namespace))?;
    Ok(Access { tls: pair.server_config()?, token, instance, restarted })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{fs, os::unix::fs::PermissionsExt, sync::Arc};

    use rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier},
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    };

    use super::*;

    fn listen() -> SocketAddr {
        "127.0.0.1:6443".parse().unwrap()
    }

    #[test]
    fn everything_is_there_with_its_permissions_and_stays_over_a_restart() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("ringside");
        assert!(!prepare(&path, listen(), "ns").unwrap().restarted);
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
        let before: Vec<_> =
            ["token", "ca.crt", "tls.crt", "tls.key", "kubeconfig", "instance"].iter().map(|name| read(name)).collect();
        let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o777;
        for name in ["kubeconfig", "ca.crt", "token", "namespace", "instance"] {
            assert_eq!(mode(name), 0o640, "{name}");
        }
        assert_eq!(mode("tls.key"), 0o600);
        assert_eq!(read("namespace"), "ns");
        assert!(prepare(&path, listen(), "ns").unwrap().restarted);
        ended_in_order(&path).unwrap();
        assert!(!prepare(&path, listen(), "ns").unwrap().restarted, "the one before left nothing under way");
        assert!(prepare(&path, listen(), "ns").unwrap().restarted, "of this one nobody knows");
        let after: Vec<_> =
            ["token", "ca.crt", "tls.crt", "tls.key", "kubeconfig", "instance"].iter().map(|name| read(name)).collect();
        assert_eq!(before, after);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 7, "no temporary file stays");
    }

    #[test]
    fn what_is_damaged_is_made_anew() {
        let temp = tempfile::tempdir().unwrap();
        let other = prepare(temp.path(), listen(), "ns").unwrap();
        let token = fs::read_to_string(temp.path().join("token")).unwrap();
        fs::write(temp.path().join("tls.crt"), "nonsense").unwrap();
        fs::write(temp.path().join("token"), "").unwrap();
        fs::write(temp.path().join("instance"), "half").unwrap();
        let access = prepare(temp.path(), listen(), "ns").unwrap();
        assert!(!access.token.matches(token.as_bytes()));
        assert!(access.instance.len() == 32 && access.instance != other.instance, "{}", access.instance);
        assert!(fs::read_to_string(temp.path().join("tls.crt")).unwrap().contains("BEGIN CERTIFICATE"));
    }

    #[test]
    fn the_kubeconfig_is_one_that_clients_read() {
        let temp = tempfile::tempdir().unwrap();
        let access = prepare(temp.path(), listen(), "ns").unwrap();
        let read = kube::config::Kubeconfig::read_from(temp.path().join("kubeconfig")).unwrap();
        assert_eq!(read.clusters[0].cluster.as_ref().unwrap().server.as_deref(), Some("https://127.0.0.1:6443"));
        assert_eq!(read.contexts[0].context.as_ref().unwrap().namespace.as_deref(), Some("ns"));
        assert_eq!(read.current_context.as_deref(), Some("ringside"));
        assert!(read.auth_infos[0].auth_info.as_ref().unwrap().token.is_some());
        assert!(access.token.matches(access.token.secret().as_bytes()));
    }

    #[test]
    fn the_kubeconfig_names_where_the_certificate_is_good() {
        let temp = tempfile::tempdir().unwrap();
        for (listen, server) in [
            ("127.0.0.1:6443", "127.0.0.1:6443"),
            ("[::1]:6443", "[::1]:6443"),
            ("0.0.0.0:6443", "127.0.0.1:6443"),
            ("[::]:6443", "[::1]:6443"),
            ("10.1.2.3:6443", "10.1.2.3:6443"),
            ("127.0.0.2:6443", "127.0.0.2:6443"),
        ] {
            let listen: SocketAddr = listen.parse().unwrap();
            prepare(temp.path(), listen, "ns").unwrap();
            let read = kube::config::Kubeconfig::read_from(temp.path().join("kubeconfig")).unwrap();
            let url = format!("https://{server}");
            assert_eq!(read.clusters[0].cluster.as_ref().unwrap().server.as_deref(), Some(url.as_str()));
            let pem = |name: &str| CertificateDer::from_pem_file(temp.path().join(name)).unwrap();
            let mut roots = RootCertStore::empty();
            roots.add(pem("ca.crt")).unwrap();
            let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).build().unwrap();
            let name = ServerName::try_from(server.parse::<SocketAddr>().unwrap().ip().to_string()).unwrap();
            verifier.verify_server_cert(&pem("tls.crt"), &[], &name, &[], UnixTime::now()).unwrap();
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named_with_the_remedy() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        fs::write(&file, "").unwrap();
        let error = prepare(&file, listen(), "ns").unwrap_err().to_string();
        assert!(error.contains("--access-dir") && error.contains(&file.display().to_string()), "{error}");
    }
}
