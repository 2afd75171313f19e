//! Rings, their shards and their objects, in whatever order they come.

use ringside_e2e::plain_shard::PlainShard;
use serde_json::json;

use crate::resources::fixture::{Fixture, config_maps, custom, definition, entry, home, secrets, team};

/// Enough that some move in both of two rings when a shard joins each.
const OBJECTS: usize = 30;

pub(crate) async fn resources_of_every_scope_and_group_are_distributed(fixture: &Fixture) {
    fixture.define(&definition("planets", "Planet", "Cluster", &[("v1", true)])).await;
    fixture.define(&definition("ships", "Ship", "Namespaced", &[("v1", true)])).await;
    let (planets, ships) = (custom("v1", "Planet", "planets"), custom("v1", "Ship", "ships"));
    let resources = json!([entry(&planets, &[&secrets()]), entry(&ships, &[]), entry(&config_maps(), &[])]);
    let (ring, _shards) = fixture.ready("every-kind", resources, 2).await;
    let (planets, children) = (ring.objects(&planets, None), ring.own(&secrets()));
    for objects in [&planets, &ring.own(&ships), &ring.own(&config_maps())] {
        for name in ["a", "b", "c"] {
            objects.create(name).await;
            objects.until_owned(name).await;
        }
        // It has no name yet when the webhook sees it.
        objects.generate("made-up-").await;
    }
    // A child of an object without namespace is in one. And nothing else of the namespace is the ring's.
    planets.create_family(&children, "earth").await;
    let free = children.create("free").await;
    assert_eq!(children.owner_of(&free), (None, None));
}

pub(crate) async fn a_ring_may_come_after_its_objects_and_so_may_its_resources(fixture: &Fixture) {
    let resources = json!([entry(&config_maps(), &[])]);
    let (ring, _shards) = fixture.ready("afterwards", resources.clone(), 2).await;
    let (objects, others) = (ring.own(&config_maps()), ring.own(&secrets()));
    objects.create("o").await;
    let before = objects.until_owned("o").await;
    others.create("o").await;
    assert_eq!(others.owner("o").await, (None, None));
    ring.change(json!({"resources": [entry(&config_maps(), &[]), entry(&secrets(), &[])]})).await;
    others.until_owned("o").await;
    // The ring goes, its shards stay, and it comes again.
    ring.delete().await;
    for objects in [&objects, &others] {
        objects.until_bare("o").await;
    }
    let ring = fixture.ring("afterwards", resources, team("afterwards")).await;
    ring.until_available(2).await;
    objects.until_placed("o", &before).await;
}

pub(crate) async fn an_object_can_be_in_several_rings(fixture: &Fixture) {
    fixture.namespace("several", "several").await;
    let resources = json!([entry(&config_maps(), &[])]);
    let one = fixture.ring("several-one", resources.clone(), team("several")).await;
    let other = fixture.ring("several-other", resources, team("several")).await;
    let (mut of_ones, mut of_others) = (one.join(2).await, other.join(3).await);
    let _acknowledgers = [&one, &other].map(|ring| ring.start_acknowledger(&config_maps()));
    let [of_one, of_other] = [&one, &other].map(|ring| ring.objects(&config_maps(), Some("several")));
    let names: Vec<_> = (0..OBJECTS).map(|number| format!("o-{number}")).collect();
    for name in &names {
        of_one.create(name).await;
        of_one.until_owned(name).await;
        of_other.until_owned(name).await;
    }
    // A shard joins in each ring, and some objects move in both, side by side.
    let homes = |ones: &[PlainShard], others: &[PlainShard]| -> Vec<_> {
        names.iter().map(|name| (home(ones, "several", name), home(others, "several", name))).collect()
    };
    let before = homes(&of_ones, &of_others);
    tokio::join!(one.join_one(&mut of_ones), other.join_one(&mut of_others));
    let now = homes(&of_ones, &of_others);
    let in_both = before.iter().zip(&now).filter(|(before, now)| before.0 != now.0 && before.1 != now.1).count();
    assert!(in_both > 0);
    for (name, (home, other_home)) in names.iter().zip(now) {
        of_one.until_with(name, &home).await;
        of_other.until_with(name, &other_home).await;
    }
    let kept = of_other.owners("o-").await;
    one.delete().await;
    for name in &names {
        of_one.until_bare(name).await;
    }
    assert_eq!(of_other.owners("o-").await, kept, "the other ring is not concerned");
}
