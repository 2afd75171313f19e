//! CustomResourceDefinitions that come, change and go while a ring names their resource.

use serde_json::json;

use crate::resources::fixture::{Fixture, GROUP, config_maps, custom, definition, entry, home_of, secrets, team};

/// What the sharder says while a resource is missing.
fn missing(plural: &str) -> String {
    format!("resource '{plural}.{GROUP}' is not served")
}

/// One main, and one controlled. What is served is distributed meanwhile.
pub(crate) async fn a_definition_may_come_after_the_ring_and_go_and_come_as_another(fixture: &Fixture) {
    let (moons, rocks) = (custom("v1", "Moon", "moons"), custom("v1", "Rock", "rocks"));
    fixture.namespace("comes", "comes").await;
    let resources = json!([entry(&moons, &[]), entry(&config_maps(), &[&rocks])]);
    let ring = fixture.ring("comes", resources, team("comes")).await;
    let shards = ring.join(2).await;
    ring.until_ready_is("False", &missing("moons")).await;
    let others = ring.own(&config_maps());
    let owner = others.create("o").await;
    let shard = others.until_owned("o").await;

    fixture.define(&definition("moons", "Moon", "Namespaced", &[("v1", true)])).await;
    ring.until_ready_is("False", &missing("rocks")).await;
    fixture.define(&definition("rocks", "Rock", "Namespaced", &[("v1", true)])).await;
    ring.until_ready_is("True", "").await;
    let children = ring.own(&rocks);
    children.create_under("of-o", &owner).await;
    children.until_placed("of-o", &shard).await;
    let objects = ring.own(&moons);
    for name in ["a", "b", "c", "d"] {
        objects.create(name).await;
        objects.until_placed(name, &home_of(&shards, &moons, "comes", name)).await;
    }

    fixture.undefine("moons").await;
    ring.until_ready_is("False", &missing("moons")).await;
    // Another kind in another scope: what was known of it would be wrong.
    fixture.define(&definition("moons", "NaturalSatellite", "Cluster", &[("v1", true)])).await;
    ring.until_ready_is("True", "").await;
    let satellites = custom("v1", "NaturalSatellite", "moons");
    let objects = ring.objects(&satellites, None);
    for name in ["a", "b", "c", "d"] {
        objects.create(name).await;
        objects.until_placed(name, &home_of(&shards, &satellites, "", name)).await;
    }
    ring.delete().await;
}

pub(crate) async fn a_resource_is_distributed_in_whatever_version_is_served(fixture: &Fixture) {
    let of = |version| custom(version, "Comet", "comets");
    fixture.define(&definition("comets", "Comet", "Namespaced", &[("v1alpha1", true)])).await;
    let resources = json!([entry(&of("v1alpha1"), &[&secrets()])]);
    let (ring, mut shards) = fixture.ready("versions", resources, 2).await;
    let (old, new, children) = (ring.own(&of("v1alpha1")), ring.own(&of("v1")), ring.own(&secrets()));
    old.create("old").await;
    old.until_owned("old").await;

    // A second version, which is stored from now on. A child names its owner in whatever version.
    fixture.define(&definition("comets", "Comet", "Namespaced", &[("v1", true), ("v1alpha1", true)])).await;
    old.create_family(&children, "old-too").await;
    new.create_family(&children, "new").await;

    // The first version is served no more; what a shard leaves is found all the same.
    fixture.define(&definition("comets", "Comet", "Namespaced", &[("v1", true), ("v1alpha1", false)])).await;
    new.create("newest").await;
    new.until_owned("newest").await;
    shards.pop().unwrap().release().await.unwrap();
    for name in ["old", "old-too", "new", "newest"] {
        new.until_with(name, "versions-0").await;
    }
    ring.until_ready_is("True", "").await;
    ring.delete().await;
}
