//! What the admin server answers beside probes and metrics: what this replica is doing now.

use std::{collections::BTreeMap, future, sync::Arc};

use axum::{Json, Router, routing::get};
use ringside_ring::RingName;

use crate::{
    doing::{Doing, PATH, WritesNow},
    lock::Mutex,
    queue::limiter::Limiter,
    reconcile::Known,
};

/// The moves of a ring that are listed, the oldest first: others are counted.
const MAX_LISTED: usize = 100;

/// The rings that this replica works on, as it leads; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Register(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    leads: bool,
    rings: BTreeMap<RingName, Known>,
}

/// A ring in the register, until it is dropped.
pub(crate) struct Registered {
    register: Register,
    ring: RingName,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.register.0.lock().rings.remove(&self.ring);
    }
}

impl Register {
    /// This replica leads, or does so no more.
    pub(crate) fn leads(&self, leads: bool) {
        self.0.lock().leads = leads;
    }

    /// The work on a ring begins.
    pub(crate) fn begin(&self, ring: &RingName, known: &Known) -> Registered {
        self.0.lock().rings.insert(ring.clone(), known.clone());
        Registered { register: self.clone(), ring: ring.clone() }
    }

    /// What is done now.
    pub(crate) fn doing(&self, limiter: &Limiter) -> Doing {
        let (leads, rings) = {
            let state = self.0.lock();
            (state.leads, state.rings.clone())
        };
        let (under_way, limit) = limiter.in_use();
        let of = |(ring, known): (RingName, Known)| (ring.to_string(), known.doing(MAX_LISTED));
        Doing { leads, writes: WritesNow { under_way, limit }, rings: rings.into_iter().map(of).collect() }
    }

    /// The route that answers with it.
    pub(crate) fn route(self, limiter: Limiter) -> Router {
        Router::new().route(PATH, get(move || future::ready(Json(self.doing(&limiter)))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt as _;
    use ringside_ring::cluster_ring::GroupResource;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{metrics::Metrics, target::Target};

    #[tokio::test]
    async fn it_is_told_what_is_done_about_a_ring_until_its_work_ends() {
        let (register, limiter) = (Register::default(), Limiter::new(Metrics::default(), 8));
        let (known, route) = (Known::default(), register.clone().route(limiter));
        let ask = || async {
            let answer = route.clone().oneshot(Request::get(PATH).body(Body::empty()).unwrap()).await.unwrap();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            serde_json::from_slice::<Doing>(&body).unwrap()
        };
        register.leads(true);
        let registered = register.begin(&"websites".parse().unwrap(), &known);
        let websites = GroupResource { group: "web.example.com".into(), resource: "websites".into() };
        for uid in ["u", "v"] {
            known.drains.remember(&websites, &Target { uid: uid.into(), ..Target::default() }, "a", uid);
        }
        let doing = ask().await;
        assert!(doing.leads && doing.writes.limit > 0);
        assert_eq!((doing.rings["websites"].moving, doing.rings["websites"].oldest.len()), (2, 2));
        drop(registered);
        assert_eq!(ask().await.rings.len(), 0);
    }
}
