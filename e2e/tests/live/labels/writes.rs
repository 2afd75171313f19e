//! The ways in which a client can write labels that are not its own.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use ringside_e2e::website::{Website, WebsiteSpec};
use serde_json::{Value, json};

use crate::{
    labels::{
        copies,
        fixture::{Fixture, Labelled},
        hidden,
    },
    planes::Keeps,
};

/// All of them, where these keep the labels. Each is tried with an object of its own.
pub(crate) async fn all(keeps: Keeps) {
    let fixture = Fixture::on(keeps, "labels-kept").await;
    strips(&fixture).await;
    copies_of_owners(&fixture).await;
    hidden::a_put_keeps_them(&fixture).await;
    if keeps != Keeps::Nothing {
        strips_of_children(&fixture).await;
    }
    if fixture.has_policy() {
        changes_of_owner(&fixture).await;
    }
    if keeps != Keeps::Webhook {
        to_nobody(&fixture).await;
        copies::of_children(&fixture).await;
    }
    // Where nothing keeps the labels a shard loses what is stripped, and gets it back.
    if keeps != Keeps::Nothing {
        fixture.assert_nobody_lost_anything();
    }
}

async fn strips(fixture: &Fixture) {
    let (shard, drain) = (&fixture.labels.shard, &fixture.labels.drain);
    same_owner(fixture, "a full PUT without labels", "site-00001", put_bare(fixture, "site-00001")).await;
    for (what, name, labels) in [
        ("the shard label taken off", "site-00002", json!({shard: null})),
        ("both labels taken off, without drain", "site-00003", json!({shard: null, drain: null})),
        ("all labels taken off", "site-00004", Value::Null),
        ("a drain set by hand", "site-00005", json!({drain: "by-hand"})),
        ("a drain set as the shard label is taken off", "site-00006", json!({shard: null, drain: "by-hand"})),
    ] {
        same_owner(fixture, what, name, patch::<Website>(fixture, name, labels)).await;
    }
}

/// Copies of an owner's labels, on objects that are created.
async fn copies_of_owners(fixture: &Fixture) {
    let (shard, drain) = (&fixture.labels.shard, &fixture.labels.drain);
    let template = fixture.until_owned::<Website>("nothing", "site-00007").await;
    let another = fixture.another(&template);
    let mut ways = vec![
        ("the label of an object", json!({shard: template})),
        ("the label of another shard", json!({shard: another})),
        ("a label that names no shard", json!({shard: "nobody"})),
        ("a drain label alone", json!({drain: "old"})),
    ];
    if fixture.has_policy() {
        // The webhook is not called for it. A shard that never saw the copy would release it within a minute.
        ways.push(("the labels of an object that was drained", json!({shard: template, drain: "old"})));
    }
    for (number, (what, labels)) in ways.into_iter().enumerate() {
        let mut copy = Website::new(&format!("copy-{number}"), WebsiteSpec::default());
        copy.metadata.labels = serde_json::from_value(labels).unwrap();
        let created = fixture.websites().create(&PostParams::default(), &copy).await.unwrap();
        let drained = fixture.labels.ownership(created.metadata.labels.as_ref()).drain.is_some();
        assert!(!drained || fixture.keeps == Keeps::Nothing, "created with {what}: {:?}", created.metadata.labels);
        let owner = fixture.until_owned::<Website>(what, &format!("copy-{number}")).await;
        if fixture.has_policy() {
            assert_eq!(owner, fixture.home(&format!("copy-{number}")), "created with {what}");
        }
    }
}

/// Of children, which the sharder does not watch for that: only webhook and policy keep theirs at once.
async fn strips_of_children(fixture: &Fixture) {
    fixture.until_children_follow().await;
    let (shard, drain) = (&fixture.labels.shard, &fixture.labels.drain);
    for (what, name, labels) in [
        ("the shard label taken off a child", "site-00013", json!({shard: null})),
        ("both labels taken off a child", "site-00014", json!({shard: null, drain: null})),
        ("all labels taken off a child", "site-00015", Value::Null),
    ] {
        same_owner(fixture, what, name, patch::<ConfigMap>(fixture, name, labels)).await;
    }
    // It still says who controls it.
    let write = async {
        let mut child = fixture.objects::<ConfigMap>().get("site-00016").await.unwrap();
        child.metadata.labels = None;
        // Built-in objects can be replaced without.
        child.metadata.resource_version = None;
        fixture.objects().replace("site-00016", &PostParams::default(), &child).await.unwrap()
    };
    same_owner(fixture, "a full PUT of a child without labels", "site-00016", write).await;
}

/// Writes for which the webhook is not called, and which no watch of the sharder shows: only the API server itself sees them
/// in time.
async fn changes_of_owner(fixture: &Fixture) {
    let (shard, drain) = (&fixture.labels.shard, &fixture.labels.drain);
    let another = async |name: &str| fixture.another(&fixture.until_owned::<Website>("nothing", name).await);
    let (name, labels) = ("site-00010", json!({shard: another("site-00010").await}));
    same_owner(fixture, "another live shard", name, patch::<Website>(fixture, name, labels)).await;
    for (what, name, labels) in [
        ("another live shard on a child", "site-00017", json!({shard: another("site-00017").await})),
        ("nonsense on a child", "site-00018", json!({shard: "nobody"})),
        ("the label of a child emptied", "site-00019", json!({shard: ""})),
        ("a drain set on a child", "site-00020", json!({drain: "by-hand"})),
    ] {
        let written = same_owner(fixture, what, name, patch::<ConfigMap>(fixture, name, labels)).await;
        assert!(fixture.owner(&written).is_some(), "{what}");
    }
}

/// Changes of the owner to an unknown shard or none, which the sharder's watch shows as well.
async fn to_nobody(fixture: &Fixture) {
    for (what, name, value) in
        [("the label set to nonsense", "site-00011", "nobody"), ("the label emptied", "site-00012", "")]
    {
        let labels = json!({&fixture.labels.shard: value});
        same_owner(fixture, what, name, patch::<Website>(fixture, name, labels)).await;
    }
}

/// The object belongs to the same shard after the write, and in it: but where nothing keeps labels, or its shard is to
/// release it.
async fn same_owner<K: Labelled>(fixture: &Fixture, what: &str, name: &str, write: impl Future<Output = K>) -> K {
    let before = fixture.until_owned::<K>("nothing", name).await;
    let written = write.await;
    let is_drained = fixture.labels.ownership(written.meta().labels.as_ref()).drain.is_some();
    if fixture.keeps != Keeps::Nothing && !is_drained {
        assert_eq!(fixture.owner(&written).as_ref(), Some(&before), "in that write: {what}");
    }
    assert_eq!(fixture.until_owned::<K>(what, name).await, before, "{what}");
    written
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

async fn patch<K: Labelled>(fixture: &Fixture, name: &str, labels: Value) -> K {
    let objects: Api<K> = fixture.objects();
    let labels = Patch::Merge(json!({"metadata": {"labels": labels}}));
    objects.patch(name, &PatchParams::default(), &labels).await.unwrap()
}
