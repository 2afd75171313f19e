//! Namespaces and resources that leave a ring: labels come off in the order of a handover.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ringside_e2e::{eventually::eventually, plain_shard::Acknowledger};
use serde_json::json;

use crate::resources::fixture::{
    DEADLINE, Fixture, Objects, Ring, config_maps, custom, definition, entry, secrets, team,
};

/// A shard that lets go only once it is allowed to.
fn reluctant(fixture: &Fixture, ring: &Ring, resource: &kube::api::ApiResource) -> (Arc<AtomicBool>, Acknowledger) {
    let willing = Arc::new(AtomicBool::new(false));
    let lets_go = willing.clone();
    let labels = ring.labels.clone();
    (willing, Acknowledger::start(&fixture.client(), &labels, resource, move |_| lets_go.load(Ordering::Relaxed)))
}

async fn until_drained(objects: &Objects, name: &str) {
    objects.until(name, "is drained", |(shard, drain)| shard.is_some() && drain.is_some()).await;
}

pub(crate) async fn namespace(fixture: &Fixture) {
    fixture.namespace("leaves", "leaves").await;
    fixture.namespace("remains", "leaves").await;
    let ring = fixture.ring("leaves", json!([entry(&config_maps(), &[&secrets()])]), team("leaves")).await;
    let _shards = ring.join(2).await;
    ring.until_ready_is("True", "").await;
    let (owners, children) = (ring.objects(&config_maps(), Some("leaves")), ring.objects(&secrets(), Some("leaves")));
    let owner = owners.create("o").await;
    let shard = owners.until_owned("o").await;
    children.create_under("of-o", &owner).await;
    assert_eq!(children.until_owned("of-o").await, shard);
    let elsewhere = ring.objects(&config_maps(), Some("remains"));
    elsewhere.create("o").await;
    let kept = elsewhere.until_owned("o").await;

    fixture.relabel("leaves", "another").await;
    until_drained(&owners, "o").await;
    let labelled = (Some(shard.clone()), None);
    assert_eq!(children.owner("of-o").await, labelled, "its owner is still worked on");
    let _acknowledger = Acknowledger::start(&fixture.client(), &ring.labels, &config_maps(), |_| true);
    owners.until_bare("o").await;
    children.until_bare("of-o").await;
    assert_eq!(elsewhere.owner("o").await, (Some(kept), None));
    let stranger = owners.create("of-nobody").await;
    assert_eq!(owners.owner_of(&stranger), (None, None));

    fixture.relabel("leaves", "leaves").await;
    assert_eq!(owners.until_owned("o").await, shard, "it is the ring's again");
    assert_eq!(children.until_owned("of-o").await, shard);
    owners.until_owned("of-nobody").await;
    ring.delete().await;
}

pub(crate) async fn namespace_of_the_dead(fixture: &Fixture) {
    fixture.namespace("grave", "grave").await;
    let ring = fixture.ring("grave", json!([entry(&config_maps(), &[&secrets()])]), team("grave")).await;
    let mut shards = ring.join(1).await;
    ring.until_ready_is("True", "").await;
    let (owners, children) = (ring.objects(&config_maps(), Some("grave")), ring.objects(&secrets(), Some("grave")));
    let owner = owners.create("o").await;
    owners.until_owned("o").await;
    children.create_under("of-o", &owner).await;
    children.until_owned("of-o").await;
    // Nobody is left who could let go, and then the namespace leaves.
    shards.pop().unwrap().release().await.unwrap();
    ring.until_available(0).await;
    fixture.relabel("grave", "another").await;
    let name = "grave-heir".parse().unwrap();
    let _heir = ringside_e2e::plain_shard::PlainShard::join(
        &fixture.client(),
        ringside_e2e::system::NAMESPACE,
        &ring.name,
        &name,
        crate::resources::fixture::LEASE,
    )
    .await
    .unwrap();
    // It may get the object in the moment in which the namespace leaves.
    let _acknowledger = Acknowledger::start(&fixture.client(), &ring.labels, &config_maps(), |_| true);
    owners.until_bare("o").await;
    children.until_bare("of-o").await;
    ring.delete().await;
}

pub(crate) async fn namespace_without_shards(fixture: &Fixture) {
    for name in ["deserted", "inhabited"] {
        fixture.namespace(name, "deserted").await;
    }
    let ring = fixture.ring("deserted", json!([entry(&config_maps(), &[&secrets()])]), team("deserted")).await;
    let mut shards = ring.join(1).await;
    ring.until_ready_is("True", "").await;
    let elsewhere = ring.objects(&config_maps(), Some("inhabited"));
    elsewhere.create("o").await;
    let kept = elsewhere.until_owned("o").await;
    let space = Some("deserted");
    let (owners, children) = (ring.objects(&config_maps(), space), ring.objects(&secrets(), space));
    let owner = owners.create("o").await;
    owners.until_owned("o").await;
    children.create_under("of-o", &owner).await;
    children.until_owned("of-o").await;
    shards.pop().unwrap().release().await.unwrap();
    ring.until_available(0).await;
    fixture.relabel("deserted", "another").await;
    owners.until_bare("o").await;
    children.until_bare("of-o").await;
    // What is still the ring's waits for a shard as it is.
    assert_eq!(elsewhere.owner("o").await, (Some(kept), None));
    ring.until_ready_is("True", "").await;
    ring.until_available(0).await;
    ring.delete().await;
}

pub(crate) async fn resource(fixture: &Fixture) {
    let drums = custom("v1", "Drum", "drums");
    fixture.define(&definition("drums", "Drum", "Namespaced", &[("v1", true)])).await;
    fixture.namespace("shrinks", "shrinks").await;
    let ring = fixture
        .ring("shrinks", json!([entry(&drums, &[&secrets()]), entry(&config_maps(), &[])]), team("shrinks"))
        .await;
    let _shards = ring.join(2).await;
    ring.until_ready_is("True", "").await;
    let space = Some("shrinks");
    let (owners, children) = (ring.objects(&drums, space), ring.objects(&secrets(), space));
    let owner = owners.create("o").await;
    let shard = owners.until_owned("o").await;
    children.create_under("of-o", &owner).await;
    children.until_owned("of-o").await;
    let others = ring.objects(&config_maps(), space);
    others.create("o").await;
    let kept = others.until_owned("o").await;

    let (willing, _acknowledger) = reluctant(fixture, &ring, &drums);
    ring.change(json!({"resources": [entry(&config_maps(), &[])]})).await;
    until_drained(&owners, "o").await;
    assert_eq!(children.owner("of-o").await, (Some(shard), None), "its owner may still be worked on");
    willing.store(true, Ordering::Relaxed);
    // The next event about it asks for the acknowledgement again.
    let touch = kube::api::Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
    owners.api.patch("o", &Default::default(), &touch).await.unwrap();
    owners.until_bare("o").await;
    children.until_bare("of-o").await;
    assert_eq!(others.owner("o").await, (Some(kept), None));
    eventually("the status names what is left", DEADLINE, || async {
        let named: Vec<_> = ring.get().await?.status.unwrap().resources.iter().map(|it| it.resource.clone()).collect();
        if named == ["configmaps"] { Ok(()) } else { Err(format!("{named:?}")) }
    })
    .await
    .unwrap();
    ring.delete().await;
}

pub(crate) async fn controlled(fixture: &Fixture) {
    fixture.namespace("childless", "childless").await;
    let ring = fixture.ring("childless", json!([entry(&config_maps(), &[&secrets()])]), team("childless")).await;
    let _shards = ring.join(2).await;
    ring.until_ready_is("True", "").await;
    let space = Some("childless");
    let (owners, children) = (ring.objects(&config_maps(), space), ring.objects(&secrets(), space));
    let owner = owners.create("o").await;
    let kept = owners.until_owned("o").await;
    children.create_under("of-o", &owner).await;
    children.until_owned("of-o").await;
    ring.change(json!({"resources": [entry(&config_maps(), &[])]})).await;
    children.until_bare("of-o").await;
    assert_eq!(owners.owner("o").await, (Some(kept), None));
    ring.delete().await;
}
