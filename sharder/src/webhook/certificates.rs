//! The webhook's own CA and serving certificate, in a Secret that all replicas share.
//!
//! Whoever comes first creates it. The leader puts the CA into the webhook configurations.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use kube::{Api, Client, api::PostParams, core::ObjectMeta};

use ringside_runtime::{
    certificates::{Authority, CertificateError},
    explain::code,
};

/// The Secret.
const SECRET_NAME: &str = "ringside-sharder-webhook";
/// The names that the serving certificate is good for, so that a missing one is noticed without taking it apart.
const NAMES_ANNOTATION: &str = "ringside.dev/certificate-names";
/// The CA's name. Replacing it while all replicas serve is a matter of its own: until then it must last.
const AUTHORITY: &str = "ringside-sharder-ca";

/// CA and serving pair, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificates {
    pub(crate) ca: Vec<u8>,
    ca_key: Vec<u8>,
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
    names: BTreeSet<String>,
}

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificatesError {
    /// The Secret can't be read or written.
    #[error("{}", ringside_runtime::explain::explain(.0))]
    Secret(#[from] kube::Error),
    /// They can't be made.
    #[error("can't make a certificate: {0}")]
    Generate(#[from] CertificateError),
}

/// The names at which the API server calls the webhook.
pub(crate) fn server_names(namespace: &str, host: Option<&str>) -> BTreeSet<String> {
    let service = format!("sharder.{namespace}.svc");
    let cluster_local = format!("{service}.cluster.local");
    let fixed = ["localhost", "127.0.0.1"].map(str::to_owned);
    fixed.into_iter().chain([service, cluster_local]).chain(host.map(str::to_owned)).collect()
}

/// Reads the certificates that all replicas use, or makes them when this is the first one.
pub(crate) async fn obtain(
    client: &Client,
    namespace: &str,
    names: &BTreeSet<String>,
    now: Timestamp,
) -> Result<Certificates, CertificatesError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    loop {
        let stored = api.get_opt(SECRET_NAME).await?;
        let known = stored.as_ref().and_then(read);
        if let Some(certificates) = known.as_ref().filter(|known| names.is_subset(&known.names)) {
            return Ok(certificates.clone());
        }
        let certificates = match known {
            // The same CA, so that what the API server trusts already goes on working.
            Some(known) => known.renewed_for(names, now)?,
            None => Certificates::generate(names, now)?,
        };
        let secret = secret(&certificates, stored.map(|stored| stored.metadata));
        let written = match secret.metadata.resource_version {
            Some(_) => api.replace(SECRET_NAME, &PostParams::default(), &secret).await,
            None => api.create(&PostParams::default(), &secret).await,
        };
        match written {
            Ok(_) => {
                tracing::info!(namespace, secret = SECRET_NAME, "made certificates for the webhook");
                return Ok(certificates);
            }
            // Another replica was faster: its certificates count.
            Err(error) if code(&error) == Some(409) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Certificates {
    fn generate(names: &BTreeSet<String>, now: Timestamp) -> Result<Self, CertificateError> {
        let authority = Authority::new(AUTHORITY)?;
        let (ca, ca_key) = (authority.certificate(now)?, authority.key());
        let none =
            Self { ca: ca.into(), ca_key: ca_key.into(), certificate: vec![], key: vec![], names: BTreeSet::new() };
        none.renewed_for(names, now)
    }

    /// The same CA with a serving certificate for these names as well.
    fn renewed_for(&self, names: &BTreeSet<String>, now: Timestamp) -> Result<Self, CertificateError> {
        let authority = Authority::with_key(AUTHORITY, &String::from_utf8_lossy(&self.ca_key))?;
        let names: BTreeSet<_> = self.names.union(names).cloned().collect();
        let pair = authority.sign("ringside-sharder", names.iter().cloned(), now)?;
        Ok(Self { certificate: pair.certificate.into(), key: pair.key.into(), names, ..self.clone() })
    }
}

fn secret(certificates: &Certificates, stored: Option<ObjectMeta>) -> Secret {
    let mut metadata = stored.unwrap_or_default();
    metadata.name = Some(SECRET_NAME.to_owned());
    metadata.managed_fields = None;
    let names = certificates.names.iter().cloned().collect::<Vec<_>>().join(",");
    metadata.annotations.get_or_insert_default().insert(NAMES_ANNOTATION.to_owned(), names);
    let data = [
        ("ca.crt", &certificates.ca),
        ("ca.key", &certificates.ca_key),
        ("tls.crt", &certificates.certificate),
        ("tls.key", &certificates.key),
    ];
    let data: BTreeMap<_, _> = data.map(|(name, pem)| (name.to_owned(), ByteString(pem.clone()))).into();
    Secret { metadata, data: Some(data), ..Secret::default() }
}

/// What the Secret holds; none when something is missing, as in a Secret that was made by hand.
fn read(secret: &Secret) -> Option<Certificates> {
    let data = secret.data.as_ref()?;
    let get = |name: &str| data.get(name).map(|bytes| bytes.0.clone()).filter(|pem| !pem.is_empty());
    let names = secret.metadata.annotations.as_ref()?.get(NAMES_ANNOTATION)?;
    Some(Certificates {
        ca: get("ca.crt")?,
        ca_key: get("ca.key")?,
        certificate: get("tls.crt")?,
        key: get("tls.key")?,
        names: names.split(',').map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::webhook::ServingIdentity;

    fn names(host: Option<&str>) -> BTreeSet<String> {
        server_names("sharding-system", host)
    }

    #[test]
    fn certificates_survive_the_secret_and_can_be_served() {
        let made = Certificates::generate(&names(None), Timestamp::UNIX_EPOCH).unwrap();
        let read = read(&secret(&made, None)).unwrap();
        assert_eq!(read, made);
        ServingIdentity::default().set(&read).unwrap();
    }

    #[test]
    fn another_host_gets_another_certificate_of_the_same_authority() {
        let made = Certificates::generate(&names(None), Timestamp::UNIX_EPOCH).unwrap();
        let more = made.renewed_for(&names(Some("sharder.example.com")), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(more.ca, made.ca);
        assert_ne!(more.certificate, made.certificate);
        assert!(more.names.is_superset(&made.names) && more.names.contains("sharder.example.com"));
    }

    #[test]
    fn a_secret_with_something_missing_is_not_used() {
        let made = Certificates::generate(&names(None), Timestamp::UNIX_EPOCH).unwrap();
        let mut secret = secret(&made, None);
        secret.data.as_mut().unwrap().remove("ca.key");
        assert_eq!(read(&secret), None);
    }
}
