//! Certificates and their authorities are exchanged while objects are created, on every replica, and no call of the webhook
//! fails: a failure would be silent, as objects must be writable without it, so it is counted three ways.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Secret};
use kube::{Api, Client};
use ringside_e2e::system::Settings;
use ringside_ring::labels::webhook_configuration_name;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::TlsConnector;

use crate::ground::Ground;

/// Renewed after two thirds of it; a third is what a busy machine may take for that.
const LIFETIME: Duration = Duration::from_secs(15);
/// The time between two creates.
const PAUSE: Duration = Duration::from_millis(20);
/// Far more than the exchanges below need: an authority is succeeded after two lifetimes.
const DEADLINE: Duration = Duration::from_secs(240);
/// How many authorities have signed when it is enough.
const AUTHORITIES: usize = 3;

#[tokio::test]
async fn certificates_are_exchanged_under_steady_creates_and_no_call_of_the_webhook_fails() {
    let settings = Settings { certificate_lifetime: Some(LIFETIME), ..Settings::default() };
    let ground = Ground::start(settings).await;
    let client = ground.client();
    let before = (failed_open(&client).await, annotated(&ground));
    let (mut pairs, mut signers) = (BTreeSet::new(), BTreeSet::new());
    let (begun, mut creates) = (Instant::now(), 0);
    while signers.len() < AUTHORITIES {
        assert!(begun.elapsed() < DEADLINE, "{} certificates of {} authorities", pairs.len(), signers.len());
        let website = ground.create().await;
        assert!(ground.is_labelled(&website), "the webhook was not asked about create {creates}");
        creates += 1;
        if creates % 10 == 0 {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), "sharding-system");
            let data = secrets.get("ringside-sharder-webhook").await.unwrap().data.unwrap();
            pairs.insert(data["tls.crt"].0.clone());
            signers.insert(data["ca.key"].0.clone());
            every_replica_answers(&ground).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
    assert_eq!((failed_open(&client).await, annotated(&ground)), before);
    println!(
        "{creates} creates in {:.0?} met {} certificates of {} authorities, and none failed open",
        begun.elapsed(),
        pairs.len(),
        signers.len()
    );
    assert!(pairs.len() > AUTHORITIES);
}

/// Asks each replica as the API server asks, by what the API server is told to trust: it calls only one of them here.
async fn every_replica_answers(ground: &Ground) {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(ground.client());
    let configuration = configurations.get(&webhook_configuration_name(&ground.ring)).await.unwrap();
    let bundle = configuration.webhooks.unwrap().remove(0).client_config.ca_bundle.unwrap().0;
    for sharder in ground.system.sharders() {
        let answer = ask(sharder.webhook_port(), &bundle, ground.ring.as_str()).await;
        assert_eq!(answer["response"]["patchType"], "JSONPatch", "{answer}");
    }
}

async fn ask(port: u16, bundle: &[u8], ring: &str) -> Value {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle) {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(ring::default_provider().into());
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = ServerName::try_from("sharder.sharding-system.svc").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
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
fn annotated(ground: &Ground) -> usize {
    let log = std::fs::read_to_string(ground.system.control_plane().audit_log()).unwrap();
    log.lines().filter(|line| line.contains("failed-open.mutating.webhook")).count()
}

/// How many calls of the ring's webhook the API server counts as failed, and let the write pass.
async fn failed_open(client: &Client) -> usize {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = client.request_text(request).await.unwrap();
    let failed = metrics.lines().filter(|line| line.starts_with("apiserver_admission_webhook_fail_open_count{"));
    let of_ours = failed.filter(|line| line.contains("sharder.sharding.timebertt.dev"));
    of_ours.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}
