//! Leases for tests, and tests of when shards with a late Lease, or none, are forgotten.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ringside_runtime::clock::TokioClock;

use super::{
    book::tests::{KIND, at, lease},
    *,
};

/// What a leader knows that has seen the Leases of these shards of the ring `example`, each held, and all others go. It holds
/// the name `gone`.
pub(crate) fn held_by(shards: &[&str]) -> Leases {
    let leases = seen_for_long(shards);
    hold_name(&leases, "gone");
    leases
}

/// The sharder holds this name, for longer than any test.
pub(crate) fn hold_name(leases: &Leases, shard: &str) {
    let name = ("example".parse().unwrap(), shard.to_owned());
    let held = hold::Held::new(name, None, leases.clock.now(), Duration::from_secs(1_000_000));
    let key = LeaseKey { namespace: "default".to_owned(), name: shard.to_owned() };
    leases.book.lock().holds.insert(key, held);
    leases.attention.send_replace(());
}

/// The same of one that holds nothing.
pub(crate) fn seen_for_long(shards: &[&str]) -> Leases {
    let leases = just_seen(shards);
    leases.book.lock().know_all();
    leases
}

/// A leader at work; dropped, it stops.
pub(crate) struct Leading(tokio::task::JoinHandle<Infallible>);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Acts on the Leases of a fake API server, as the leader does.
pub(crate) fn lead(api: &crate::fixtures::FakeApi, leases: &Leases) -> Leading {
    let (client, leases) = (api.client(), leases.clone());
    let notices = crate::notices::Notices::new(client.clone());
    Leading(tokio::spawn(async move { keep_states(client, leases, crate::metrics::Metrics::default(), notices).await }))
}

/// A Lease is seen as it is stored.
pub(crate) fn see(leases: &Leases, stored: &serde_json::Value) {
    leases.see(serde_json::from_value(stored.clone()).unwrap());
}

/// The same of a replica that has just begun to watch.
pub(crate) fn just_seen(shards: &[&str]) -> Leases {
    let leases = Leases::new(Arc::new(TokioClock::start()));
    list(&leases, shards.iter().map(|shard| lease(shard, shard, 0, 1)));
    leases
}

/// All Leases are listed; those of the other kind of ring are none.
pub(crate) fn list(leases: &Leases, shown: impl IntoIterator<Item = Lease>) {
    leases.listed(RingKind::ControllerRing, Vec::new());
    leases.listed(KIND, shown.into_iter().collect());
}

/// The shard of this name comes, and holds its Lease.
pub(crate) fn join(leases: &Leases, shard: &str) {
    leases.see(lease(shard, shard, 0, 1));
}

/// It goes, with its Lease.
pub(crate) fn leave(leases: &Leases, shard: &str) {
    leases.gone(KIND, &lease(shard, shard, 0, 1));
}

/// The path and the content of a Lease of the ring `example`, as the API server stores it.
pub(crate) fn stored(shard: &str, holder: &str) -> (String, serde_json::Value) {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/default/leases/{shard}");
    (path, serde_json::to_value(lease(shard, holder, 0, 1)).unwrap())
}

fn shards(leases: &Leases) -> usize {
    leases.members().unwrap().values().map(Members::len).sum()
}

#[tokio::test(start_paused = true)]
async fn a_shard_without_its_lease_goes_by_itself_when_its_time_is_over() {
    let leases = held_by(&["a"]);
    let mut membership = leases.membership();
    let expiring = leases.clone();
    let expire = tokio::spawn(async move { expiring.expire().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    leases.gone(KIND, &lease("a", "a", 0, 1));
    tokio::time::sleep(Duration::from_secs(19)).await;
    assert_eq!(shards(&leases), 1);
    membership.borrow_and_update();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(shards(&leases), 0);
    assert!(membership.has_changed().unwrap(), "whoever makes snapshots is told");
    assert!(leases.clock.now() < at(23));
    expire.abort();
}

/// Its Lease may have been deleted just before this replica began to watch.
#[tokio::test(start_paused = true)]
async fn a_name_without_lease_is_not_gone_before_twice_the_default_duration() {
    let (client, ring) = (crate::fixtures::FakeApi::default().client(), "example".parse().unwrap());
    let leases = just_seen(&["deleted", "released"]);
    leases.see(lease("released", "", 0, 2));
    leases.gone(KIND, &lease("released", "", 0, 2));
    tokio::time::sleep(Duration::from_secs(1)).await;
    leases.gone(KIND, &lease("deleted", "deleted", 0, 1));
    let gone = async |shard| !leases.is_there(&client, &ring, shard).await.unwrap();
    assert!(gone("released").await, "this replica saw its release");
    assert!(!gone("unseen").await && !gone("deleted").await);
    tokio::time::sleep(Duration::from_secs(28)).await;
    leases.book.lock().expire(leases.clock.now());
    assert!(!gone("unseen").await && !gone("deleted").await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(gone("unseen").await && gone("deleted").await);
}

#[tokio::test]
async fn who_begins_to_lead_knows_every_lease() {
    let api = crate::fixtures::FakeApi::default();
    for shard in ["a", "b"] {
        let (path, lease) = stored(shard, shard);
        api.put(&path, lease);
    }
    let leases = held_by(&["a"]);
    leases.refresh(&api.client()).await.unwrap();
    assert_eq!(shards(&leases), 2);
}
