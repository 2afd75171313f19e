//! Certificates and their authorities are exchanged while objects are created, on every replica, and no call of the webhook
//! fails: a failure would be silent, as objects must be writable without it.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use ringside_e2e::system::Settings;
use tokio::time::Instant;

use crate::webhook::{calls::failed_open, fixture::Fixture, trust::shown_by_all};

/// Renewed after two thirds of it; a third is what a busy machine may take for that.
const LIFETIME: Duration = Duration::from_secs(15);
/// The time between two creates.
const PAUSE: Duration = Duration::from_millis(20);
/// Far more than the exchanges below need: an authority is succeeded after two lifetimes.
const DEADLINE: Duration = Duration::from_secs(240);
/// How many authorities have signed when it is enough.
const AUTHORITIES: usize = 3;

pub(crate) async fn certificates_are_exchanged_under_steady_creates_and_no_call_of_the_webhook_fails() {
    let settings = Settings { certificate_lifetime: Some(LIFETIME), ..Settings::default() };
    let fixture = Fixture::start(settings).await;
    let secrets: Api<Secret> = Api::namespaced(fixture.client(), "ringside-system");
    let before = failed_open(&fixture.client()).await;
    let (mut certificates, mut signers, begun) = (BTreeSet::new(), BTreeSet::new(), Instant::now());
    while signers.len() < AUTHORITIES {
        assert!(begun.elapsed() < DEADLINE, "{} certificates of {} authorities", certificates.len(), signers.len());
        for _ in 0..10 {
            assert!(fixture.is_labelled(&fixture.create().await), "the webhook was not asked");
            tokio::time::sleep(PAUSE).await;
        }
        let data = secrets.get("ringside-sharder-webhook").await.unwrap().data.unwrap();
        certificates.insert(data["tls.crt"].0.clone());
        signers.insert(data["ca.key"].0.clone());
        shown_by_all(&fixture).await;
    }
    assert_eq!(failed_open(&fixture.client()).await, before);
    assert!(certificates.len() > AUTHORITIES);
}
