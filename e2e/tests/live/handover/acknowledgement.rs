//! What becomes of the object.

use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret, events::v1::Event};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use ringside_e2e::{
    eventually::{eventually, in_time},
    proxy::Proxy,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    handover::{
        fixture::{Fixture, SOON},
        watches::{FORMATS, STREAMING, Watch},
    },
    proxies::{NAMESPACE, Proxies},
};

/// How long what ended is remembered for.
const HELD: Duration = Duration::from_secs(30);

/// Until its client watches again, a watch that ended holds all that it may have shown.
async fn hold_everything(fixture: &Fixture) -> Instant {
    let begun = Instant::now();
    drop(goes_on(fixture).await);
    begun
}

/// Asserts that it was soon enough for a watch that ended then to be remembered.
fn still_held(begun: Instant) {
    in_time("what a watch that ended may have shown is held", begun.elapsed(), HELD);
}

/// A watch of everything, from now on.
async fn goes_on(fixture: &Fixture) -> Watch {
    let (_, list) = fixture.list("limit=1").await;
    let now = list["metadata"]["resourceVersion"].as_str().unwrap();
    Watch::open(fixture, &format!("resourceVersion={now}"), FORMATS[0]).await
}

/// A list of which no more pages are asked for holds nothing for long, and then has none any more: the object may be in them.
pub(crate) async fn a_list_in_pages_ends_when_its_object_moves(world: &Proxies) {
    let fixture = &Fixture::start(world, "lists").await;
    for name in ["page-0", "page-1"] {
        fixture.create(name).await;
    }
    let (_, first) = fixture.list("limit=1").await;
    let rest = first["metadata"]["continue"].as_str().expect("there are more pages");
    fixture.drain("page-1", "move-1").await;
    fixture.until_let_go("page-1").await;
    let (status, refused) = fixture.list(&format!("limit=1&continue={rest}")).await;
    assert_eq!((status, refused["reason"].as_str()), (StatusCode::GONE, Some("Expired")), "{refused}");
    let (status, fresh) = fixture.list("limit=500").await;
    assert_eq!(status, StatusCode::OK);
    assert!(!fresh.to_string().contains("page-1"), "it is not this shard's");
}

fn metadata(secret: &Secret) -> Value {
    serde_json::to_value(&secret.metadata).unwrap()
}

/// While drains are held: one is taken back, and the controller is shown its object again. One is begun again, one
/// object is deleted, one deleted and made again, and one is being deleted.
pub(crate) async fn only_what_is_still_drained_by_that_very_move_is_released(world: &Proxies) {
    let fixture = &Fixture::start(world, "acknowledges").await;
    let names = ["back", "anew", "deleted", "again", "going"];
    for name in names {
        fixture.create(name).await;
    }
    let shown = Watch::open(fixture, &format!("{STREAMING}&fieldSelector=metadata.name%3Dback"), FORMATS[0]).await;
    shown.until_counts(["ADDED", "DELETED"], [1, 0]).await;
    let begun = hold_everything(fixture).await;
    for name in names {
        fixture.drain(name, "move-1").await;
    }
    let (secrets, labels) = (&fixture.secrets, &fixture.labels);
    shown.until_counts(["ADDED", "DELETED"], [1, 1]).await;
    fixture.label("back", &json!({&labels.drain: null})).await;
    shown.until_counts(["ADDED", "DELETED"], [2, 1]).await;
    fixture.drain("anew", "move-2").await;
    for name in ["deleted", "again"] {
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }
    fixture.create("again").await;
    let finalizers = |list: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    secrets.patch("going", &PatchParams::default(), &finalizers(&["example.com/wait"])).await.unwrap();
    secrets.delete("going", &DeleteParams::default()).await.unwrap();
    let released = fixture.is_let_go("anew").await || fixture.is_let_go("going").await;
    still_held(begun);
    assert!(!released, "its client still sees what it saw");
    let _again = goes_on(fixture).await;
    fixture.until_let_go("anew").await;
    fixture.until_let_go("going").await;
    let going = metadata(&secrets.get("going").await.unwrap());
    assert!(going["deletionTimestamp"].is_string() && going["labels"] == json!({"app": "shop"}), "{going}");
    secrets.patch("going", &PatchParams::default(), &finalizers(&[])).await.unwrap();
    for name in ["back", "again"] {
        let kept = metadata(&secrets.get(name).await.unwrap());
        assert_eq!(kept["labels"], json!({"app": "shop", &labels.shard: fixture.shard}), "{name}");
    }
    let (_, shown) = fixture.list("labelSelector=app%3Dshop").await;
    let shown = shown.to_string();
    assert!(shown.contains("\"back\"") && shown.contains("\"again\"") && !shown.contains("\"anew\""), "{shown}");
}

/// An object, named as its shard, that is drained, and held since then by a watch that ended, which its client may begin again.
async fn held(world: &Proxies, shard: &str) -> (Fixture, Instant) {
    let fixture = Fixture::start(world, shard).await;
    fixture.create(shard).await;
    let begun = hold_everything(&fixture).await;
    fixture.drain(shard, "move-1").await;
    fixture.until_drains(|drains, _| drains > 0.0).await;
    (fixture, begun)
}

/// Ends the proxy in order; returns the shard's Lease, which has no holder then.
async fn released(world: &Proxies, proxy: Proxy, shard: &str) -> Lease {
    proxy.process.terminate().unwrap();
    let ended = proxy.process.wait(SOON).await.unwrap();
    assert!(ended.success(), "{ended}");
    let leases: Api<Lease> = Api::namespaced(world.control_plane.client(), NAMESPACE);
    let lease = leases.get(shard).await.unwrap();
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    assert_eq!(holder.unwrap_or_default(), "", "it was released");
    lease
}

/// Although a watch that ended holds it, which no client continues.
pub(crate) async fn who_ends_lets_go_of_what_is_drained_before_its_lease_is_released(world: &Proxies) {
    let (Fixture { proxied, proxy, secrets, labels, shard, .. }, begun) = held(world, "ends").await;
    drop(proxied);
    let (lease, left) = (released(world, proxy, &shard).await, secrets.get(&shard).await.unwrap());
    still_held(begun);
    assert!(!left.labels().contains_key(&labels.shard), "{left:?}");
    // Of one etcd, so that one came before the other.
    let [acknowledged, released] =
        [left.metadata, lease.metadata].map(|it| it.resource_version.unwrap().parse::<u64>().unwrap());
    assert!(acknowledged < released, "{acknowledged} {released}");
}

/// It may be at work on what it has seen.
pub(crate) async fn a_controller_that_goes_on_beside_a_proxy_that_ends_holds_what_it_has_seen(world: &Proxies) {
    let (fixture, begun) = held(world, "ends-alone").await;
    let _goes_on = fixture.get("/api/v1/namespaces/default/configmaps?watch=true", &[]).await;
    let Fixture { proxied: _proxied, proxy, secrets, labels, shard, .. } = fixture;
    released(world, proxy, &shard).await;
    // Later the watch that ended holds nothing any more.
    still_held(begun);
    let held = secrets.get(&shard).await.unwrap();
    assert!(held.labels().contains_key(&labels.shard), "{held:?}");
}

pub(crate) async fn a_drain_past_its_deadline_is_an_event_on_the_ring(world: &Proxies) {
    let (fixture, _) = held(world, "is-late").await;
    let events: Api<Event> = Api::namespaced(world.control_plane.client(), NAMESPACE);
    let told = eventually("the ring has an Event", SOON, || async {
        let found = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let notes: Vec<_> =
            found.into_iter().filter_map(|event| Some((event.regarding?.kind?, event.reason?, event.note?))).collect();
        let is_told = |(kind, why, note): &(String, String, String)| {
            kind == "ClusterRing" && why == "DrainsHeld" && note.contains("secrets default/is-late")
        };
        if notes.iter().any(is_told) { Ok(()) } else { Err(format!("{notes:?}")) }
    });
    told.await.unwrap();
    fixture.until_drains(|drains, oldest| drains > 0.0 && oldest >= 5.0).await;
    let _again = goes_on(&fixture).await;
    fixture.until_let_go("is-late").await;
    fixture.until_drains(|drains, _| drains < 1.0).await;
}
