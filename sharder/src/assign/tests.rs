//! What tests of assignment and of passes share.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use ringside_ring::{cluster_ring::Fence, lease::ShardState};

use crate::{
    fixtures::FakeApi,
    leases::tests::held_by,
    probe::Verdicts,
    queue::moves::Moves,
    snapshot::tests::{example_spec, ring, snapshot, snapshot_of},
};

pub(crate) const CONFIG_MAPS: &str = "configmaps";
pub(crate) const SECRETS: &str = "secrets";

pub(crate) fn path(resource: &str, name: &str) -> String {
    format!("/api/v1/namespaces/default/{resource}/{name}")
}

/// ConfigMaps with Secrets, in namespace `default`, which is the ring's; shards `a`, `b`, and `gone`, which is dead.
pub(crate) fn scope(api: &FakeApi) -> Scope {
    api.put("/api/v1/namespaces/default", json!({"metadata": {"name": "default", "labels": {"role": "project"}}}));
    let snapshot = Arc::new(snapshot());
    let (namespaces, _not_followed) = Namespaces::follow(api.client());
    let begun = Begun::default();
    begun.know(&snapshot.mains[0].resource.id);
    Scope {
        client: api.client(),
        watches: api.client(),
        newest: Newest::default(),
        main: snapshot.mains[0].clone(),
        leases: held_by(&["a", "b"]),
        drains: Drains::default(),
        moves: Moves::default(),
        census: Census::default(),
        fences: crate::fence::follow(api.client()).0,
        notices: Notices::new(api.client()),
        begun,
        foresight: Foresight::default(),
        carried: Carried::default(),
        looks: Looks::default(),
        due: Due::default(),
        reach: Verdicts::default(),
        writes: Writes::default(),
        faults: Faults::default(),
        namespaces,
        metrics: Metrics::default(),
        snapshot,
    }
}

/// The same, and the API server's fence is around shard `a`.
pub(crate) fn fenced(api: &FakeApi) -> Scope {
    let mut scope = scope(api);
    let mut snapshot = (*scope.snapshot).clone();
    snapshot.spec.fence = Fence::ApiServer;
    scope.snapshot = Arc::new(snapshot);
    scope.fences = crate::fence::tests::in_place(&scope.snapshot, &[CONFIG_MAPS, SECRETS], &["a"]);
    scope
}

/// An object as it is seen.
pub(crate) fn target(scope: &Scope, object: &Value) -> Target {
    let object: crate::resources::Object = serde_json::from_value(object.clone()).unwrap();
    scope.target(&object)
}

/// A name of a ConfigMap that belongs to `shard`.
pub(crate) fn name_of(shard: &str, scope: &Scope) -> String {
    let belongs = |name: &String| {
        let key = scope.main.resource.key(Some("default"), name);
        scope.snapshot.hash_ring().owner(&key).unwrap().as_str() == shard
    };
    (0..).map(|i| format!("o-{i}")).find(belongs).unwrap()
}

/// An object with uid `uid-<name>`.
pub(crate) fn object(scope: &Scope, name: &str, shard: Option<&str>) -> Value {
    let mut object = json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "7"}});
    if let Some(shard) = shard {
        object["metadata"]["labels"] = json!({&scope.snapshot.labels.shard: shard});
    }
    object
}

/// The same, controlled by the ConfigMap `owner`.
pub(crate) fn owned(object: Value, owner: &str) -> Value {
    owned_by(object, ("v1", "ConfigMap"), owner)
}

fn owned_by(mut object: Value, (api_version, kind): (&str, &str), owner: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": api_version, "kind": kind, "name": owner, "uid": format!("uid-{owner}"), "controller": true}]);
    object
}

/// A ConfigMap without owner whose home is `shard`, and a Secret that it controls and that `with` has: the first one's name, and
/// where both are.
pub(crate) fn owner_and_child(api: &FakeApi, scope: &Scope, shard: &str, with: &str) -> (String, String, String) {
    let name = name_of(shard, scope);
    let (main, child) = (path(CONFIG_MAPS, &name), path(SECRETS, "child"));
    api.put(&main, object(scope, &name, None));
    api.put(&child, owned(object(scope, "child", Some(with)), &name));
    (name, main, child)
}

/// The snapshot in which one of `a` and `b` is late.
pub(crate) fn late(shard: &str) -> Arc<Snapshot> {
    let state = |of: &str| if of == shard { ShardState::Expired } else { ShardState::Ready };
    let shards = [("a", state("a")), ("b", state("b")), ("gone", ShardState::Dead)];
    Arc::new(snapshot_of(&ring(&example_spec()), &shards))
}

/// A Deployment.
pub(crate) fn top(name: &str) -> String {
    format!("/apis/apps/v1/namespaces/default/deployments/{name}")
}

/// The same with Deployments that control ConfigMaps, which control Secrets.
pub(crate) fn chain(api: &FakeApi) -> Scope {
    let of = |group: &str, resource: &str| json!({"group": group, "resource": resource});
    let spec = json!({
        "resources": [{"group": "apps", "resource": "deployments", "controlledResources": [of("", "secrets"), of("", "configmaps")]}],
        "namespaceSelector": {"matchLabels": {"role": "project"}},
    });
    let shards = [("a", ShardState::Ready), ("b", ShardState::Ready), ("gone", ShardState::Dead)];
    let snapshot = Arc::new(snapshot_of(&ring(&spec), &shards));
    let main = snapshot.mains[0].clone();
    let scope = Scope { main, snapshot, ..scope(api) };
    scope.begun.know(&scope.main.resource.id);
    scope
}

/// A Deployment `top`, its ConfigMap `middle`, and the Secret `leaf` of that, all of them a shard's.
pub(crate) fn put_chain(api: &FakeApi, scope: &Scope, shard: &str) {
    api.put(&top("top"), object(scope, "top", Some(shard)));
    let middle = owned_by(object(scope, "middle", Some(shard)), ("apps/v1", "Deployment"), "top");
    api.put(&path(CONFIG_MAPS, "middle"), middle);
    api.put(&path(SECRETS, "leaf"), owned(object(scope, "leaf", Some(shard)), "middle"));
}
