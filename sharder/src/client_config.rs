//! How the API server reaches the webhook of this installation, and whom it trusts there.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{ServiceReference, WebhookClientConfig},
};

use crate::config::WebhookUrl;

/// The Service by which the API server reaches the webhook.
pub(crate) const SERVICE_NAME: &str = "ringside-sharder";
/// On a webhook configuration: the Certificate, as `NAMESPACE/NAME`, whose authority cert-manager's injector writes into it
/// (CONTRACT, "Assignment": only where cert-manager manages the certificate).
pub(crate) const INJECT_CA_FROM: &str = "cert-manager.io/inject-ca-from";

/// How the API server reaches the webhook of this installation.
#[derive(Clone, Debug)]
pub(crate) struct ClientConfig {
    pub(crate) namespace: String,
    pub(crate) url: Option<WebhookUrl>,
}

/// Who vouches for the webhook's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// These authorities, as PEM.
    Bundle(Vec<u8>),
    /// The authority of this Certificate of cert-manager, which itself writes it into the configuration.
    InjectedFrom(String),
}

impl Trust {
    /// What a configuration has to say about that.
    pub(crate) fn annotations(&self) -> Option<BTreeMap<String, String>> {
        match self {
            Self::Bundle(_) => None,
            Self::InjectedFrom(certificate) => Some([(INJECT_CA_FROM.to_owned(), certificate.clone())].into()),
        }
    }
}

impl ClientConfig {
    /// How it calls this path.
    pub(crate) fn of(&self, path: &str, trust: &Trust) -> WebhookClientConfig {
        let ca_bundle = match trust {
            Trust::Bundle(bundle) => Some(ByteString(bundle.clone())),
            Trust::InjectedFrom(_) => None,
        };
        match &self.url {
            Some(url) => WebhookClientConfig { ca_bundle, url: Some(format!("{}{path}", url.base)), service: None },
            None => WebhookClientConfig {
                ca_bundle,
                url: None,
                service: Some(ServiceReference {
                    name: SERVICE_NAME.to_owned(),
                    namespace: self.namespace.clone(),
                    path: Some(path.to_owned()),
                    port: Some(443),
                }),
            },
        }
    }
}
