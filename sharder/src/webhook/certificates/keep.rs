//! Keeps the certificates in their Secret, and serves what is in it.
//!
//! Every replica does the same: who comes first makes what is due, and the others take it up. The Secret's resourceVersion
//! decides who was first.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use ringside_runtime::{
    admin::Check,
    certificates::{CertificateError, Validity},
    explain::{code, explain},
};
use tokio::sync::watch;

use super::{
    Certificates, Lifetimes,
    check::UnusableCertificate,
    plan::{Change, Need},
    published::is_published,
    secret::{SECRET_NAME, empty, read, write},
};
use crate::{
    FIELD_MANAGER,
    client_config::{SERVICE_NAME, Trust},
    news::tell,
    pauses::Pauses,
    webhook::ServingIdentity,
};

/// Tells what the time is. Certificates are valid by the wall clock, on which their readers check them.
pub(crate) type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
enum CertificatesError {
    /// The Secret, or the webhook configurations, can't be read or written.
    #[error("{}", explain(.0))]
    Request(#[from] kube::Error),
    /// They can't be made.
    #[error("can't make a certificate: {0}")]
    Make(#[from] CertificateError),
    /// They were made, and can't be served.
    #[error("can't serve the certificate: {0}")]
    Serve(#[from] UnusableCertificate),
}

/// The names at which the API server calls the webhook.
pub(crate) fn server_names(namespace: &str, host: Option<&str>) -> BTreeSet<String> {
    let service = format!("{SERVICE_NAME}.{namespace}.svc");
    let cluster_local = format!("{service}.cluster.local");
    let fixed = ["localhost", "127.0.0.1"].map(str::to_owned);
    fixed.into_iter().chain([service, cluster_local]).chain(host.map(str::to_owned)).collect()
}

/// Keeps them for one replica.
pub(crate) struct Keeper {
    api: Api<Secret>,
    client: Client,
    need: Need,
    identity: ServingIdentity,
    trust: watch::Sender<Option<Trust>>,
    certified: Check,
    now: WallClock,
    /// As they were seen last, and the version of the Secret that they were in.
    known: Option<(Option<String>, Certificates)>,
    /// What is served, which may be older.
    served: Option<Certificates>,
    /// The authority, as PEM, that all webhook configurations trust, and since when at least.
    published: Option<(String, Timestamp)>,
}

impl Keeper {
    /// For a webhook with these names.
    pub(crate) fn new(
        (client, namespace): (&Client, &str),
        (names, lifetimes): (BTreeSet<String>, Lifetimes),
        (identity, certified): (ServingIdentity, Check),
        trust: watch::Sender<Option<Trust>>,
        now: WallClock,
    ) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            client: client.clone(),
            need: Need { names, lifetimes },
            identity,
            trust,
            certified,
            now,
            known: None,
            served: None,
            published: None,
        }
    }

    /// Keeps them until it is dropped.
    pub(crate) async fn run(mut self) -> Result<(), Infallible> {
        let mut pauses = Pauses::new();
        loop {
            match self.look().await {
                Ok(()) => {
                    pauses = Pauses::new();
                    tokio::time::sleep(self.need.lifetimes.look()).await;
                }
                Err(fault) => {
                    tracing::warn!(secret = SECRET_NAME, %fault, "can't keep the webhook's certificates; trying again");
                    pauses.next().await;
                }
            }
        }
    }

    /// Looks at the Secret once, and brings it up to date.
    async fn look(&mut self) -> Result<(), CertificatesError> {
        loop {
            let now = (self.now)();
            let stored = match self.api.get_opt(SECRET_NAME).await? {
                Some(stored) => stored,
                // RBAC limits a create to one name only where it is an apply. Which replica fills it is decided below.
                None => {
                    let empty = Patch::Apply(empty());
                    self.api.patch(SECRET_NAME, &PatchParams::apply(FIELD_MANAGER), &empty).await?
                }
            };
            let version = stored.metadata.resource_version.clone();
            let (found, mut changes) = self.found(&stored, now)?;
            let mut wanted = found.clone();
            let settled = match &found.next {
                Some(next) => self.is_settled(&found, &next.certificate, now).await?,
                None => false,
            };
            while let Some((change, after)) = wanted.step(&self.need, settled, now)? {
                changes.push(change);
                wanted = after;
            }
            if changes.is_empty() {
                return self.take(version, wanted).await;
            }
            let secret = write(&wanted, stored.metadata);
            let written = self.api.replace(SECRET_NAME, &PostParams::default(), &secret).await;
            match written {
                Ok(written) => {
                    tracing::info!(secret = SECRET_NAME, ?changes, "wrote the webhook's certificates");
                    return self.take(written.metadata.resource_version, wanted).await;
                }
                // Another replica was faster, or a user deleted it just now: what is there counts.
                Err(error) if matches!(code(&error), Some(404 | 409)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What to go on from, and what of that is to be written whatever comes.
    fn found(&self, stored: &Secret, now: Timestamp) -> Result<(Certificates, Vec<Change>), CertificatesError> {
        if let Some((Some(version), known)) = &self.known
            && stored.metadata.resource_version.as_ref() == Some(version)
        {
            return Ok((known.clone(), Vec::new()));
        }
        let fault = match read(stored, now) {
            Ok(found) => return Ok(self.with_ours(found, now)),
            Err(nonsense) => nonsense.to_string(),
        };
        if let Some((_, known)) = &self.known {
            tracing::warn!(
                secret = SECRET_NAME,
                fault,
                "another client changed or deleted the Secret with the webhook's certificates; writing it again as it was"
            );
            return Ok((known.clone(), vec![Change::Made]));
        }
        if stored.data.is_some() {
            tracing::warn!(
                secret = SECRET_NAME,
                fault,
                "the Secret can't be used; making new certificates for the webhook"
            );
        }
        Ok((Certificates::make(&self.need, now)?, vec![Change::Made]))
    }

    /// What another replica made that had nothing to go on from does not trust what this one serves.
    fn with_ours(&self, found: Certificates, now: Timestamp) -> (Certificates, Vec<Change>) {
        let Some(served) = &self.served else { return (found, Vec::new()) };
        let ended = || served.signer.validity().is_none_or(|validity| !validity.contains(now));
        if found.trusted().any(|pem| pem == served.signer.certificate) || ended() {
            return (found, Vec::new());
        }
        (found.trusting(&served.signer), vec![Change::Announced])
    }

    /// Whether every API server trusts the authority by now.
    async fn is_settled(
        &mut self,
        certificates: &Certificates,
        authority: &str,
        now: Timestamp,
    ) -> Result<bool, kube::Error> {
        if !is_published(&self.client, certificates, authority).await? {
            self.published = None;
            return Ok(false);
        }
        let since = match &self.published {
            Some((published, since)) if published == authority => *since,
            _ => self.published.insert((authority.to_owned(), now)).1,
        };
        Ok(since + self.need.lifetimes.settling() <= now)
    }

    /// Tells the leader whom to trust, and serves what is trusted already.
    async fn take(&mut self, version: Option<String>, certificates: Certificates) -> Result<(), CertificatesError> {
        let now = (self.now)();
        let bundle = Trust::Bundle(certificates.bundle());
        tell(&self.trust, Some(bundle));
        self.known = Some((version, certificates.clone()));
        let good = |served: &Certificates| {
            Validity::of(served.pair.certificate.as_bytes()).is_ok_and(|validity| validity.contains(now))
        };
        if let Some(served) = self.served.clone().filter(good) {
            if served.pair == certificates.pair {
                return Ok(());
            }
            let (before, after) = (&served.signer.certificate, &certificates.signer.certificate);
            if before != after && !self.is_settled(&certificates, after, now).await? {
                return Ok(());
            }
        }
        let until = self.identity.set(certificates.pair.certificate.as_bytes(), certificates.pair.key.as_bytes())?;
        tracing::info!(until = until.map(tracing::field::display), "serving the webhook with a new certificate");
        self.served = Some(certificates);
        self.certified.pass();
        Ok(())
    }
}
