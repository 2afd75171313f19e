//! A certificate that cert-manager keeps, in a Secret that the kubelet shows as files.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    time::Duration,
};

use ringside_runtime::admin::Check;

use super::UnusableCertificate;
use crate::webhook::ServingIdentity;

/// How often the files are read. The kubelet itself brings them up to date once a minute or so.
const LOOK: Duration = Duration::from_secs(10);

/// The files, named as the keys of a Secret of type `kubernetes.io/tls`.
const FILES: [&str; 2] = ["tls.crt", "tls.key"];

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
enum FilesError {
    /// A file can't be read.
    #[error("can't read {path}: {source}")]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// They are no certificate and key that fit.
    #[error("can't serve the certificate: {0}")]
    Unusable(#[from] UnusableCertificate),
}

/// Serves what is in the files, also when that changes; what can't be served changes nothing.
pub(crate) async fn follow_files(
    folder: PathBuf,
    identity: ServingIdentity,
    certified: Check,
) -> Result<(), Infallible> {
    let mut served = None;
    let mut told: Option<String> = None;
    loop {
        let outcome = read(&folder).await.and_then(|files| {
            if served.as_ref() != Some(&files) {
                let [certificate, key] = &files;
                let until = identity.set(certificate, key)?.map(tracing::field::display);
                tracing::info!(folder = %folder.display(), until, "serving the webhook with a new certificate");
                served = Some(files);
                certified.pass();
            }
            Ok(())
        });
        // Both files change at once, but they are read one after the other: what is wrong with them is told the second time.
        let fault = outcome.err().map(|fault| fault.to_string());
        if let Some(fault) = fault.as_ref().filter(|_| told == fault || served.is_none()) {
            tracing::warn!(folder = %folder.display(), fault, "can't use the webhook's certificate; trying again");
        }
        told = fault;
        tokio::time::sleep(LOOK).await;
    }
}

async fn read(folder: &Path) -> Result<[Vec<u8>; 2], FilesError> {
    let read = async |name| {
        let path = folder.join(name);
        tokio::fs::read(&path).await.map_err(|source| FilesError::Read { path, source })
    };
    Ok([read(FILES[0]).await?, read(FILES[1]).await?])
}
