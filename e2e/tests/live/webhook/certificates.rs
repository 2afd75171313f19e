//! Certificates and their authorities are exchanged while objects are created, on every replica, and no call of the webhook
//! fails: a failure would be silent, as objects must be writable without it, so it is counted three ways.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use ringside_e2e::system::Settings;
use tokio::time::Instant;

use crate::webhook::{
    fixture::Fixture,
    trust::{annotated, every_replica_answers, failed_open},
};

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
    let client = fixture.client();
    let before = (failed_open(&client).await, annotated(&fixture));
    let (mut pairs, mut signers) = (BTreeSet::new(), BTreeSet::new());
    let (begun, mut creates) = (Instant::now(), 0);
    while signers.len() < AUTHORITIES {
        assert!(begun.elapsed() < DEADLINE, "{} certificates of {} authorities", pairs.len(), signers.len());
        let website = fixture.create().await;
        assert!(fixture.is_labelled(&website), "the webhook was not asked about create {creates}");
        creates += 1;
        if creates % 10 == 0 {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), "ringside-system");
            let data = secrets.get("ringside-sharder-webhook").await.unwrap().data.unwrap();
            pairs.insert(data["tls.crt"].0.clone());
            signers.insert(data["ca.key"].0.clone());
            every_replica_answers(&fixture).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
    assert_eq!((failed_open(&client).await, annotated(&fixture)), before);
    println!(
        "{creates} creates in {:.0?} met {} certificates of {} authorities, and none failed open",
        begun.elapsed(),
        pairs.len(),
        signers.len()
    );
    assert!(pairs.len() > AUTHORITIES);
}
