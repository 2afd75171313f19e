//! What the proxy is doing now, for those who ask its admin server: streams, releases and what each waits for, writes, elections.

use std::future;

use axum::{Json, Router, routing::get};
use ringside_ring::doing::{Doing, PATH, millis};
use tokio::time::Instant;

use crate::shard::Parts;

/// The drains that are listed, and the streams, the oldest first: others are counted.
const MAX_LISTED: usize = 100;

/// What is done now.
fn now(parts: &Parts) -> Doing {
    let Parts { config, shared, drains, .. } = parts;
    let (now, fence) = (Instant::now(), shared.fence.numbers());
    let (streams, open) = shared.views.oldest(MAX_LISTED);
    let waits_for = shared.locks.waits().waiting(2 * config.lease_duration);
    let led = shared.locks.led().into_iter();
    Doing {
        ring: config.ring.to_string(),
        lease_lost: lease_lost(parts),
        controller: parts.controller.said().map(str::to_owned),
        draining: drains.all(now).0,
        drains: drains.oldest(MAX_LISTED, now),
        open,
        streams,
        writes: fence.writes,
        oldest_write_millis: millis(fence.oldest_write),
        leads_by: led.map(|lock| format!("{lock} in namespace {}", lock.namespace)).collect(),
        waits_for_lock: waits_for.map(|lock| lock.to_string()),
    }
}

/// Why the Lease is not held; none while it is.
fn lease_lost(parts: &Parts) -> Option<String> {
    match parts.lease_handle.get() {
        Some(lease_handle) if lease_handle.held() => None,
        Some(lease_handle) => Some(lease_handle.reason().unwrap_or_else(|| "it was not acquired yet".to_owned())),
        None => Some("the API server has not said yet which pod this is".to_owned()),
    }
}

/// The route that answers with it.
pub(crate) fn route(parts: Parts) -> Router {
    Router::new().route(PATH, get(move || future::ready(Json(now(&parts)))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{sync::Arc, time::Duration};

    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt as _;
    use ringside_ring::{cluster_ring::GroupResource, doing::StreamState};
    use ringside_runtime::{clock::Boottime, lease::LeaseHandle};
    use tower::ServiceExt as _;

    use super::*;
    use crate::views::{
        Kind,
        fixtures::{leaving, scope, watch},
    };

    #[tokio::test(start_paused = true)]
    async fn streams_releases_and_the_lease_are_told() {
        let parts = Parts::of(&["--ring", "websites", "--controller=always"], Arc::new(Boottime));
        let (_manual, lease_handle) = LeaseHandle::manual(parts.clock.clone());
        parts.lease_handle.set(lease_handle).unwrap();
        let (views, drains) = (&parts.shared.views, &parts.drains);
        let things = || GroupResource { group: String::new(), resource: "things".into() };
        let _watch = watch(views, things(), Some(7));
        let _list = views.open(scope(things(), None), Kind::List).unwrap();
        let _drain = drains.begin(leaving(things(), Some("default"), 1), Instant::now());
        tokio::time::advance(Duration::from_secs(3)).await;

        let asked = route(parts).oneshot(Request::get(PATH).body(Body::empty()).unwrap()).await.unwrap();
        let told = asked.into_body().collect().await.unwrap().to_bytes();
        let doing: Doing = serde_json::from_slice(&told).unwrap();
        assert_eq!((doing.ring.as_str(), doing.controller.as_deref()), ("websites", Some("working")));
        assert!(doing.lease_lost.is_some());
        let states: Vec<_> = doing.streams.iter().map(|it| (it.is_watch, it.state, it.version.as_deref())).collect();
        assert_eq!(states, [(true, StreamState::Open, Some("7")), (false, StreamState::Opening, None)]);
        assert_eq!((doing.open, doing.draining), (2, 1));
        assert_eq!((doing.drains[0].object.as_str(), doing.drains[0].millis), ("default/a", 3_000));
        assert!(doing.drains[0].waits_for.contains("a watch or list"), "{:?}", doing.drains);
    }
}
