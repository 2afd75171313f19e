//! Objects that are placed together, by a label, an annotation or their namespace.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use ringside_e2e::{eventually::eventually, plain_shard::Acknowledger, system::NAMESPACE};
use ringside_ring::{ClusterRing, labels::LEASE_GROUP};
use serde_json::{Value, json};

use crate::resources::fixture::{DEADLINE, Fixture, Objects, Owner, config_maps, entry, home, secrets, team};

const TEAMS: [&str; 6] = ["red", "green", "blue", "white", "black", "grey"];

async fn annotate(objects: &Objects, name: &str, metadata: Value) -> DynamicObject {
    let patch = Patch::Merge(json!({"metadata": metadata}));
    objects.api.patch(name, &PatchParams::default(), &patch).await.unwrap()
}

/// One object of each team in each of two namespaces, with a child; they are where their team is, also when that changes.
pub(crate) async fn by_label(fixture: &Fixture) {
    let mut resource = entry(&config_maps(), &[&secrets()]);
    resource["key"] = json!({"label": "team"});
    for namespace in ["together-a", "together-b"] {
        fixture.namespace(namespace, "together").await;
    }
    let ring = fixture.ring("together", json!([resource]), team("together")).await;
    let shards = ring.join(2).await;
    ring.until_ready_is("True", "").await;
    let _acknowledger = Acknowledger::start(&fixture.client(), &ring.labels, &config_maps(), |_| true);
    let roots_in = |namespace| ring.objects(&config_maps(), Some(namespace));
    let children_in = |namespace| ring.objects(&secrets(), Some(namespace));
    let mut homes = BTreeSet::new();
    for name in TEAMS {
        let mut shards = BTreeSet::new();
        for namespace in ["together-a", "together-b"] {
            let (objects, children) = (roots_in(namespace), children_in(namespace));
            let owner = objects.create_with(name, json!({"labels": {"team": name}})).await;
            shards.insert(objects.until_owned(name).await);
            children.create_under(name, &owner).await;
            shards.insert(children.until_owned(name).await);
        }
        assert_eq!(shards.len(), 1, "{name} is on {shards:?}");
        homes.extend(shards);
    }
    assert_eq!(homes.len(), 2, "some teams are on each shard");
    // It changes its team, so it goes where that one is.
    let (objects, children) = (roots_in("together-a"), children_in("together-a"));
    let red = objects.owner("red").await.0.unwrap();
    let mut others = Vec::new();
    for name in TEAMS {
        others.extend(objects.owner(name).await.0.filter(|shard| *shard != red).map(|_| name));
    }
    annotate(&objects, "red", json!({"labels": {"team": others[0]}})).await;
    for objects in [&objects, &children] {
        let owner = objects.until("red", "follows its team", |(shard, drain)| {
            drain.is_none() && shard.as_ref().is_some_and(|shard| *shard != red)
        });
        owner.await;
    }
    // And all go where their names are when the ring says no more how they are placed.
    ring.change(json!({"resources": [entry(&config_maps(), &[&secrets()])]})).await;
    for name in TEAMS {
        let home = home(&shards, "together-a", name);
        let is_home = |(shard, drain): &Owner| drain.is_none() && shard.as_ref() == Some(&home);
        objects.until(name, "is where its name places it", is_home).await;
    }
}

/// A namespace, or an annotation.
pub(crate) async fn by_namespace_or_annotation(fixture: &Fixture) {
    let mut resource = entry(&config_maps(), &[]);
    resource["key"] = json!("Namespace");
    let namespaces: Vec<_> = (0..6).map(|number| format!("alike-{number}")).collect();
    for namespace in &namespaces {
        fixture.namespace(namespace, "alike").await;
    }
    let ring = fixture.ring("alike", json!([resource.clone()]), team("alike")).await;
    let _shards = ring.join(2).await;
    ring.until_ready_is("True", "").await;
    let _acknowledger = Acknowledger::start(&fixture.client(), &ring.labels, &config_maps(), |_| true);
    let mut homes = BTreeSet::new();
    for namespace in &namespaces {
        let objects = ring.objects(&config_maps(), Some(namespace));
        let mut shards = BTreeSet::new();
        for name in ["a", "b", "c"] {
            objects.create_with(name, json!({"annotations": {"tenant": "all"}})).await;
            shards.insert(objects.until_owned(name).await);
        }
        assert_eq!(shards.len(), 1, "{namespace} is on {shards:?}");
        homes.extend(shards);
    }
    assert_eq!(homes.len(), 2, "some namespaces are on each shard");
    resource["key"] = json!({"annotation": "tenant"});
    ring.change(json!({"resources": [resource]})).await;
    eventually("all of the tenant are on one shard", DEADLINE, || async {
        let mut owners = BTreeSet::new();
        for namespace in &namespaces {
            let objects = ring.objects(&config_maps(), Some(namespace));
            for name in ["a", "b", "c"] {
                owners.insert(objects.owner(name).await);
            }
        }
        let is_settled = owners.len() == 1 && owners.iter().all(|(shard, drain)| shard.is_some() && drain.is_none());
        if is_settled { Ok(()) } else { Err(format!("{owners:?}")) }
    })
    .await
    .unwrap();
}

/// Objects of a group go to its shards, and all others to those of none.
pub(crate) async fn by_group(fixture: &Fixture) {
    fixture.namespace("grouped", "grouped").await;
    let ring = fixture.ring("grouped", json!([entry(&config_maps(), &[&secrets()])]), team("grouped")).await;
    let shards = ring.join(3).await;
    let _acknowledger = Acknowledger::start(&fixture.client(), &ring.labels, &config_maps(), |_| true);
    let own = shards[2].name().as_str();
    let (objects, children) =
        (ring.objects(&config_maps(), Some("grouped")), ring.objects(&secrets(), Some("grouped")));
    let groups = json!([{"name": "big", "selector": {"matchLabels": {"tenant": "big"}}}]);
    ring.change(json!({"groups": groups})).await;
    ring.until_ready_is("False", "group 'big' has 0 of 1 shards").await;
    let big = json!({"labels": {"tenant": "big"}});
    objects.create_with("waits", big.clone()).await;
    let leases: Api<Lease> = Api::namespaced(fixture.client(), NAMESPACE);
    let mark = |group: Value| Patch::Merge(json!({"metadata": {"annotations": {LEASE_GROUP: group}}}));
    leases.patch(own, &PatchParams::default(), &mark(json!("big"))).await.unwrap();
    ring.until_ready_is("True", "").await;
    assert_eq!(objects.until_owned("waits").await, own);
    for number in 0..6 {
        let (large, small) = (format!("large-{number}"), format!("small-{number}"));
        let owner = objects.create_with(&large, big.clone()).await;
        children.create_under(&large, &owner).await;
        objects.create(&small).await;
        assert_eq!((objects.until_owned(&large).await, children.until_owned(&large).await), (own.into(), own.into()));
        assert_ne!(objects.until_owned(&small).await, own);
    }
    // It is of the group no more, and goes with its child.
    annotate(&objects, "large-0", json!({"labels": {"tenant": null}})).await;
    for objects in [&objects, &children] {
        let is_out = |(shard, drain): &Owner| drain.is_none() && shard.as_ref().is_some_and(|shard| shard != own);
        objects.until("large-0", "leaves the group's shard", is_out).await;
    }
    // A group without shards keeps what it has where it is.
    leases.patch(own, &PatchParams::default(), &mark(Value::Null)).await.unwrap();
    ring.until_ready_is("False", "group 'big' has 0 of 1 shards").await;
    assert_eq!(objects.owner("large-1").await, (Some(own.to_owned()), None));
}

/// What no key is, the API server refuses; what it can't judge, the ring tells.
pub(crate) async fn unusable(fixture: &Fixture) {
    let mut resource = entry(&config_maps(), &[]);
    let ring = fixture.ring("unusable-key", json!([resource.clone()]), team("unusable-key")).await;
    let _shards = ring.join(1).await;
    ring.until_ready_is("True", "").await;
    let rings: Api<ClusterRing> = Api::all(fixture.client());
    for key in [json!("namespace"), json!({}), json!({"lable": "team"}), json!({"label": "a", "annotation": "b"})] {
        resource["key"] = key.clone();
        let patch = Patch::Merge(json!({"spec": {"resources": [resource.clone()]}}));
        let refused = rings.patch("unusable-key", &PatchParams::default(), &patch).await;
        assert!(refused.is_err(), "{key} was taken");
    }
    resource["key"] = json!({"label": ""});
    ring.change(json!({"resources": [resource.clone()]})).await;
    ring.until_ready_is("False", "{label: KEY}").await;
    resource["key"] = Value::Null;
    ring.change(json!({"resources": [resource]})).await;
    ring.until_ready_is("True", "").await;
}
