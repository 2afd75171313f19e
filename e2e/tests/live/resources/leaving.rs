//! Namespaces and resources that leave a ring: labels come off in the order of a handover.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ringside_e2e::{eventually::eventually, plain_shard::Acknowledger};
use serde_json::json;

use crate::resources::fixture::{DEADLINE, Fixture, config_maps, custom, definition, entry, secrets};

/// Once with shards, which release first, and once without, where nothing is waited for.
pub(crate) async fn objects_of_a_namespace_that_leaves_are_let_go_of_first(fixture: &Fixture) {
    fixture.namespace("remains", "leaves").await;
    let (ring, shards) = fixture.ready("leaves", json!([entry(&config_maps(), &[&secrets()])]), 2).await;
    let (owners, children) = (ring.own(&config_maps()), ring.own(&secrets()));
    let shard = owners.create_family(&children, "o").await;
    let elsewhere = ring.objects(&config_maps(), Some("remains"));
    elsewhere.create("o").await;
    let kept = (Some(elsewhere.until_owned("o").await), None);

    fixture.relabel("leaves", "another").await;
    owners.until_drained("o").await;
    assert_eq!(children.owner("o").await, (Some(shard.clone()), None), "its owner is still worked on");
    let _acknowledger = ring.start_acknowledger(&config_maps());
    owners.until_bare("o").await;
    children.until_bare("o").await;
    assert_eq!(elsewhere.owner("o").await, kept);
    let stranger = owners.create("of-nobody").await;
    assert_eq!(owners.owner_of(&stranger), (None, None));

    // They are the ring's again.
    fixture.relabel("leaves", "leaves").await;
    owners.until_placed("o", &shard).await;
    children.until_placed("o", &shard).await;
    owners.until_owned("of-nobody").await;

    for shard in shards {
        shard.release().await.unwrap();
    }
    ring.until_available(0).await;
    fixture.relabel("leaves", "another").await;
    owners.until_bare("o").await;
    children.until_bare("o").await;
    // What is still the ring's waits for a shard as it is.
    assert_eq!(elsewhere.owner("o").await, kept);
    ring.delete().await;
}

/// One with objects and children that are released, and controlled ones of objects that stay, which just lose their
/// labels.
pub(crate) async fn objects_of_a_resource_that_leaves_are_let_go_of_first(fixture: &Fixture) {
    let drums = custom("v1", "Drum", "drums");
    fixture.define(&definition("drums", "Drum", "Namespaced", &[("v1", true)])).await;
    let resources = json!([entry(&drums, &[&secrets()]), entry(&config_maps(), &[&secrets()])]);
    let (ring, _shards) = fixture.ready("shrinks", resources, 2).await;
    let (owners, others, children) = (ring.own(&drums), ring.own(&config_maps()), ring.own(&secrets()));
    let shard = owners.create_family(&children, "leaves").await;
    let kept = others.create_family(&children, "stays").await;

    // A shard that releases only once it is allowed to.
    let willing = Arc::new(AtomicBool::new(false));
    let releases = willing.clone();
    let releases = move |_: &str| releases.load(Ordering::Relaxed);
    let _acknowledger = Acknowledger::start(&fixture.client(), &ring.labels, &drums, releases);
    ring.change(json!({"resources": [entry(&config_maps(), &[])]})).await;
    owners.until_drained("leaves").await;
    assert_eq!(children.owner("leaves").await, (Some(shard), None), "its owner may still be worked on");
    willing.store(true, Ordering::Relaxed);
    // The next event about it asks for the acknowledgement again.
    owners.change("leaves", json!({"annotations": {"touched": "yes"}})).await;
    owners.until_bare("leaves").await;
    children.until_bare("leaves").await;
    children.until_bare("stays").await;
    assert_eq!(others.owner("stays").await, (Some(kept), None));
    eventually("the status names what is left", DEADLINE, || async {
        let named: Vec<_> = ring.get().await?.status.unwrap().resources.iter().map(|it| it.resource.clone()).collect();
        if named == ["configmaps"] { Ok(()) } else { Err(format!("{named:?}")) }
    })
    .await
    .unwrap();
    ring.delete().await;
}
