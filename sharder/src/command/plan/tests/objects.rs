//! The ring and the objects that plans are about.

use std::sync::Arc;

use ringside_ring::lease::ShardState;
use serde_json::{Value, json};

use crate::{
    fixtures::FakeApi,
    reconcile::tests::{self, path},
    snapshot::{
        Main, Snapshot,
        tests::{key_of, ring, snapshot, snapshot_of},
    },
};

pub(super) use crate::reconcile::tests::{CONFIG_MAPS, SECRETS, owned};

/// A ring, and its main resource.
pub(super) struct Scope {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) main: Main,
}

/// ConfigMaps with Secrets, in namespace `default`, which is the ring's; shards `a`, `b`, and `gone`, which is dead.
pub(super) fn scope(api: &FakeApi) -> Scope {
    of(api, snapshot())
}

fn of(api: &FakeApi, snapshot: Snapshot) -> Scope {
    api.put("/api/v1/namespaces/default", json!({"metadata": {"name": "default", "labels": {"role": "project"}}}));
    Scope { main: snapshot.mains[0].clone(), snapshot: Arc::new(snapshot) }
}

/// The same with Deployments that control ConfigMaps, which control Secrets.
pub(super) fn chain(api: &FakeApi) -> Scope {
    let of_group = |group: &str, resource: &str| json!({"group": group, "resource": resource});
    let spec = json!({
        "resources": [{"group": "apps", "resource": "deployments",
            "controlledResources": [of_group("", "secrets"), of_group("", "configmaps")]}],
        "namespaceSelector": {"matchLabels": {"role": "project"}},
    });
    let shards = [("a", ShardState::Ready), ("b", ShardState::Ready), ("gone", ShardState::Dead)];
    of(api, snapshot_of(&ring(&spec), &shards))
}

/// A name of a ConfigMap that belongs to `shard`.
pub(super) fn name_of(shard: &str, scope: &Scope) -> String {
    let belongs = |name: &String| {
        let key = key_of(&scope.main, name);
        scope.snapshot.hash_ring().owner(&key).is_some_and(|owner| owner.as_str() == shard)
    };
    (0..).map(|i| format!("o-{i}")).find(belongs).unwrap()
}

pub(super) fn object(scope: &Scope, name: &str, shard: Option<&str>) -> Value {
    tests::object(&scope.snapshot.labels, name, shard)
}

/// A Deployment `top`, its ConfigMap `middle`, and the Secret `leaf` of that, all of them a shard's.
pub(super) fn put_chain(api: &FakeApi, scope: &Scope, shard: &str) {
    api.put("/apis/apps/v1/namespaces/default/deployments/top", object(scope, "top", Some(shard)));
    let mut middle = owned(object(scope, "middle", Some(shard)), "top");
    middle["metadata"]["ownerReferences"][0]["apiVersion"] = json!("apps/v1");
    middle["metadata"]["ownerReferences"][0]["kind"] = json!("Deployment");
    api.put(&path(CONFIG_MAPS, "middle"), middle);
    api.put(&path(SECRETS, "leaf"), owned(object(scope, "leaf", Some(shard)), "middle"));
}
