//! What the controller needs to use this proxy, in a folder that both containers mount.
//!
//! `kubeconfig`, `ca.crt`, `token` and `namespace`, as in a service account's folder, so that clients that ignore
//! KUBECONFIG can be given this folder in its place; the server's key, which only the proxy reads; and `instance`, by
//! which a shard that is no pod knows its own Lease. Everything is kept over a restart of the proxy: a controller that
//! runs already stays connected. The token is handed out with another generation each time that a process which runs
//! could have missed something ([`crate::gap`]); the former ones stay right.

use std::{io, net::SocketAddr, path::PathBuf};

use ringside_runtime::certificates::CertificateError;
use rustls::ServerConfig;

pub(crate) mod credentials;
mod folder;
mod kubeconfig;
mod pki;
mod random;
mod token;
mod writer;

use folder::Folder;
pub use token::Token;
use writer::Writer;

/// Size of the instance id in a shard Lease: no secret, but unique to this instance.
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
    /// Hands the token out again.
    pub handout: Handout,
    /// As what generation it is handed out now.
    pub generation: u64,
    /// A random id that is the same after a restart, and another with another folder.
    pub instance: String,
    /// Whether a proxy ran with this folder before that may have left writes under way.
    pub restarted: bool,
}

/// The files with the token in them.
#[derive(Clone, Debug)]
pub struct Handout {
    path: PathBuf,
    listen: SocketAddr,
    ca: String,
    namespace: String,
    token: Token,
    writer: Writer,
}

impl Handout {
    /// Runs what writes them on the thread for that, behind what came before. No caller waits for the disk.
    pub(crate) fn later(&self, write: impl FnOnce(&Self) + Send + 'static) {
        let handout = self.clone();
        self.writer.run(move || write(&handout));
    }

    /// Returns when all that was to be written by now is on the disk, or was refused.
    pub(crate) async fn written(&self) {
        self.writer.idle().await;
    }

    /// Writes them with this generation.
    ///
    /// # Errors
    /// When the folder can't be written.
    pub fn write(&self, generation: u64) -> Result<(), AccessError> {
        let (folder, token) = (Folder::open(&self.path)?, self.token.of_generation(generation));
        folder.write("token", &token)?;
        folder.write("kubeconfig", &kubeconfig::render(self.listen, &self.ca, &token, &self.namespace))
    }

    /// A file of this proxy's own, as one before wrote it.
    pub(crate) fn kept(&self, name: &str) -> Option<String> {
        Folder::open(&self.path).ok()?.read(name)
    }

    /// Keeps one for a proxy after this one.
    ///
    /// # Errors
    /// When the folder can't be written.
    pub(crate) fn keep(&self, name: &str, text: &str) -> Result<(), AccessError> {
        Folder::open(&self.path)?.write_private(name, text)
    }

    #[cfg(test)]
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The same, for tests that are not async.
    #[cfg(test)]
    pub(crate) fn wait_until_written(&self) {
        let (done, written) = std::sync::mpsc::channel::<()>();
        self.later(move |_| drop(done));
        let _ = written.recv();
    }

    /// Lets the next write of a file stall, as on a disk that does not answer, until the test reads the returned FIFO.
    #[cfg(test)]
    pub(crate) fn stall(&self, name: &str) -> PathBuf {
        let fifo = self.path.join(format!(".{name}.new"));
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().is_ok_and(|it| it.success()));
        fifo
    }

    /// One for tests of other rooms.
    #[cfg(test)]
    pub(crate) fn to(path: PathBuf) -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 6443));
        let (ca, namespace, token) = (String::new(), "ns".to_owned(), Token::of("secret"));
        Self { path, listen, ca, namespace, token, writer: Writer::start() }
    }
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
        tracing::info!(folder = %path.display(), "reused the existing certificate");
        pair
    } else {
        let pair = pki::Pair::generate(listen.ip())?;
        folder.write_private(pki::KEY, &pair.key)?;
        folder.write(pki::CERTIFICATE, &pair.certificate)?;
        folder.write(pki::CA, &pair.ca)?;
        pair
    };
    // Who connected to the proxy before does not know what was while there was none.
    let (token, generation) = match folder.read("token").and_then(|text| Token::parse(&text)) {
        Some((token, generation)) => (token, generation.saturating_add(1)),
        None => (Token::generate(), 0),
    };
    let instance = folder.read("instance").filter(|text| random::is_ours::<INSTANCE_BYTES>(text));
    let restarted = instance.is_some() && !folder.take(ENDED)?;
    let instance = instance.unwrap_or_else(random::generate::<INSTANCE_BYTES>);
    folder.write("instance", &instance)?;
    folder.write("namespace", namespace)?;
    let (tls, namespace) = (pair.server_config()?, namespace.to_owned());
    let handout = Handout {
        path: path.to_owned(),
        listen,
        ca: pair.ca,
        namespace,
        token: token.clone(),
        writer: Writer::start(),
    };
    handout.write(generation)?;
    Ok(Access { tls, token, handout, generation, instance, restarted })
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
        let secret = || read("token").split_once('.').unwrap().0.to_owned();
        let kept = || [secret(), read("ca.crt"), read("tls.crt"), read("tls.key"), read("instance")];
        let before = kept();
        let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o777;
        for name in ["kubeconfig", "ca.crt", "token", "namespace", "instance"] {
            assert_eq!(mode(name), 0o644, "{name}: the controller may have any user");
        }
        assert_eq!(mode(""), 0o750, "and where it is no volume, its folder is closed to others");
        assert_eq!(mode("tls.key"), 0o600);
        assert_eq!(read("namespace"), "ns");
        assert!(prepare(&path, listen(), "ns").unwrap().restarted);
        ended_in_order(&path).unwrap();
        assert!(!prepare(&path, listen(), "ns").unwrap().restarted, "the one before left nothing under way");
        assert!(prepare(&path, listen(), "ns").unwrap().restarted, "it is unknown how this one ended");
        assert_eq!(before, kept());
        let token = read("token");
        assert!(token.ends_with(".3") && read("kubeconfig").contains(&token), "who reads it again can be told by that");
        let handed = prepare(&path, listen(), "ns").unwrap();
        assert_eq!((handed.generation, handed.token.generation_of(token.as_bytes())), (4, Some(3)), "and is let in");
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
        assert_eq!(access.token.generation_of(token.as_bytes()), None);
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
        let token = fs::read_to_string(temp.path().join("token")).unwrap();
        assert_eq!(access.token.generation_of(token.as_bytes()), Some(0));
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
