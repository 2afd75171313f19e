//! Objects that are placed together, by a label, an annotation or their namespace.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use ringside_e2e::{eventually::eventually, system::NAMESPACE};
use ringside_ring::{ClusterRing, labels::LEASE_GROUP};
use serde_json::{Value, json};

use crate::resources::fixture::{DEADLINE, Fixture, Objects, Owner, config_maps, entry, home, secrets};

const SPACES: [&str; 2] = ["together", "together-too"];
const TEAMS: [&str; 6] = ["red", "green", "blue", "white", "black", "grey"];

/// The shards of a namespace's objects, by their names.
type Placed = BTreeMap<String, String>;

/// Waits until this holds of both namespaces, and no object is on the move.
async fn until_settled(spaces: &[Objects; 2], what: &str, is: impl Fn(&[Placed]) -> bool) {
    eventually(what, DEADLINE, || async {
        let mut placed = Vec::new();
        for objects in spaces {
            let settled = |(name, (shard, drain)): (_, Owner)| Some((name, shard.filter(|_| drain.is_none())?));
            placed.push(objects.owners("").await.into_iter().filter_map(settled).collect::<Placed>());
        }
        let all = placed.iter().all(|space| space.len() == TEAMS.len());
        if all && is(&placed) { Ok(()) } else { Err(format!("{placed:?}")) }
    })
    .await
    .unwrap();
}

/// One object of each team in each of two namespaces, with a child: they are where their team is, also when that changes; and
/// go where another key, or none, places them.
pub(crate) async fn objects_of_one_value_of_a_key_are_together(fixture: &Fixture) {
    let keyed = |key: Value| {
        let mut resource = entry(&config_maps(), &[&secrets()]);
        resource["key"] = key;
        json!([resource])
    };
    fixture.namespace(SPACES[1], SPACES[0]).await;
    let (ring, shards) = fixture.ready(SPACES[0], keyed(json!({"label": "team"})), 2).await;
    let _acknowledger = ring.start_acknowledger(&config_maps());
    let roots = SPACES.map(|namespace| ring.objects(&config_maps(), Some(namespace)));
    let children = ring.own(&secrets());
    let mut homes = BTreeMap::new();
    for name in TEAMS {
        let metadata = json!({"name": name, "labels": {"team": name}, "annotations": {"tenant": "all"}});
        let owner = roots[0].create_with(metadata.clone()).await;
        let shard = roots[0].until_owned(name).await;
        children.create_under(name, &owner).await;
        children.until_placed(name, &shard).await;
        roots[1].create_with(metadata).await;
        roots[1].until_placed(name, &shard).await;
        homes.insert(name, shard);
    }
    // It changes its team, so it goes where that one is.
    let other = homes.iter().find(|(_, shard)| **shard != homes["red"]);
    let (team, shard) = other.expect("some teams are on each shard");
    roots[0].change("red", json!({"labels": {"team": team}})).await;
    for objects in [&roots[0], &children] {
        objects.until_with("red", shard).await;
    }

    let are_one = |shards: BTreeSet<&String>| shards.len() == 1;
    ring.change(json!({"resources": keyed(json!({"annotation": "tenant"}))})).await;
    until_settled(&roots, "all of the tenant are together", |placed| {
        are_one(placed.iter().flat_map(BTreeMap::values).collect())
    })
    .await;
    ring.change(json!({"resources": keyed(Value::Null)})).await;
    until_settled(&roots, "each is where its name places it", |placed| {
        let is_home = |of: &str, (name, shard): (&String, &String)| *shard == home(&shards, of, name);
        SPACES.iter().zip(placed).all(|(of, placed)| placed.iter().all(|one| is_home(of, one)))
    })
    .await;
    ring.change(json!({"resources": keyed(json!("Namespace"))})).await;
    until_settled(&roots, "those of each namespace are together", |placed| {
        placed.iter().all(|placed| are_one(placed.values().collect()))
    })
    .await;
}

/// Objects of a group go to its shards, and all others to those of none.
pub(crate) async fn objects_of_a_group_are_with_its_shards_alone(fixture: &Fixture) {
    let (ring, shards) = fixture.ready("grouped", json!([entry(&config_maps(), &[&secrets()])]), 3).await;
    let _acknowledger = ring.start_acknowledger(&config_maps());
    let own = shards[2].name().as_str();
    let (objects, children) = (ring.own(&config_maps()), ring.own(&secrets()));
    let groups = json!([{"name": "big", "selector": {"matchLabels": {"tenant": "big"}}}]);
    ring.change(json!({"groups": groups})).await;
    ring.until_ready_is("False", "group 'big' has 0 of 1 shards").await;
    let big = |name: &str| json!({"name": name, "labels": {"tenant": "big"}});
    objects.create_with(big("waits")).await;
    let leases: Api<Lease> = Api::namespaced(fixture.client(), NAMESPACE);
    let mark = |group: Value| Patch::Merge(json!({"metadata": {"annotations": {LEASE_GROUP: group}}}));
    leases.patch(own, &PatchParams::default(), &mark(json!("big"))).await.unwrap();
    ring.until_ready_is("True", "").await;
    objects.until_placed("waits", own).await;
    for number in 0..6 {
        let (large, small) = (format!("large-{number}"), format!("small-{number}"));
        let owner = objects.create_with(big(&large)).await;
        children.create_under(&large, &owner).await;
        objects.create(&small).await;
        objects.until_placed(&large, own).await;
        children.until_placed(&large, own).await;
        assert_ne!(objects.until_owned(&small).await, own);
    }
    // It is of the group no more, and goes with its child.
    objects.change("large-0", json!({"labels": {"tenant": null}})).await;
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
pub(crate) async fn a_key_that_can_t_be_used_is_refused_or_told(fixture: &Fixture) {
    let mut resource = entry(&config_maps(), &[]);
    let (ring, _shards) = fixture.ready("unusable-key", json!([resource.clone()]), 1).await;
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
