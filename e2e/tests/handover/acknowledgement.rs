//! What becomes of the object.

use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use ringside_e2e::eventually::eventually;
use serde_json::{Value, json};

use crate::{
    ground::{Ground, SECRETS, SOON, World},
    watches::Watch,
};

/// Until its client watches again, a watch that ended holds all that it may have shown.
async fn hold_everything(ground: &Ground) {
    drop(goes_on(ground).await);
}

/// A watch of everything, from now on.
async fn goes_on(ground: &Ground) -> Watch {
    let (_, list) = ground.list(&format!("{SECRETS}?limit=1")).await;
    let now = list["metadata"]["resourceVersion"].as_str().unwrap();
    Watch::open(ground, &format!("resourceVersion={now}"), "application/json", false).await
}

fn metadata(secret: &Secret) -> Value {
    serde_json::to_value(&secret.metadata).unwrap()
}

/// While drains are held: one is taken back, one begun anew, one object is deleted, one deleted and made again, and one is
/// being deleted.
pub(crate) async fn only_what_is_still_drained_by_that_very_move_is_let_go(world: &World) {
    let ground = &world.shard("acknowledges").await;
    let names = ["back", "anew", "deleted", "again", "going"];
    for name in names {
        ground.create(name).await;
    }
    hold_everything(ground).await;
    for name in names {
        ground.drain(name, "move-1").await;
    }
    let (secrets, labels) = (&ground.secrets, &ground.labels);
    ground.label("back", &json!({&labels.drain: null})).await;
    ground.drain("anew", "move-2").await;
    for name in ["deleted", "again"] {
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }
    ground.create("again").await;
    let finalizers = |list: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    secrets.patch("going", &PatchParams::default(), &finalizers(&["example.com/wait"])).await.unwrap();
    secrets.delete("going", &DeleteParams::default()).await.unwrap();
    let let_go = ground.is_let_go("anew").await || ground.is_let_go("going").await;
    assert!(!let_go, "its client still sees what it saw");
    let _again = goes_on(ground).await;
    ground.until_let_go("anew").await;
    ground.until_let_go("going").await;
    let going = metadata(&secrets.get("going").await.unwrap());
    assert!(going["deletionTimestamp"].is_string() && going["labels"] == json!({"app": "shop"}), "{going}");
    secrets.patch("going", &PatchParams::default(), &finalizers(&[])).await.unwrap();
    for name in ["back", "again"] {
        let kept = metadata(&secrets.get(name).await.unwrap());
        assert_eq!(kept["labels"], json!({"app": "shop", &labels.shard: ground.shard}), "{name}");
    }
    let (_, shown) = ground.list(&format!("{SECRETS}?labelSelector=app%3Dshop")).await;
    let shown = shown.to_string();
    assert!(shown.contains("\"back\"") && shown.contains("\"again\"") && !shown.contains("\"anew\""), "{shown}");
}

pub(crate) async fn a_drain_past_its_deadline_is_an_event_on_the_ring(world: &World) {
    let ground = &world.shard("is-late").await;
    ground.create("held").await;
    hold_everything(ground).await;
    ground.drain("held", "move-1").await;
    let events: Api<Event> = Api::namespaced(ground.direct.clone(), "default");
    let told = eventually("the ring has an Event", SOON, || async {
        let found = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let about = |event: &Event| event.regarding.as_ref().and_then(|it| it.name.clone());
        let of_the_ring = found.into_iter().filter(|event| about(event).as_deref() == Some("moves"));
        let notes: Vec<_> = of_the_ring.filter_map(|event| Some((event.reason?, event.note?))).collect();
        let told = notes.iter().any(|(why, note)| why == "DrainsHeld" && note.contains("secrets default/held"));
        if told { Ok(()) } else { Err(format!("{notes:?}")) }
    });
    told.await.unwrap();
    let log = ground.log();
    let said: Vec<_> = log.lines().filter(|line| line.contains("drained objects can't be let go yet")).collect();
    let [line] = &said[..] else { panic!("once: {log}") };
    for part in ["WARN", "resource=secrets", "namespace=\"default\"", "name=\"held\"", "waits_for=\"a watch or list"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let (drains, oldest) = ground.drains().await;
    assert!(drains > 0.0 && oldest >= 5.0, "{drains} drains, the oldest of {oldest} s");
    let _again = goes_on(ground).await;
    ground.until_let_go("held").await;
    let none = eventually("the proxy has no drain any more", SOON, || async {
        let drains = ground.drains().await;
        if drains.0 < 1.0 { Ok(()) } else { Err(format!("{drains:?}")) }
    });
    none.await.unwrap();
}
