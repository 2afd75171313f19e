//! The ways in which somebody can write labels that are not theirs.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use ringside_e2e::website::{Website, WebsiteSpec};
use serde_json::{Value, json};

use crate::labels::fixture::{Fixture, Labelled};

/// Writes that don't name another owner, each on an object of its own.
pub(crate) async fn strips_and_copies(fixture: &Fixture) {
    let (shard, drain) = (&fixture.labels.shard, &fixture.labels.drain);
    same_owner(fixture, "a full PUT without labels", "site-00001", put_bare(fixture, "site-00001")).await;
    for (what, name, labels) in [
        ("the shard label taken off", "site-00002", json!({shard: null})),
        ("both labels taken off, without drain", "site-00003", json!({shard: null, drain: null})),
        ("all labels taken off", "site-00004", Value::Null),
    ] {
        same_owner(fixture, what, name, patch(fixture, name, labels)).await;
    }
    let by_hand = json!({drain: "by-hand"});
    same_owner(fixture, "a drain set by hand", "site-00005", patch(fixture, "site-00005", by_hand)).await;
    let both = json!({shard: null, drain: "by-hand"});
    same_owner(
        fixture,
        "a drain set as the shard label is taken off",
        "site-00006",
        patch(fixture, "site-00006", both),
    )
    .await;

    let template = owner(fixture, "site-00007").await;
    let another = fixture.another(&template);
    for (what, name, labels) in [
        ("a copy of an object with its label", "copy-1", json!({shard: template})),
        ("a copy with the label of another shard", "copy-2", json!({shard: another})),
        ("a copy with a label that names nobody", "copy-3", json!({shard: "nobody"})),
        ("a copy with a drain label alone", "copy-4", json!({drain: "old"})),
    ] {
        fixture.measure(what, create(fixture, name, labels)).await;
    }
}

/// The same to children, which nobody watches for that: only webhook and policy keep theirs at once.
pub(crate) async fn strips_of_children(fixture: &Fixture) {
    fixture.until_children_follow().await;
    let (shard, drain) = (&fixture.labels.shard, &fixture.labels.drain);
    for (what, name, labels) in [
        ("the shard label taken off a child", "site-00013", json!({shard: null})),
        ("both labels taken off a child", "site-00014", json!({shard: null, drain: null})),
        ("all labels taken off a child", "site-00015", Value::Null),
    ] {
        child_stays(fixture, what, name, labels).await;
    }
    let before = owner(fixture, "site-00016").await;
    let write = put_child_bare(fixture, "site-00016");
    assert_eq!(fixture.measure("a full PUT of a child without labels", write).await, before);
}

/// Writes for which the webhook is not called, and which no watch of the sharder shows: only the API server itself sees them
/// in time. A shard that never saw the copy lets go of it when the next bookmark comes, within a minute.
pub(crate) async fn changes_of_owner(fixture: &Fixture) {
    let drained = json!({&fixture.labels.shard: owner(fixture, "site-00007").await, &fixture.labels.drain: "old"});
    fixture.measure("a copy of an object that was drained", create(fixture, "copy-5", drained)).await;
    let home = fixture.home("copy-6");
    let elsewhere = json!({&fixture.labels.shard: fixture.another(&home)});
    let what = "a copy with the label of a live shard that it does not belong to";
    assert_eq!(fixture.measure(what, create(fixture, "copy-6", elsewhere)).await, home, "{what}");
    let another = fixture.another(&owner(fixture, "site-00010").await);
    let write = patch(fixture, "site-00010", json!({&fixture.labels.shard: another}));
    same_owner(fixture, "the label set to another live shard", "site-00010", write).await;
    let another = fixture.another(&owner(fixture, "site-00017").await);
    for (what, name, value) in [
        ("the label of a child set to another live shard", "site-00017", another.as_str()),
        ("the label of a child set to nonsense", "site-00018", "nobody"),
        ("the label of a child emptied", "site-00019", ""),
    ] {
        child_stays(fixture, what, name, json!({&fixture.labels.shard: value})).await;
    }
    child_stays(fixture, "a drain set on a child", "site-00020", json!({&fixture.labels.drain: "by-hand"})).await;
    to_nobody(fixture).await;
}

/// Changes of the owner to nobody, which the sharder's watch shows as well.
pub(crate) async fn to_nobody(fixture: &Fixture) {
    for (what, name, value) in
        [("the label set to nonsense", "site-00011", "nobody"), ("the label emptied", "site-00012", "")]
    {
        same_owner(fixture, what, name, patch(fixture, name, json!({&fixture.labels.shard: value}))).await;
    }
}

/// The object belongs to the same shard after the write.
async fn same_owner(fixture: &Fixture, what: &str, name: &str, write: impl Future<Output = Website>) {
    let before = owner(fixture, name).await;
    assert_eq!(fixture.measure(what, write).await, before, "{what}");
}

/// The child belongs to the shard of its owner after the write.
async fn child_stays(fixture: &Fixture, what: &str, name: &str, labels: Value) {
    let owner = owner(fixture, name).await;
    let write = patch_labels(fixture.objects::<ConfigMap>(), name, labels);
    assert_eq!(fixture.measure(what, write).await, owner, "{what}");
}

async fn owner(fixture: &Fixture, name: &str) -> String {
    fixture.owner(&fixture.websites().get(name).await.unwrap()).unwrap()
}

/// As from a template that knows nothing but name and spec.
async fn put_bare(fixture: &Fixture, name: &str) -> Website {
    let api = fixture.websites();
    loop {
        let there = api.get(name).await.unwrap();
        let mut bare = Website::new(name, WebsiteSpec { content: "from a template".to_owned(), ..there.spec });
        // A custom resource can't be replaced without.
        bare.metadata.resource_version = there.metadata.resource_version;
        match api.replace(name, &PostParams::default(), &bare).await {
            Ok(written) => return written,
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The same of a child, which still says who controls it.
async fn put_child_bare(fixture: &Fixture, name: &str) -> ConfigMap {
    let mut child = fixture.objects::<ConfigMap>().get(name).await.unwrap();
    child.metadata.labels = None;
    // Built-in objects can be replaced without.
    child.metadata.resource_version = None;
    fixture.objects().replace(name, &PostParams::default(), &child).await.unwrap()
}

async fn patch(fixture: &Fixture, name: &str, labels: Value) -> Website {
    patch_labels(fixture.websites(), name, labels).await
}

async fn patch_labels<K: Labelled>(objects: Api<K>, name: &str, labels: Value) -> K {
    let labels = Patch::Merge(json!({"metadata": {"labels": labels}}));
    objects.patch(name, &PatchParams::default(), &labels).await.unwrap()
}

async fn create(fixture: &Fixture, name: &str, labels: Value) -> Website {
    let mut copy = Website::new(name, WebsiteSpec::default());
    copy.metadata.labels = serde_json::from_value(labels).unwrap();
    let created = fixture.websites().create(&PostParams::default(), &copy).await.unwrap();
    assert_eq!(created.name_any(), name);
    created
}
