//! Whom the API server trusts, and what the replicas show it.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use ringside_e2e::system::Sharder;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::webhook::fixture::Fixture;

/// What the API server knows of the ring's webhook.
pub(crate) async fn configuration(fixture: &Fixture) -> MutatingWebhookConfiguration {
    Api::all(fixture.client()).get(&fixture.ring.made_for()).await.unwrap()
}

/// Whom it is told to trust, if it is told.
pub(crate) fn bundle(configuration: &MutatingWebhookConfiguration) -> Option<Vec<u8>> {
    configuration.webhooks.as_ref().unwrap()[0].client_config.ca_bundle.clone().map(|bundle| bundle.0)
}

/// What each replica shows to who trusts what the API server is told to trust: it calls only one of them here.
pub(crate) async fn shown_by_all(fixture: &Fixture) -> Vec<CertificateDer<'static>> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&bundle(&configuration(fixture).await).unwrap()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let config = config.with_safe_default_protocol_versions().unwrap();
    let connector = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    let mut shown = Vec::new();
    for port in fixture.system.sharders().map(Sharder::webhook_port) {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let name = ServerName::try_from("ringside-sharder.ringside-system.svc").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        shown.push(stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned());
    }
    shown
}
