//! Many creates at once, while their owners move.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::future::join_all;
use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::{
    leases::tests::held_by,
    metrics::Metrics,
    snapshot::tests::snapshot,
    webhook::{
        Room,
        review::tests::{labelled, review_of},
        reviewer::Reviewer,
    },
};

/// How long each read takes.
const READ: Duration = Duration::from_millis(50);
const OWNERS: usize = 10;

/// What was read: of objects and of Leases, and how much at once at most.
#[derive(Default)]
struct Seen {
    objects: AtomicUsize,
    leases: AtomicUsize,
    now: AtomicUsize,
    at_once: AtomicUsize,
}

/// An API server whose owners all have this shard, and that has no Leases.
fn api(shard: Option<&'static str>, seen: Arc<Seen>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let seen = seen.clone();
        async move {
            let path = request.uri().path();
            let is_object = path.contains("/configmaps/");
            let mut object = labelled(shard, None);
            object["metadata"]["name"] = json!(path.rsplit('/').next());
            object["metadata"]["uid"] = json!("u");
            let answer = if is_object { object } else { json!({"metadata": {}, "items": []}) };
            (if is_object { &seen.objects } else { &seen.leases }).fetch_add(1, Ordering::Relaxed);
            seen.at_once.fetch_max(seen.now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(READ).await;
            seen.now.fetch_sub(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Response::new(Body::from(serde_json::to_vec(&answer).unwrap())))
        }
    });
    Client::new(service, "default")
}

/// What so many creates under [`OWNERS`] owners at once are answered, with how long each took.
async fn created(shard: Option<&'static str>, creates: usize, seen: &Arc<Seen>) -> Vec<(Duration, Value)> {
    let snapshot = snapshot();
    let snapshots = BTreeMap::from([(snapshot.ring.clone(), Arc::new(snapshot))]);
    let reviewer = Reviewer {
        client: api(shard, seen.clone()),
        leases: held_by(&["a", "b"]),
        snapshots: tokio::sync::watch::channel(Some(Arc::new(snapshots))).1,
        metrics: Metrics::default(),
        room: Room::default(),
        owners: Arc::default(),
        creates: Default::default(),
        injector: None,
    };
    let create = async |number: usize| {
        let mut child = labelled(None, None);
        child["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
            "name": format!("o-{}", number % OWNERS), "uid": "u", "controller": true}]);
        let body = serde_json::to_vec(&review_of("Secret", None, &child)).unwrap();
        let start = Instant::now();
        let answer =
            serde_json::to_value(reviewer.answer(ringside_ring::RingKind::ClusterRing, "example", &body).await)
                .unwrap();
        (start.elapsed(), answer["response"]["patch"].clone())
    };
    join_all((0..creates).map(create)).await
}

#[tokio::test(start_paused = true)]
async fn creates_under_moving_owners_share_few_reads_and_most_wait_for_none() {
    let seen = Arc::default();
    let answers = created(None, 1_000, &seen).await;
    assert!(answers.iter().all(|(_, patch)| patch.is_string()), "each has the shard of its key at last");
    let waited = answers.iter().filter(|(took, _)| *took > Duration::from_millis(150)).count();
    assert_eq!(waited, MAX_WAITING);
    assert!(seen.at_once.load(Ordering::Relaxed) <= OWNERS, "{:?}", seen.at_once);
    // For 1.2 s, 70 ms apart.
    assert!((OWNERS * 10..OWNERS * 20).contains(&seen.objects.load(Ordering::Relaxed)), "{:?}", seen.objects);
}

#[tokio::test(start_paused = true)]
async fn creates_under_owners_of_a_gone_shard_share_the_reads_of_its_lease() {
    let seen = Arc::default();
    let answers = created(Some("gone"), MAX_WAITING, &seen).await;
    assert!(answers.iter().all(|(took, patch)| patch.is_string() && *took <= 4 * READ), "{answers:?}");
    assert!(seen.objects.load(Ordering::Relaxed) <= 2 * OWNERS, "{:?}", seen.objects);
    assert!(seen.leases.load(Ordering::Relaxed) <= 3, "{:?}", seen.leases);
}
