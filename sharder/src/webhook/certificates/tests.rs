//! Certificates over their whole lives, on a clock that the tests move.

#![allow(clippy::unwrap_used)]

use std::{collections::VecDeque, sync::Arc};

use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::core::ObjectMeta;
use prometheus_client::registry::Registry;
use ringside_runtime::{
    admin::{Health, Probe},
    certificates::Validity,
};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle, time::Instant};

use super::{
    check::accepted,
    keep::WallClock,
    plan::{Change, Need},
    secret::{Nonsense, read, write},
    *,
};
use crate::{client_config::Trust, fixtures::FakeApi, metrics::Metrics, webhook::ServingIdentity};

const SECRET: &str = "/api/v1/namespaces/ringside-system/secrets/ringside-sharder-webhook";
const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/sharding-a";
const LIFETIME: Duration = Duration::from_secs(6_000);

pub(in crate::webhook) fn served() -> (ServingPair, Vec<u8>) {
    let made = Certificates::make(&need(None), Timestamp::now()).unwrap();
    let bundle = made.bundle();
    (made.pair, bundle)
}

fn need(host: Option<&str>) -> Need {
    Need { names: server_names("ringside-system", host), lifetimes: Lifetimes(LIFETIME) }
}

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn round_trip(certificates: &Certificates) -> Certificates {
    let secret = serde_json::to_value(write(certificates, ObjectMeta::default())).unwrap();
    read(&serde_json::from_value(secret).unwrap(), start()).unwrap()
}

#[test]
fn certificates_survive_the_secret() {
    let made = Certificates::make(&need(None), start()).unwrap();
    assert_eq!(round_trip(&made), made);
    let next = Certificates::make(&need(None), start()).unwrap();
    let more = Certificates { next: Some(next.signer), ..made }
        .trusting(&Certificates::make(&need(None), start()).unwrap().signer);
    assert_eq!(round_trip(&more), more);
    assert_eq!(more.trusted().count(), 3);
}

#[test]
fn another_host_gets_another_certificate_of_the_same_authority() {
    let made = Certificates::make(&need(None), start()).unwrap();
    let need = need(Some("sharder.example.com"));
    let (change, more) = made.step(&need, false, start()).unwrap().unwrap();
    assert_eq!((change, &more.signer), (Change::Renewed, &made.signer));
    assert!(accepted(&made.signer.certificate, &more.pair, &need.names, start()));
    assert_eq!(more.step(&super::tests::need(None), false, start()).unwrap(), None, "good for both");
}

#[test]
fn a_secret_with_nonsense_in_it_is_not_used() {
    let made = Certificates::make(&need(None), start()).unwrap();
    let other = Certificates::make(&need(None), start()).unwrap();
    let spoilt = |key: &str, value: Option<&str>| {
        let mut secret: Secret =
            write(&Certificates { next: Some(other.signer.clone()), ..made.clone() }, ObjectMeta::default());
        let data = secret.data.as_mut().unwrap();
        match value {
            Some(value) => data.insert(key.to_owned(), k8s_openapi::ByteString(value.into())),
            None => data.remove(key),
        };
        read(&secret, start())
    };
    let authority = |result: Result<Certificates, Nonsense>| matches!(result, Err(Nonsense::Authority(..)));
    for (key, value) in [
        ("ca.crt", Some("nonsense")),
        ("ca.key", Some("nonsense")),
        ("ca.key", Some(&*other.signer.key)),
        ("next-ca.key", Some(&*made.signer.key)),
    ] {
        assert!(authority(spoilt(key, value)), "{key}");
    }
    assert_eq!(spoilt("ca.key", None), Err(Nonsense::Missing("ca.key")));
    assert_eq!(spoilt("ca.crt", Some(" ")), Err(Nonsense::Missing("ca.crt")));
    // What the same authority can make again is made again.
    for (key, value) in [("tls.crt", None), ("tls.key", Some("nonsense")), ("tls.key", Some(&*other.pair.key))] {
        let read = spoilt(key, value).unwrap();
        let (change, after) = read.step(&need(None), false, start()).unwrap().unwrap();
        assert_eq!((change, after.signer), (Change::Renewed, made.signer.clone()), "{key}");
    }
}

/// The API server's view: of the bundles that it was told, it may still have one from a settling time ago.
#[test]
fn at_no_time_is_anything_served_that_is_not_trusted_for_a_while() {
    let need = need(None);
    let (mut now, end) = (start(), start() + 12 * LIFETIME);
    let mut certificates = Certificates::make(&need, now).unwrap();
    let late = 4;
    let look = need.lifetimes.settling() / 4;
    let mut told = VecDeque::from([certificates.clone()]);
    let (mut changes, mut announced) = (Vec::new(), now);
    let mut served: Vec<ServingPair> = Vec::new();
    let is_valid = |pair: &ServingPair, now| Validity::of(pair.certificate.as_bytes()).unwrap().contains(now);
    while now < end {
        let settled = certificates.next.is_some() && now >= announced + need.lifetimes.settling();
        while let Some((change, after)) = certificates.step(&need, settled, now).unwrap() {
            if change == Change::Announced {
                announced = now;
            }
            changes.push(change);
            certificates = round_trip(&after);
        }
        told.push_back(certificates.clone());
        if told.len() > late {
            told.pop_front();
        }
        for known in [told.front().unwrap(), told.back().unwrap()] {
            let trusts = known.trusted().any(|authority| accepted(authority, &certificates.pair, &need.names, now));
            assert!(trusts, "{changes:?}");
        }
        // Replicas that are late to take it up serve what was served before.
        served.retain(|pair| *pair != certificates.pair && is_valid(pair, now));
        served.push(certificates.pair.clone());
        for pair in &served {
            assert!(certificates.trusted().any(|authority| accepted(authority, pair, &need.names, now)), "{changes:?}");
        }
        assert!(certificates.trusted().count() <= 3);
        now += look;
    }
    let count = |of: Change| changes.iter().filter(|change| **change == of).count();
    assert_eq!(count(Change::Made), 0, "{changes:?}");
    assert!(count(Change::Renewed) > 7 && count(Change::Ended) > 2, "{changes:?}");
    assert!(count(Change::Succeeded) >= 4 && count(Change::Succeeded).abs_diff(count(Change::Announced)) <= 1);
}

#[test]
fn an_authority_that_nobody_is_told_of_signs_when_the_one_before_has_ended() {
    let need = need(None);
    let mut certificates = Certificates::make(&need, start()).unwrap();
    let mut now = start();
    let mut changes = Vec::new();
    while now < start() + 9 * LIFETIME / 2 {
        while let Some((change, after)) = certificates.step(&need, false, now).unwrap() {
            changes.push((change, after.signer != certificates.signer));
            certificates = after;
        }
        assert!(accepted(&certificates.signer.certificate, &certificates.pair, &need.names, now));
        now += need.lifetimes.look();
    }
    assert!(changes.contains(&(Change::Succeeded, true)), "{changes:?}");
    assert!(changes.len() < 20, "nothing is made again and again: {changes:?}");
}

/// A replica, on a clock that follows tokio's.
struct Replica {
    identity: ServingIdentity,
    trust: watch::Receiver<Option<Trust>>,
    health: Health,
    task: JoinHandle<()>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Replica {
    fn start(api: &FakeApi, clock: &WallClock) -> Self {
        let (identity, health) = (ServingIdentity::default(), Health::new());
        let (sender, trust) = watch::channel(None);
        let certified = health.check("webhook", Probe::Ready);
        let keeper = Keeper::new(
            (&api.client(), "ringside-system"),
            (server_names("ringside-system", None), Lifetimes(LIFETIME)),
            (identity.clone(), certified),
            sender,
            clock.clone(),
        );
        let task = tokio::spawn(async move { keeper.run().await.unwrap() });
        Self { identity, trust, health, task }
    }

    async fn ready(&mut self) {
        self.trust.wait_for(Option::is_some).await.unwrap();
        while !self.health.failures(Probe::Ready).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn bundle(&self) -> Vec<u8> {
        match self.trust.borrow().clone() {
            Some(Trust::Bundle(bundle)) => bundle,
            other => panic!("{other:?}"),
        }
    }

    fn serves(&self) -> Vec<u8> {
        self.identity.shown().unwrap().cert[0].to_vec()
    }

    /// Whether a client that trusts this bundle accepts what the replica serves.
    fn is_trusted_by(&self, bundle: &[u8], now: Timestamp) -> bool {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(bundle) {
            roots.add(authority.unwrap()).unwrap();
        }
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(aws_lc_rs::default_provider()));
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().try_into().unwrap()));
        let name = ServerName::try_from("ringside-sharder.ringside-system.svc").unwrap();
        let served = CertificateDer::from(self.serves());
        verifier.build().unwrap().verify_server_cert(&served, &[], &name, &[], now).is_ok()
    }
}

fn clock() -> WallClock {
    let origin = Instant::now();
    Arc::new(move || start() + origin.elapsed())
}

fn configuration(bundle: &[u8]) -> Value {
    let bundle = k8s_openapi::ByteString(bundle.to_vec());
    json!({"metadata": {"name": "sharding-a", "resourceVersion": "1"}, "webhooks": [{"name": "a", "admissionReviewVersions": [],
        "sideEffects": "None", "clientConfig": {"caBundle": bundle}}]})
}

#[tokio::test(start_paused = true)]
async fn replicas_exchange_their_certificates_and_every_api_server_trusts_them_all_the_time() {
    let (api, clock) = (FakeApi::default(), clock());
    let mut replicas = [Replica::start(&api, &clock), Replica::start(&api, &clock), Replica::start(&api, &clock)];
    for replica in &mut replicas {
        replica.ready().await;
    }
    let first = replicas[0].serves();
    assert!(replicas.iter().all(|replica| replica.serves() == first), "one made it, the others took it up");
    // What a leader tells the API server, and what the slowest of several has heard of it.
    let mut told = VecDeque::from([replicas[0].bundle()]);
    let begun = Instant::now();
    let (mut served, mut bundles) = (vec![first], 1);
    let second = Duration::from_secs(1);
    while begun.elapsed() < 14 * LIFETIME {
        let bundle = replicas[2].bundle();
        bundles += usize::from(told.back() != Some(&bundle));
        api.put(CONFIGURATION, configuration(&bundle));
        told.push_back(bundle);
        // Just shorter than the time for an authority to settle.
        if told.len() > 2 {
            told.pop_front();
        }
        for replica in &replicas {
            for bundle in [told.front().unwrap(), told.back().unwrap()] {
                assert!(replica.is_trusted_by(bundle, clock()), "{:?}", begun.elapsed());
            }
            if !served.contains(&replica.serves()) {
                served.push(replica.serves());
            }
        }
        tokio::time::sleep(50 * second).await;
    }
    assert!(served.len() > 15 && bundles > 8, "{} certificates, {bundles} bundles", served.len());
    let mut now: Vec<_> = replicas.iter().map(Replica::serves).collect();
    now.dedup();
    assert_eq!(now.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_deleted_or_spoilt_comes_back_as_it_was_from_who_knows_it() {
    let (api, clock) = (FakeApi::default(), clock());
    let mut replica = Replica::start(&api, &clock);
    replica.ready().await;
    let (before, bundle) = (api.get(SECRET).unwrap(), replica.bundle());
    for spoilt in [None, Some("nonsense")] {
        let mut secret = before.clone();
        match spoilt {
            None => api.intercept({
                let mut gone = false;
                move |_, objects| {
                    if !std::mem::replace(&mut gone, true) {
                        objects.remove(SECRET);
                    }
                    None
                }
            }),
            Some(_) => {
                secret["data"] = json!({"ca.crt": "bm9uc2Vuc2U="});
                secret["metadata"]["resourceVersion"] = json!("1");
                api.put(SECRET, secret);
            }
        }
        tokio::time::sleep(LIFETIME / 50).await;
        assert_eq!(api.get(SECRET).unwrap()["data"], before["data"], "{spoilt:?}");
        assert_eq!(replica.bundle(), bundle);
    }
    // Who knows nothing can't do that.
    drop(replica);
    let mut secret = before.clone();
    secret["data"]["ca.key"] = json!("bm9uc2Vuc2U=");
    api.put(SECRET, secret);
    let mut other = Replica::start(&api, &clock);
    other.ready().await;
    assert_ne!(other.bundle(), bundle);
    assert!(other.is_trusted_by(&other.bundle(), clock()));
}

#[tokio::test(start_paused = true)]
async fn a_replica_stays_trusted_when_another_had_nothing_to_go_on_from() {
    let (api, clock) = (FakeApi::default(), clock());
    let mut old = Replica::start(&api, &clock);
    old.ready().await;
    let (serves, told) = (old.serves(), old.bundle());
    api.put(CONFIGURATION, configuration(&told));
    // A user deletes the Secret, and a replica that starts right now makes it again.
    let lost = FakeApi::default();
    let mut new = Replica::start(&lost, &clock);
    new.ready().await;
    let mut secret = lost.get(SECRET).unwrap();
    secret["metadata"]["resourceVersion"] = json!("5");
    api.put(SECRET, secret);
    tokio::time::sleep(LIFETIME / 50).await;
    assert_eq!(old.serves(), serves, "not before the API server can trust it");
    let both = old.bundle();
    assert!(old.is_trusted_by(&both, clock()) && new.is_trusted_by(&both, clock()));
    api.put(CONFIGURATION, configuration(&both));
    tokio::time::sleep(LIFETIME / 5).await;
    assert_eq!(old.serves(), new.serves());
    assert!(!new.is_trusted_by(&told, clock()));
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_not_ready_before_it_can_serve() {
    let (api, clock) = (FakeApi::default(), clock());
    api.intercept(|_, _| Some(StatusCode::FORBIDDEN));
    let mut replica = Replica::start(&api, &clock);
    tokio::time::sleep(LIFETIME).await;
    assert!(!replica.health.failures(Probe::Ready).is_empty());
    assert!(replica.identity.shown().is_none());
    api.intercept(|_, _| None);
    replica.ready().await;
    assert!(replica.is_trusted_by(&replica.bundle(), clock()));
}

#[tokio::test(start_paused = true)]
async fn files_that_are_exchanged_are_served_and_what_cannot_be_served_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let put = |pair: &ServingPair| {
        std::fs::write(folder.path().join("tls.crt"), &pair.certificate).unwrap();
        std::fs::write(folder.path().join("tls.key"), &pair.key).unwrap();
    };
    let mut registry = Registry::default();
    let (identity, health) = (ServingIdentity::measured(Metrics::register(&mut registry)), Health::new());
    let certified = health.check("webhook", Probe::Ready);
    let task = tokio::spawn(follow_files(folder.path().to_owned(), identity.clone(), certified));
    let shown = || identity.shown().map(|shown| shown.cert[0].to_vec());
    let der = |pair: &ServingPair| CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap().to_vec();
    let pause = async || {
        // Reading files is done by threads, which a paused clock does not wait for.
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            std::thread::sleep(Duration::from_micros(500));
        }
    };
    pause().await;
    assert!(shown().is_none() && !health.failures(Probe::Ready).is_empty());
    let (first, second) = (served().0, served().0);
    put(&first);
    pause().await;
    assert_eq!((shown(), health.failures(Probe::Ready).len()), (Some(der(&first)), 0));
    put(&ServingPair { key: first.key.clone(), ..second.clone() });
    pause().await;
    assert_eq!(shown(), Some(der(&first)), "half of them");
    put(&second);
    pause().await;
    assert_eq!(shown(), Some(der(&second)));
    let end = Validity::of(second.certificate.as_bytes()).unwrap().until.as_second();
    let mut metrics = String::new();
    prometheus_client::encoding::text::encode(&mut metrics, &registry).unwrap();
    assert!(metrics.contains(&format!("webhook_certificate_expiration_timestamp_seconds{{}} {end}")), "{metrics}");
    assert!(metrics.contains(&format!("webhook_certificate_expiration_timestamp_seconds{{}} {end}")), "{metrics}");
    let of_cert_manager = |part: &str| std::fs::read_to_string(format!("{P521}.{part}")).unwrap();
    let third = ServingPair { certificate: of_cert_manager("crt"), key: of_cert_manager("key") };
    put(&third);
    pause().await;
    assert_eq!(shown(), Some(der(&third)), "with P-521");
    task.abort();
}

/// A certificate with a key on that curve.
const P521: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../runtime/tests/connections/p521-sha512");
