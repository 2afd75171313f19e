//! Writes of all kinds, by the owner of an object, by another shard, and by those that are no shards.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::api_server_fence::fixture::{Fixture, OTHERS, SHARDS, ask, child, config_maps, refused, touch, websites};

/// Writes to what stands at a path now; each leaves it to the next, and the last one deletes it.
fn writes(path: &str, current: &Value) -> Vec<(&'static str, String, Value)> {
    let touched = |by: &str| json!({"metadata": {"annotations": {"touched": by}}});
    let (mut replaced, mut applied) = (current.clone(), touched("apply"));
    replaced["metadata"]["annotations"] = json!({"touched": "update"});
    for key in ["apiVersion", "kind"] {
        applied[key] = current[key].clone();
    }
    let mut writes = vec![
        ("PATCH", path.to_owned(), touched("patch")),
        ("PUT", path.to_owned(), replaced.clone()),
        ("PATCH", format!("{path}?fieldManager=test&force=true"), applied),
        ("DELETE", path.to_owned(), json!({})),
    ];
    if current["kind"] == "Website" {
        replaced["status"] = json!({"observedGeneration": 7});
        writes.insert(0, ("PUT", format!("{path}/status"), replaced));
        writes.insert(0, ("PATCH", format!("{path}/status"), json!({"status": {"observedGeneration": 8}})));
    }
    writes
}

pub(crate) async fn only_the_owner_writes_to_an_object_and_its_children() {
    let (fixture, a, b) = Fixture::fenced("fence-owner").await;
    let website = fixture.website_of("a").await;
    let made = config_maps(&a).create(&PostParams::default(), &child(&website, "child")).await.unwrap();
    assert_eq!(fixture.shard_of(&made.metadata).as_deref(), Some("a"), "a child goes where its owner is");
    refused("create of a child", config_maps(&b).create(&PostParams::default(), &child(&website, "late")).await);

    let namespace = fixture.namespace();
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut late = serde_json::to_value(child(&website, "late")).unwrap();
    (late["apiVersion"], late["kind"]) = (json!("v1"), json!("ConfigMap"));
    let apply = format!("{maps}/late?fieldManager=test");
    refused("apply of a new child", ask(&b, "PATCH", &apply, &late.to_string()).await);

    let site = format!("/apis/web.example.com/v1/namespaces/{namespace}/websites/{}", website.name_any());
    for path in [format!("{maps}/child"), site] {
        let current =
            async || -> Value { serde_json::from_str(&ask(&fixture.admin, "GET", &path, "").await.unwrap()).unwrap() };
        for number in 0..writes(&path, &current().await).len() {
            let before = current().await;
            let (method, target, body) = &writes(&path, &before)[number];
            refused(&format!("{method} {target}"), ask(&b, method, target, &body.to_string()).await);
            assert_eq!(current().await, before, "{method} {target}");
            let by_owner = ask(&a, method, target, &body.to_string()).await;
            by_owner.unwrap_or_else(|error| panic!("{method} {target} by the owner: {error}"));
        }
    }
}

pub(crate) async fn a_deletion_of_many_is_judged_object_by_object() {
    let (fixture, a, b) = Fixture::fenced("fence-many").await;
    let of_a = fixture.website_of("a").await;
    fixture.website_of("b").await;
    let delete = async |by: &Client, selector: &str| {
        let which = ListParams::default().labels(selector);
        websites(by).delete_collection(&DeleteParams::default(), &which).await.map(drop)
    };
    let owned_by = |shard: &str| format!("{}={shard}", fixture.keys.shard);
    let count = async |shard: &str| {
        let which = ListParams::default().labels(&owned_by(shard));
        websites(&fixture.admin).list(&which).await.unwrap().items.len()
    };
    let before = count("a").await;
    refused("deletion of all", delete(&b, "").await);
    refused("deletion of all of another's", delete(&b, &owned_by("a")).await);
    assert_eq!(count("a").await, before);
    delete(&b, &owned_by("b")).await.unwrap();
    assert_eq!(count("b").await, 0);
    delete(&a, &owned_by("a")).await.unwrap();
    assert!(websites(&fixture.admin).get_opt(&of_a.name_any()).await.unwrap().is_none());
}

/// A client with a token of a shard's account without a Pod, and one with another account.
pub(crate) async fn only_accounts_of_shards_are_concerned_and_those_without_pod_write_to_nothing_owned() {
    let (fixture, _a, _b) = Fixture::fenced("fence-accounts").await;
    let website = fixture.website_of("a").await;
    let (name, parameters) = (website.name_any(), PatchParams::default());
    let account = format!("system:serviceaccount:{}:{SHARDS}", fixture.namespace());
    for (by, free) in [(fixture.unbound().await, "nobodys"), (fixture.named(&account).await, "nobodys-either")] {
        refused("a write", websites(&by).patch(&name, &parameters, &touch()).await);
        let object: ConfigMap = serde_json::from_value(json!({"metadata": {"name": free}})).unwrap();
        config_maps(&by).create(&PostParams::default(), &object).await.unwrap();
        config_maps(&by).patch(free, &parameters, &touch()).await.unwrap();
    }

    // A Pod with a token of the same kind and the same rights, and a user.
    let another = fixture.pod(OTHERS, "another-0").await;
    for (by, child_name) in [(&another, "of-another"), (&fixture.admin, "of-a-user")] {
        websites(by).patch(&name, &parameters, &touch()).await.unwrap();
        config_maps(by).create(&PostParams::default(), &child(&website, child_name)).await.unwrap();
    }
    // What Kubernetes itself deletes: what has lost its owner, and what was in a namespace that ends.
    let of_system = async |account: &str| -> Api<ConfigMap> {
        let by = fixture.named(&format!("system:serviceaccount:kube-system:{account}")).await;
        Api::namespaced(by, fixture.namespace())
    };
    let collector = of_system("generic-garbage-collector").await;
    collector.delete("of-another", &DeleteParams::default()).await.unwrap();
    let ended = of_system("namespace-controller").await;
    ended.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    assert!(config_maps(&fixture.admin).get_opt("of-a-user").await.unwrap().is_none());
    websites(&another).delete(&name, &DeleteParams::default()).await.unwrap();
}
