//! A ring of the newer kind, with native shards that use its labels.

use std::{cell::Cell, collections::BTreeSet};

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{Api, ResourceExt as _};
use ringside_e2e::eventually::eventually;
use ringside_ring::RingKind;
use serde_json::json;

use crate::resources::fixture::{DEADLINE, Fixture, Objects, Ring, config_maps, entry, secrets, team};

/// Two rings of one name, one of each kind: each has its own objects, shards and labels. The newer one assigns, moves, and takes
/// over, and its labels go with it.
pub(crate) async fn rings_of_both_kinds_may_have_one_name(fixture: &Fixture) {
    let resources = || json!([entry(&config_maps(), &[&secrets()])]);
    let mut rings = Vec::new();
    for (kind, namespace) in [(RingKind::ClusterRing, "kind-older"), (RingKind::ControllerRing, "kind-newer")] {
        fixture.namespace(namespace, namespace).await;
        rings.push(fixture.ring_of(kind, "kinds", resources(), team(namespace)).await);
    }
    let [older, newer] = <[_; 2]>::try_from(rings).ok().unwrap();
    assert_eq!(newer.labels.shard, "shard.alpha.sharding.timebertt.dev/kinds");
    let _older_shards = older.join(1).await;
    let mut shards = newer.join(2).await;
    newer.until_ready_is("True", "ControllerRing was successfully reconciled").await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(fixture.client());
    assert!(configurations.get("controllerring-kinds").await.unwrap().webhooks.is_some());

    let _acknowledger = newer.start_acknowledger(&config_maps());
    let (roots, children) =
        (newer.objects(&config_maps(), Some("kind-newer")), newer.objects(&secrets(), Some("kind-newer")));
    until_labelled_before_stored(&roots, &newer).await;
    let names: Vec<_> = (0..20).map(|number| format!("o-{number}")).collect();
    for name in &names {
        let root = roots.create(name).await;
        assert!(!root.labels().contains_key(&older.labels.shard), "{:?}", root.labels());
        children.create_under(name, &root).await;
        children.until_owned(name).await;
    }
    let lone = older.objects(&config_maps(), Some("kind-older"));
    lone.create("o-0").await;
    assert!(lone.until_owned("o-0").await.starts_with("kinds-"));

    // A third shard gets its share, by drains; and what it has goes to the others when it leaves.
    newer.join_one(&mut shards).await;
    let three = [0, 1, 2].map(|number| format!("controllerring-kinds-{number}"));
    eventually("the third has its share", DEADLINE, || are_on(&roots, &children, &three)).await.unwrap();
    shards.pop().unwrap().release().await.unwrap();
    eventually("the third has none", DEADLINE, || are_on(&roots, &children, &three[..2])).await.unwrap();

    newer.delete().await;
    for name in &names {
        roots.until_bare(name).await;
        children.until_bare(name).await;
    }
    assert!(lone.until_owned("o-0").await.starts_with("kinds-"), "the older ring is as it was");
}

/// Whether all objects are on these shards, each with its child, and none of the shards has nothing.
async fn are_on(roots: &Objects, children: &Objects, shards: &[String]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for (name, (shard, drain)) in roots.owners("o-").await {
        let child = children.owner(&name).await;
        if drain.is_some() || child.0 != shard {
            return Err(format!("{name}: {shard:?}, {drain:?}, its child {child:?}"));
        }
        seen.extend(shard);
    }
    if seen.iter().eq(shards) { Ok(()) } else { Err(format!("{seen:?}")) }
}

/// Waits until the webhook labels an object before it is stored. The API server asks it only after its watch has shown it the
/// configuration, and stores an object without it when its answer is late.
async fn until_labelled_before_stored(objects: &Objects, ring: &Ring) {
    let asked = Cell::new(0);
    eventually("the webhook labels an object", DEADLINE, || async {
        asked.set(asked.get() + 1);
        let stored = objects.create(&format!("asked-{}", asked.get())).await;
        if stored.labels().contains_key(&ring.labels.shard) { Ok(()) } else { Err(format!("{:?}", stored.labels())) }
    })
    .await
    .unwrap();
}
