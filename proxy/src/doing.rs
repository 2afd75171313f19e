//! What the proxy is doing now, for those who ask its admin server: streams, releases and what each waits for, writes, elections.

use std::{
    future,
    sync::{Arc, OnceLock},
};

use axum::{Json, Router, routing::get};
use ringside_ring::{
    RingName,
    doing::{Doing, PATH, millis},
};
use ringside_runtime::lease::Tenure;
use tokio::time::{Duration, Instant};

use crate::{controller::Controller, election::Locks, fence::Fence, handover::Drains, views::Views};

/// The drains that are listed, and the streams, the oldest first: others are counted.
const MAX_LISTED: usize = 100;

/// Where it is seen what is done.
pub(crate) struct Work {
    pub(crate) ring: RingName,
    pub(crate) tenure: Arc<OnceLock<Tenure>>,
    pub(crate) controller: Controller,
    pub(crate) drains: Drains,
    pub(crate) views: Views,
    pub(crate) fence: Fence,
    pub(crate) locks: Arc<Locks>,
    /// For how long a lock that the controller has read counts as one that it waits for.
    pub(crate) waits_within: Duration,
}

impl Work {
    /// What is done now.
    pub(crate) fn now(&self) -> Doing {
        let (now, fence) = (Instant::now(), self.fence.numbers());
        let (streams, open) = self.views.oldest(MAX_LISTED);
        let waits_for = self.locks.waits().waiting(self.waits_within);
        let led = self.locks.led().into_iter();
        Doing {
            ring: self.ring.to_string(),
            lease_lost: self.lease_lost(),
            controller: self.controller.said().map(str::to_owned),
            draining: self.drains.all(now).0,
            drains: self.drains.oldest(MAX_LISTED, now),
            open,
            streams,
            writes: fence.writes,
            oldest_write_millis: millis(fence.oldest_write),
            leads_by: led.map(|lock| format!("{lock} in namespace {}", lock.namespace)).collect(),
            waits_for_lock: waits_for.map(|lock| lock.to_string()),
        }
    }

    /// Why the Lease is not held; none while it is.
    fn lease_lost(&self) -> Option<String> {
        match self.tenure.get() {
            Some(tenure) if tenure.held() => None,
            Some(tenure) => Some(tenure.reason().unwrap_or_else(|| "it was not acquired yet".to_owned())),
            None => Some("the API server has not said yet which pod this is".to_owned()),
        }
    }

    /// The route that answers with it.
    pub(crate) fn route(self) -> Router {
        let work = Arc::new(self);
        Router::new().route(PATH, get(move || future::ready(Json(work.now()))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt as _;
    use ringside_ring::{cluster_ring::GroupResource, doing::StreamState};
    use ringside_runtime::{
        admin::{Health, Probe},
        clock::Boottime,
    };
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        controller::Mode,
        election::waits::Waits,
        handover::drained,
        views::{
            Kind,
            fixtures::{scope, watch},
        },
    };

    #[tokio::test(start_paused = true)]
    async fn streams_releases_and_the_lease_are_told() {
        let (views, drains, lease) = (Views::new(), Drains::new(), Duration::from_secs(15));
        let (_manual, tenure) = Tenure::manual(Arc::new(Boottime));
        let check = Health::new().check("controller", Probe::Note);
        let work = Work {
            ring: "websites".parse().unwrap(),
            tenure: Arc::new(OnceLock::from(tenure)),
            controller: Controller::new(Mode::Always, lease, (views.clone(), Waits::default()), false, check),
            drains: drains.clone(),
            views: views.clone(),
            fence: Fence::new(false),
            locks: Arc::new(Locks::new("default".to_owned())),
            waits_within: lease,
        };
        let things = || GroupResource { group: String::new(), resource: "things".into() };
        let _watch = watch(&views, things(), Some(7));
        let _list = views.open(scope(things(), None), Kind::List).unwrap();
        let _drain = drains.begin(Arc::new(drained()), Instant::now());
        tokio::time::advance(Duration::from_secs(3)).await;

        let asked = work.route().oneshot(Request::get(PATH).body(Body::empty()).unwrap()).await.unwrap();
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
