//! Whom the API server trusts, what the replicas show it, and how many of its calls failed.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{Api, Client};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::webhook::fixture::Fixture;

/// Asks each replica as the API server asks, by what the API server is told to trust: it calls only one of them here.
pub(crate) async fn every_replica_answers(fixture: &Fixture) {
    let bundle = bundle(&configuration(fixture).await).unwrap();
    for sharder in fixture.system.sharders() {
        let answer = ask(sharder.webhook_port(), &bundle, fixture.ring.name()).await;
        assert_eq!(answer["response"]["patchType"], "JSONPatch", "{answer}");
    }
}

/// What the API server knows of the ring's webhook.
pub(crate) async fn configuration(fixture: &Fixture) -> MutatingWebhookConfiguration {
    Api::all(fixture.client()).get(&fixture.ring.made_for()).await.unwrap()
}

/// Whom it is told to trust, if it is told.
pub(crate) fn bundle(configuration: &MutatingWebhookConfiguration) -> Option<Vec<u8>> {
    configuration.webhooks.as_ref().unwrap()[0].client_config.ca_bundle.clone().map(|bundle| bundle.0)
}

/// The certificate that is shown there.
pub(crate) async fn shown(port: u16, bundle: &[u8]) -> CertificateDer<'static> {
    let stream = connect(port, bundle).await;
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

async fn connect(port: u16, bundle: &[u8]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle) {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(ring::default_provider().into());
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = ServerName::try_from("ringside-sharder.ringside-system.svc").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

async fn ask(port: u16, bundle: &[u8], ring: &str) -> Value {
    let mut stream = connect(port, bundle).await;
    let body = review();
    let head = format!(
        "POST /webhooks/sharder/clusterring/{ring} HTTP/1.1\r\nhost: sharder\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn review() -> String {
    let kind = json!({"group": "web.example.com", "version": "v1", "kind": "Website"});
    let resource = json!({"group": "web.example.com", "version": "v1", "resource": "websites"});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "asked-by-a-test", "kind": kind, "resource": resource, "name": "asked", "namespace": "default",
        "operation": "CREATE", "userInfo": {}, "dryRun": true, "object": {"metadata": {"name": "asked"}},
    }})
    .to_string()
}

/// How many writes the API server wrote down as passed without the webhook's answer.
pub(crate) fn annotated(fixture: &Fixture) -> usize {
    let log = std::fs::read_to_string(fixture.system.control_plane().audit_log()).unwrap();
    log.lines().filter(|line| line.contains("failed-open.mutating.webhook")).count()
}

/// How many calls of the ring's webhook the API server counts as failed, and let the write pass.
pub(crate) async fn failed_open(client: &Client) -> usize {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = client.request_text(request).await.unwrap();
    let failed = metrics.lines().filter(|line| line.starts_with("apiserver_admission_webhook_fail_open_count{"));
    let of_ours = failed.filter(|line| line.contains("sharder.sharding.timebertt.dev"));
    of_ours.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}
