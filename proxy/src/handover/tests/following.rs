//! Whether a resource is followed, as readiness tells it.

use http::{Request, Response, StatusCode};
use kube::{Client, client::Body};
use ringside_ring::{
    ClusterRing,
    cluster_ring::{ClusterRingSpec, RingResource},
};
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::policy::{Policy, RingState};

/// What the API server serves, and allows, at the moment.
#[derive(Clone, Copy, Default)]
struct Allowed {
    served: bool,
    list: bool,
    watch: bool,
    /// Of `v1beta1`, which is served beside `v1`.
    older: Older,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Older {
    #[default]
    NotServed,
    Readable,
    /// `v1` is asked for again and again, as its cache can't convert what is stored.
    Silent,
    /// In neither version, as the conversion webhook does not answer.
    Unreadable,
}

fn api_server(allowed: Arc<Mutex<Allowed>>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let allowed = *allowed.lock();
        async move {
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let refused = |verb: &str| {
                let message = format!("User \"x\" cannot {verb} resource \"things\"");
                json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message})
            };
            let version = json!({"groupVersion": "x.io/v1", "version": "v1"});
            let (code, body) = match request.uri().path() {
                "/apis" if allowed.older != Older::NotServed => {
                    let older = json!({"groupVersion": "x.io/v1beta1", "version": "v1beta1"});
                    (StatusCode::OK, json!({"groups": [{"name": "x.io", "versions": [version, older]}]}))
                }
                "/apis" => (StatusCode::OK, json!({"groups": [{"name": "x.io", "versions": [version]}]})),
                "/apis/x.io/v1" | "/apis/x.io/v1beta1" => {
                    let thing =
                        json!({"name": "things", "singularName": "", "kind": "Thing", "namespaced": true, "verbs": []});
                    let resources = if allowed.served { vec![thing] } else { Vec::new() };
                    let version = &request.uri().path()["/apis/".len()..];
                    (StatusCode::OK, json!({"groupVersion": version, "resources": resources}))
                }
                path if allowed.older == Older::Silent && path.contains("/v1/") => std::future::pending().await,
                path if allowed.older == Older::Unreadable
                    || allowed.older == Older::Readable && path.contains("/v1/") =>
                {
                    let message = "conversion webhook for x.io/v1beta1, Kind=Thing failed: connection refused";
                    let status = json!({"kind": "Status", "status": "Failure", "code": 500, "message": message});
                    (StatusCode::INTERNAL_SERVER_ERROR, status)
                }
                _ if watches && allowed.watch => std::future::pending().await,
                _ if watches => (StatusCode::FORBIDDEN, refused("watch")),
                _ if allowed.list => (StatusCode::OK, json!({"metadata": {"resourceVersion": "1"}, "items": []})),
                _ => (StatusCode::FORBIDDEN, refused("list")),
            };
            Ok::<_, tower::BoxError>(Response::builder().status(code).body(Body::from(serde_json::to_vec(&body)?))?)
        }
    });
    Client::new(service, "default")
}

/// Long enough for all that is tried again.
const LONG: Duration = Duration::from_secs(20);

/// Follows what is drained of one resource; the ring is known until the second is dropped.
fn follow(health: &Health, allowed: &Arc<Mutex<Allowed>>) -> (impl Future<Output = ()>, watch::Sender<RingState>) {
    let check = health.check("drains", Probe::Ready);
    let ring = "example".parse().unwrap();
    let handover =
        Handover::new(&ring, "me".parse().unwrap(), Views::new(), Fence::new(false), Drains::new(), GRACE, check);
    let GroupResource { group, resource } = things();
    let resources = vec![RingResource { group, resource, ..RingResource::default() }];
    let policy =
        Policy::of(&ClusterRing::new("example", ClusterRingSpec { resources, ..ClusterRingSpec::default() }).into());
    let (ring, knowledge) = watch::channel(RingState::Known(Arc::new(policy)));
    let client = api_server(allowed.clone());
    (async move { handover.run(client, knowledge).await }, ring)
}

#[tokio::test(start_paused = true)]
async fn a_shard_is_ready_once_it_follows_what_is_drained_and_says_what_it_may_not() {
    let allowed = Arc::new(Mutex::new(Allowed { served: true, ..Allowed::default() }));
    let health = Health::new();
    let (running, _ring) = follow(&health, &allowed);
    let story = async {
        tokio::time::sleep(LONG).await;
        let failures = health.failures(Probe::Ready).join("\n");
        for part in ["things.x.io", "missing permission", "cannot list", "list, watch and patch", "in all namespaces"] {
            assert!(failures.contains(part), "{part}: {failures}");
        }
        *allowed.lock() = Allowed { served: true, list: true, watch: false, ..Allowed::default() };
        tokio::time::sleep(LONG).await;
        for _ in 0..100 {
            tokio::time::sleep(LONG / 100).await;
            let failures = health.failures(Probe::Ready).join("\n");
            assert!(failures.contains("cannot watch"), "at no moment is it ready: {failures}");
        }
        *allowed.lock() = Allowed { served: true, list: true, watch: true, ..Allowed::default() };
        tokio::time::sleep(LONG).await;
        assert!(health.failures(Probe::Ready).is_empty());
    };
    tokio::select! {
        () = running => unreachable!("it runs for ever"),
        () = story => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_not_served_has_nothing_to_let_go_of_until_it_is() {
    let (allowed, health) = (Arc::new(Mutex::new(Allowed::default())), Health::new());
    let (running, _ring) = follow(&health, &allowed);
    let story = async {
        tokio::time::sleep(LONG).await;
        assert_eq!(health.failures(Probe::Ready), [""; 0], "the ring's other resources are worked on");
        *allowed.lock() = Allowed { served: true, list: false, watch: false, ..Allowed::default() };
        tokio::time::sleep(LONG).await;
        assert!(health.failures(Probe::Ready).join("\n").contains("cannot list"));
        *allowed.lock() = Allowed { served: true, list: true, watch: true, ..Allowed::default() };
        tokio::time::sleep(LONG).await;
        assert!(health.failures(Probe::Ready).is_empty());
    };
    tokio::select! {
        () = running => unreachable!("it runs for ever"),
        () = story => {}
    }
}

/// As real API servers do it: the client waits for the pauses that they ask for.
#[tokio::test(start_paused = true)]
async fn a_version_that_is_not_listed_in_time_is_left_for_another() {
    let silent = Allowed { served: true, list: true, watch: true, older: Older::Silent };
    let (allowed, health) = (Arc::new(Mutex::new(silent)), Health::new());
    let (running, _ring) = follow(&health, &allowed);
    let story = async {
        tokio::time::sleep(LONG).await;
        assert_eq!(health.failures(Probe::Ready), [""; 0]);
    };
    tokio::select! {
        () = running => unreachable!("it runs for ever"),
        () = story => {}
    }
}

/// Where the controller itself serves the conversion, it starts after the proxy.
#[tokio::test(start_paused = true)]
async fn a_resource_is_followed_in_a_version_that_can_be_listed() {
    let unreadable = Allowed { served: true, list: true, watch: true, older: Older::Unreadable };
    let (allowed, health) = (Arc::new(Mutex::new(unreadable)), Health::new());
    let (running, _ring) = follow(&health, &allowed);
    let story = async {
        tokio::time::sleep(LONG).await;
        let failures = health.failures(Probe::Ready).join("\n");
        assert!(failures.contains("things.x.io") && failures.contains("conversion webhook"), "{failures}");
        allowed.lock().older = Older::Readable;
        tokio::time::sleep(LONG).await;
        assert_eq!(health.failures(Probe::Ready), [""; 0]);
    };
    tokio::select! {
        () = running => unreachable!("it runs for ever"),
        () = story => {}
    }
}
