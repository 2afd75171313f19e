//! Which authorities the webhook configurations tell API servers to trust.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{Api, Client, api::ListParams};

use super::Certificates;
use crate::belonging::MANAGED;

/// Whether every configuration that leads to this webhook trusts the authority, given as PEM. Those of others that have the
/// same label trust none of ours.
pub(super) async fn is_published(
    client: &Client,
    certificates: &Certificates,
    authority: &str,
) -> Result<bool, kube::Error> {
    let ours = ListParams::default().labels(&format!("{}={}", MANAGED.0, MANAGED.1));
    let all = Api::<MutatingWebhookConfiguration>::all(client.clone()).list(&ours).await?;
    let bundles = all
        .items
        .iter()
        .flat_map(|one| one.webhooks.iter().flatten())
        .filter_map(|webhook| std::str::from_utf8(&webhook.client_config.ca_bundle.as_ref()?.0).ok());
    let mut leading_here = bundles.filter(|bundle| certificates.trusted().any(|pem| bundle.contains(pem)));
    Ok(leading_here.all(|bundle| bundle.contains(authority)))
}
