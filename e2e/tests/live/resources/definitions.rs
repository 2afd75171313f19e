//! CustomResourceDefinitions that come, change and go while a ring names their resource.

use ringside_ring::{HashRing, PartitionKey, ShardName, placement::DEFAULT_TOKENS_PER_SHARD};
use serde_json::json;

use crate::resources::fixture::{Fixture, GROUP, config_maps, custom, definition, entry, secrets, team};

/// What the sharder says while a resource is missing.
fn missing(plural: &str) -> String {
    format!("resource '{plural}.{GROUP}' is not served")
}

/// Where an object belongs by the contract.
fn placed(shards: usize, ring: &str, kind: &str, namespace: &str, name: &str) -> String {
    let shards = (0..shards).map(|i| format!("{ring}-{i}").parse::<ShardName>().unwrap());
    let ring = HashRing::new(shards, DEFAULT_TOKENS_PER_SHARD);
    ring.owner(&PartitionKey::of(GROUP, kind, namespace, name)).unwrap().to_string()
}

pub(crate) async fn comes_and_goes(fixture: &Fixture) {
    let moons = custom("v1", "Moon", "moons");
    fixture.namespace("comes", "comes").await;
    let ring = fixture.ring("comes", json!([entry(&moons, &[]), entry(&config_maps(), &[])]), team("comes")).await;
    let _shards = ring.join(2).await;
    ring.until_ready_is("False", &missing("moons")).await;
    // What is served is distributed meanwhile.
    let others = ring.objects(&config_maps(), Some("comes"));
    others.create("o").await;
    others.until_owned("o").await;

    fixture.define(&definition("moons", "Moon", "Namespaced", &[("v1", true)])).await;
    ring.until_ready_is("True", "").await;
    let objects = ring.objects(&moons, Some("comes"));
    for name in ["a", "b", "c", "d"] {
        objects.create(name).await;
        assert_eq!(objects.until_owned(name).await, placed(2, "comes", "Moon", "comes", name));
    }

    fixture.undefine("moons").await;
    ring.until_ready_is("False", &missing("moons")).await;
    // Another kind in another scope: what was known of it would be wrong.
    fixture.define(&definition("moons", "NaturalSatellite", "Cluster", &[("v1", true)])).await;
    ring.until_ready_is("True", "").await;
    let objects = ring.objects(&custom("v1", "NaturalSatellite", "moons"), None);
    for name in ["a", "b", "c", "d"] {
        objects.create(name).await;
        assert_eq!(objects.until_owned(name).await, placed(2, "comes", "NaturalSatellite", "", name));
    }
    ring.delete().await;
}

pub(crate) async fn versions(fixture: &Fixture) {
    let of = |version| custom(version, "Comet", "comets");
    fixture.namespace("versions", "versions").await;
    fixture.define(&definition("comets", "Comet", "Namespaced", &[("v1alpha1", true)])).await;
    let ring = fixture.ring("versions", json!([entry(&of("v1alpha1"), &[&secrets()])]), team("versions")).await;
    let mut shards = ring.join(2).await;
    ring.until_ready_is("True", "").await;
    let owned = async |version: &'static str, name: &str| {
        let objects = ring.objects(&of(version), Some("versions"));
        objects.create(name).await;
        objects.until_owned(name).await
    };
    owned("v1alpha1", "old").await;

    // A second version, which is stored from now on.
    fixture.define(&definition("comets", "Comet", "Namespaced", &[("v1", true), ("v1alpha1", true)])).await;
    owned("v1alpha1", "old-too").await;
    owned("v1", "new").await;
    // A child names its owner in whatever version.
    for (version, child) in [("v1alpha1", "of-old"), ("v1", "of-new")] {
        let owner = ring.objects(&of(version), Some("versions")).api.get("old").await.unwrap();
        let children = ring.objects(&secrets(), Some("versions"));
        children.create_under(child, &owner).await;
        assert_eq!(
            Some(children.until_owned(child).await),
            ring.objects(&of(version), Some("versions")).owner("old").await.0
        );
    }

    // The first version is served no more; what a shard leaves is found all the same.
    fixture.define(&definition("comets", "Comet", "Namespaced", &[("v1", true), ("v1alpha1", false)])).await;
    owned("v1", "newest").await;
    shards.pop().unwrap().release().await.unwrap();
    let objects = ring.objects(&of("v1"), Some("versions"));
    for name in ["old", "old-too", "new", "newest"] {
        objects
            .until(name, "is with the shard that is left", |(shard, _)| shard.as_deref() == Some("versions-0"))
            .await;
    }
    ring.until_ready_is("True", "").await;
    ring.delete().await;
}

pub(crate) async fn controlled(fixture: &Fixture) {
    let rocks = custom("v1", "Rock", "rocks");
    fixture.namespace("rocky", "rocky").await;
    let ring = fixture.ring("rocky", json!([entry(&config_maps(), &[&rocks])]), team("rocky")).await;
    let _shards = ring.join(2).await;
    ring.until_ready_is("False", &missing("rocks")).await;
    let owners = ring.objects(&config_maps(), Some("rocky"));
    let owner = owners.create("o").await;
    let shard = owners.until_owned("o").await;
    fixture.define(&definition("rocks", "Rock", "Namespaced", &[("v1", true)])).await;
    ring.until_ready_is("True", "").await;
    let children = ring.objects(&rocks, Some("rocky"));
    children.create_under("of-o", &owner).await;
    assert_eq!(children.until_owned("of-o").await, shard);
    ring.delete().await;
}
