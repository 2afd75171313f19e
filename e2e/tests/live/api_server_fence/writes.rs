//! Writes of all kinds, by the owner of an object and by another shard.

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use ringside_e2e::website::{Website, WebsiteStatus};
use serde_json::json;

use crate::api_server_fence::fixture::{Fixture, Writer, child, config_maps, refused, websites};

type Write = fn(Client, String) -> BoxFuture<'static, kube::Result<()>>;

/// A write that conflicts with nothing is refused for what it is.
const RETRIED: &str = "written-by-the-test";

fn replace_parameters() -> PostParams {
    PostParams::default()
}

async fn replaced<K>(api: Api<K>, name: String) -> kube::Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let mut object = api.get(&name).await?;
    object.annotations_mut().insert(RETRIED.to_owned(), "update".to_owned());
    api.replace(&name, &replace_parameters(), &object).await.map(drop)
}

async fn patched<K>(
    api: Api<K>,
    name: String,
    parameters: PatchParams,
    patch: Patch<serde_json::Value>,
) -> kube::Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch(&name, &parameters, &patch).await.map(drop)
}

fn annotation(by: &str) -> serde_json::Value {
    json!({"metadata": {"annotations": {RETRIED: by}}})
}

fn json_patch(finalizers: &serde_json::Value) -> Patch<serde_json::Value> {
    let patch = json!([{"op": "add", "path": "/metadata/finalizers", "value": finalizers}]);
    Patch::Json(serde_json::from_value(patch).unwrap())
}

/// Each leaves the object to the next; the last one deletes it.
const TO_A_WEBSITE: [(&str, Write); 9] = [
    ("update", |client, name| Box::pin(replaced(websites(&client), name))),
    ("merge patch", |client, name| {
        Box::pin(patched(websites(&client), name, PatchParams::default(), Patch::Merge(annotation("merge"))))
    }),
    ("JSON patch that sets a finalizer", |client, name| {
        Box::pin(patched(websites(&client), name, PatchParams::default(), json_patch(&json!(["example.com/test"]))))
    }),
    ("JSON patch that takes the finalizer off", |client, name| {
        Box::pin(patched(websites(&client), name, PatchParams::default(), json_patch(&json!([]))))
    }),
    ("apply", |client, name| {
        let mut body = annotation("apply");
        body["apiVersion"] = json!("web.example.com/v1");
        body["kind"] = json!("Website");
        Box::pin(patched(websites(&client), name, PatchParams::apply("test").force(), Patch::Apply(body)))
    }),
    ("update of the status", |client, name| {
        Box::pin(async move {
            let api = websites(&client);
            let mut website = api.get(&name).await?;
            website.status = Some(WebsiteStatus { observed_generation: 7, ..WebsiteStatus::default() });
            api.replace_status(&name, &replace_parameters(), &website).await.map(drop)
        })
    }),
    ("patch of the status", |client, name| {
        Box::pin(async move {
            let patch = Patch::Merge(json!({"status": {"observedGeneration": 8}}));
            websites(&client).patch_status(&name, &PatchParams::default(), &patch).await.map(drop)
        })
    }),
    ("apply of the status", |client, name| {
        Box::pin(async move {
            let body =
                json!({"apiVersion": "web.example.com/v1", "kind": "Website", "status": {"observedGeneration": 9}});
            let parameters = PatchParams::apply("test").force();
            websites(&client).patch_status(&name, &parameters, &Patch::Apply(body)).await.map(drop)
        })
    }),
    ("delete", |client, name| {
        Box::pin(async move { websites(&client).delete(&name, &DeleteParams::default()).await.map(drop) })
    }),
];

const TO_A_CHILD: [(&str, Write); 7] = [
    ("update", |client, name| Box::pin(replaced(config_maps(&client), name))),
    ("merge patch", |client, name| {
        Box::pin(patched(config_maps(&client), name, PatchParams::default(), Patch::Merge(annotation("merge"))))
    }),
    ("JSON patch that sets a finalizer", |client, name| {
        Box::pin(patched(config_maps(&client), name, PatchParams::default(), json_patch(&json!(["example.com/test"]))))
    }),
    ("JSON patch that takes the finalizer off", |client, name| {
        Box::pin(patched(config_maps(&client), name, PatchParams::default(), json_patch(&json!([]))))
    }),
    ("strategic merge patch", |client, name| {
        Box::pin(patched(config_maps(&client), name, PatchParams::default(), Patch::Strategic(annotation("strategic"))))
    }),
    ("apply", |client, name| {
        let mut body = annotation("apply");
        body["apiVersion"] = json!("v1");
        body["kind"] = json!("ConfigMap");
        Box::pin(patched(config_maps(&client), name, PatchParams::apply("test").force(), Patch::Apply(body)))
    }),
    ("delete", |client, name| {
        Box::pin(async move { config_maps(&client).delete(&name, &DeleteParams::default()).await.map(drop) })
    }),
];

pub(crate) async fn only_the_owner_writes_to_an_object_and_its_children() {
    let (fixture, a, b) = Fixture::fenced("fence-owner").await;
    let website = fixture.website_of("a", "mine").await;
    let name = website.name_any();
    let made = config_maps(&a.client).create(&PostParams::default(), &child(&website, "child")).await.unwrap();
    assert_eq!(fixture.shard_of(&made.metadata).as_deref(), Some("a"), "a child goes where its owner is");
    refused("create of a child", config_maps(&b.client).create(&PostParams::default(), &child(&website, "late")).await);
    let mut late = serde_json::to_value(child(&website, "late")).unwrap();
    late["apiVersion"] = json!("v1");
    late["kind"] = json!("ConfigMap");
    let parameters = PatchParams::apply("test").force();
    refused(
        "apply of a new child",
        patched(config_maps(&b.client), "late".to_owned(), parameters, Patch::Apply(late)).await,
    );

    for (what, write) in TO_A_CHILD {
        let before = config_maps(&fixture.admin).get("child").await.unwrap();
        refused(what, write(b.client.clone(), "child".to_owned()).await);
        assert_eq!(config_maps(&fixture.admin).get("child").await.unwrap(), before, "{what}");
        write(a.client.clone(), "child".to_owned())
            .await
            .unwrap_or_else(|error| panic!("{what} by the owner: {error}"));
    }
    for (what, write) in TO_A_WEBSITE {
        let before = websites(&fixture.admin).get(&name).await.unwrap();
        refused(what, write(b.client.clone(), name.clone()).await);
        let after = websites(&fixture.admin).get(&name).await.unwrap();
        assert_eq!(after.metadata, before.metadata, "{what}");
        write(a.client.clone(), name.clone()).await.unwrap_or_else(|error| panic!("{what} by the owner: {error}"));
    }
}

pub(crate) async fn a_deletion_of_many_is_judged_object_by_object() {
    let (fixture, a, b) = Fixture::fenced("fence-many").await;
    let of_a: Website = fixture.website_of("a", "many").await;
    fixture.website_of("b", "of-b").await;
    let delete = async |by: &Writer, selector: &str| {
        let which = ListParams::default().labels(selector);
        websites(&by.client).delete_collection(&DeleteParams::default(), &which).await.map(drop)
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

pub(crate) async fn a_token_that_names_no_pod_writes_to_nothing_that_has_an_owner() {
    let (fixture, _a, _b) = Fixture::fenced("fence-no-pod").await;
    let website = fixture.website_of("a", "mine").await;
    for (unbound, name) in [(fixture.unbound().await, "nobodys"), (fixture.account().await, "nobodys-either")] {
        refused("update", replaced(websites(&unbound), website.name_any()).await);
        let free: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        config_maps(&unbound).create(&PostParams::default(), &free).await.unwrap();
        replaced(config_maps(&unbound), name.to_owned()).await.unwrap();
    }
}
