//! What tests of assignment and of passes share.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use crate::{fixtures::FakeApi, leases::tests::held_by, snapshot::tests::snapshot};

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
    Scope {
        client: api.client(),
        watches: api.client(),
        main: snapshot.mains[0].clone(),
        leases: held_by(&["a", "b"]),
        drains: Drains::new(snapshot.ring.clone(), Metrics::default()),
        fences: crate::fence::follow(api.client()).0,
        notices: Notices::new(api.client()),
        begun: Begun::default(),
        writes: Writes::default(),
        faults: Faults::default(),
        namespaces,
        metrics: Metrics::default(),
        snapshot,
    }
}

/// A name of a ConfigMap that belongs to `shard`.
pub(crate) fn name_of(shard: &str, scope: &Scope) -> String {
    let belongs = |name: &String| {
        let key = scope.main.resource.key(Some("default"), name);
        scope.snapshot.hash_ring.owner(&key).unwrap().as_str() == shard
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
pub(crate) fn owned(mut object: Value, owner: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": format!("uid-{owner}"), "controller": true}]);
    object
}
