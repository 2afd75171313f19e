//! What becomes of the object.

use std::time::Duration;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret, events::v1::Event};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use ringside_e2e::{eventually::eventually, proxy::Proxy};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::handover::{
    fixture::{Fixture, GRACE, SECRETS, SOON, World},
    watches::Watch,
};

/// How long what ended is remembered for.
const HELD: Duration = Duration::from_secs(30);

/// Until its client watches again, a watch that ended holds all that it may have shown.
async fn hold_everything(fixture: &Fixture) {
    drop(goes_on(fixture).await);
}

/// A watch of everything, from now on.
async fn goes_on(fixture: &Fixture) -> Watch {
    let (_, list) = fixture.list(&format!("{SECRETS}?limit=1")).await;
    let now = list["metadata"]["resourceVersion"].as_str().unwrap();
    Watch::open(fixture, &format!("resourceVersion={now}"), "application/json", false).await
}

fn metadata(secret: &Secret) -> Value {
    serde_json::to_value(&secret.metadata).unwrap()
}

/// While drains are held: one is taken back, one begun anew, one object is deleted, one deleted and made again, and one is
/// being deleted.
pub(crate) async fn only_what_is_still_drained_by_that_very_move_is_let_go(world: &World) {
    let fixture = &world.shard("acknowledges").await;
    let names = ["back", "anew", "deleted", "again", "going"];
    for name in names {
        fixture.create(name).await;
    }
    hold_everything(fixture).await;
    for name in names {
        fixture.drain(name, "move-1").await;
    }
    let (secrets, labels) = (&fixture.secrets, &fixture.labels);
    fixture.label("back", &json!({&labels.drain: null})).await;
    fixture.drain("anew", "move-2").await;
    for name in ["deleted", "again"] {
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }
    fixture.create("again").await;
    let finalizers = |list: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    secrets.patch("going", &PatchParams::default(), &finalizers(&["example.com/wait"])).await.unwrap();
    secrets.delete("going", &DeleteParams::default()).await.unwrap();
    let let_go = fixture.is_let_go("anew").await || fixture.is_let_go("going").await;
    assert!(!let_go, "its client still sees what it saw");
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
    let (_, shown) = fixture.list(&format!("{SECRETS}?labelSelector=app%3Dshop")).await;
    let shown = shown.to_string();
    assert!(shown.contains("\"back\"") && shown.contains("\"again\"") && !shown.contains("\"anew\""), "{shown}");
}

/// An object, named as its shard, that is drained and held by a watch that ended, which its client may begin again.
async fn held(world: &World, shard: &str) -> Fixture {
    let fixture = world.shard(shard).await;
    fixture.create(shard).await;
    hold_everything(&fixture).await;
    fixture.drain(shard, "move-1").await;
    let drained = eventually("the proxy knows of the drain", SOON, || async {
        let (drains, _) = fixture.drains().await;
        if drains > 0.0 { Ok(()) } else { Err("not yet".to_owned()) }
    });
    drained.await.unwrap();
    sleep(2 * GRACE).await;
    assert!(!fixture.is_let_go(shard).await, "its client may watch again");
    fixture
}

/// Ends the proxy in order; returns the shard's Lease, which has no holder then.
async fn released(proxy: Proxy, direct: Client, shard: &str) -> Lease {
    proxy.process.terminate().unwrap();
    let ended = proxy.process.wait(SOON).await.unwrap();
    assert!(ended.success(), "{ended}");
    let leases: Api<Lease> = Api::namespaced(direct, "default");
    let lease = leases.get(shard).await.unwrap();
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    assert_eq!(holder.unwrap_or_default(), "", "it was released");
    lease
}

/// Although a watch that ended holds it, which nobody is there to continue.
pub(crate) async fn who_ends_lets_go_of_what_is_drained_before_its_lease_is_released(world: &World) {
    let Fixture { proxied, proxy, direct, secrets, labels, shard, .. } = held(world, "ends").await;
    drop(proxied);
    let (lease, left) = (released(proxy, direct, &shard).await, secrets.get(&shard).await.unwrap());
    assert!(!left.labels().contains_key(&labels.shard), "{left:?}");
    // Of one etcd, so that one came before the other.
    let [let_go, released] =
        [left.metadata, lease.metadata].map(|it| it.resource_version.unwrap().parse::<u64>().unwrap());
    assert!(let_go < released, "{let_go} {released}");
}

/// It may be at work on what it has seen.
pub(crate) async fn a_controller_that_goes_on_beside_a_proxy_that_ends_holds_what_it_has_seen(world: &World) {
    for shard in ["ends-alone", "ends-alone-again", "ends-alone-once-more"] {
        let start = Instant::now();
        let fixture = held(world, shard).await;
        let goes_on = fixture.get("/api/v1/namespaces/default/configmaps?watch=true", &[]).await;
        let Fixture { proxied, proxy, direct, secrets, labels, shard, .. } = fixture;
        released(proxy, direct, &shard).await;
        // Nothing says after that that a watch which ended holds anything: then the machine was too slow for this.
        if start.elapsed() >= HELD {
            continue;
        }
        let held = secrets.get(&shard).await.unwrap();
        assert!(held.labels().contains_key(&labels.shard), "{held:?}");
        drop((goes_on, proxied));
        return;
    }
    panic!("a proxy takes longer to end than what ended is remembered for");
}

pub(crate) async fn a_drain_past_its_deadline_is_an_event_on_the_ring(world: &World) {
    let fixture = &world.shard("is-late").await;
    fixture.create("held").await;
    hold_everything(fixture).await;
    fixture.drain("held", "move-1").await;
    let events: Api<Event> = Api::namespaced(fixture.direct.clone(), "default");
    let told = eventually("the ring has an Event", SOON, || async {
        let found = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let about = |event: &Event| event.regarding.as_ref().and_then(|it| it.name.clone());
        let of_the_ring = found.into_iter().filter(|event| about(event).as_deref() == Some("moves"));
        let notes: Vec<_> = of_the_ring.filter_map(|event| Some((event.reason?, event.note?))).collect();
        let told = notes.iter().any(|(why, note)| why == "DrainsHeld" && note.contains("secrets default/held"));
        if told { Ok(()) } else { Err(format!("{notes:?}")) }
    });
    told.await.unwrap();
    let log = fixture.log();
    let said: Vec<_> = log.lines().filter(|line| line.contains("can't release drained objects yet")).collect();
    let [line] = &said[..] else { panic!("once: {log}") };
    for part in ["WARN", "resource=secrets", "namespace=\"default\"", "name=\"held\"", "waits_for=\"a watch or list"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let (drains, oldest) = fixture.drains().await;
    assert!(drains > 0.0 && oldest >= 5.0, "{drains} drains, the oldest of {oldest} s");
    let _again = goes_on(fixture).await;
    fixture.until_let_go("held").await;
    let none = eventually("the proxy has no drain any more", SOON, || async {
        let drains = fixture.drains().await;
        if drains.0 < 1.0 { Ok(()) } else { Err(format!("{drains:?}")) }
    });
    none.await.unwrap();
}
