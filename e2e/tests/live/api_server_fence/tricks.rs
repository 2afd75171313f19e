//! Labels: acknowledged, given away, put back, stripped, and flipped under a writer.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams, WatchEvent, WatchParams},
};
use ringside_e2e::{eventually::eventually, system::Settings, website::Website};
use ringside_ring::{labels::ACKNOWLEDGER, patch::acknowledge};
use serde_json::{Value, json};

use crate::api_server_fence::fixture::{DEADLINE, Fixture, Writer, refused, websites};
use crate::planes::Keeps;

/// Flips in the contention test: enough that writes meet them in every phase. Each flip and each write takes some
/// milliseconds.
const FLIPS: usize = 150;

async fn set_labels(by: &Writer, name: &str, labels: Value) -> kube::Result<Website> {
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    websites(&by.client).patch(name, &PatchParams::default(), &patch).await
}

pub(crate) async fn a_shard_acknowledges_and_changes_no_label_otherwise() {
    let (fixture, a, b) = Fixture::fenced("fence-acknowledges").await;
    let website = fixture.website_of("a", "mine").await;
    let name = website.name_any();
    let (shard, drain) = (&fixture.keys.shard, &fixture.keys.drain);
    for (what, labels) in
        [("giving away without drain", json!({shard: "b"})), ("a drain of its own", json!({drain: "x"}))]
    {
        refused(what, set_labels(&a, &name, labels).await);
    }
    refused("taking", set_labels(&b, &name, json!({shard: "b"})).await);

    fixture.label(&name, Some("a"), Some("move-1")).await;
    for (what, labels) in [
        ("withdrawing the drain", json!({drain: null})),
        ("another drain", json!({drain: "move-2"})),
        ("giving to one of its choice", json!({shard: "b", drain: null})),
    ] {
        refused(what, set_labels(&a, &name, labels).await);
    }
    // What it still does about the object while it is drained is its own to do.
    let work = Patch::Merge(json!({"spec": {"content": "the last"}}));
    websites(&a.client).patch(&name, &PatchParams::default(), &work).await.unwrap();
    let uid = website.uid().unwrap();
    let by_b = Patch::<Website>::Json(acknowledge(&fixture.keys, &uid, &"a".parse().unwrap(), "move-1"));
    refused("an acknowledgement of another's", websites(&b.client).patch(&name, &PatchParams::default(), &by_b).await);
    let acknowledged = websites(&a.client).patch(&name, &PatchParams::default(), &by_b).await.unwrap();
    assert_eq!((fixture.shard_of(&acknowledged.metadata), acknowledged.labels().get(drain)), (None, None));
    eventually("it is given to the shard that it belongs to", DEADLINE, || async {
        let now = websites(&fixture.admin).get(&name).await.map_err(|error| error.to_string())?;
        fixture.shard_of(&now.metadata).filter(|shard| shard == "a").ok_or_else(|| format!("{:?}", now.metadata.labels))
    })
    .await
    .unwrap();

    fixture.label(&name, Some("b"), None).await;
    for (what, labels) in
        [("putting its own label back", json!({shard: "a"})), ("stripping the label", json!({shard: null}))]
    {
        refused(what, set_labels(&a, &name, labels).await);
    }
}

/// No children move before these, so the next owner could be named in the acknowledgement itself; the fence has none named.
pub(crate) async fn nor_does_a_shard_of_objects_without_children() {
    let resources = json!([{"group": "web.example.com", "resource": "websites"}]);
    let settings = Settings::without_label_policies();
    let mut fixture = Fixture::start(settings, json!({"fence": "APIServer", "resources": resources})).await;
    let (a, _b) = (fixture.shard("a").await, fixture.shard("b").await);
    fixture.until_fenced("True").await;
    let website = fixture.website_of("a", "mine").await;
    let name = website.name_any();
    let (shard, drain) = (&fixture.keys.shard, &fixture.keys.drain);

    fixture.label(&name, Some("a"), Some("move-1")).await;
    let chosen = json!({shard: "b", drain: null});
    refused("giving to one of its choice", set_labels(&a, &name, chosen).await);
    let patch =
        Patch::<Website>::Json(acknowledge(&fixture.keys, &website.uid().unwrap(), &"a".parse().unwrap(), "move-1"));
    let acknowledged = websites(&a.client).patch(&name, &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((fixture.shard_of(&acknowledged.metadata), acknowledged.labels().get(drain)), (None, None));
    eventually("the sharder gives it to the shard that it belongs to", DEADLINE, || async {
        let now = websites(&fixture.admin).get(&name).await.map_err(|error| error.to_string())?;
        fixture.shard_of(&now.metadata).filter(|shard| shard == "a").ok_or_else(|| format!("{:?}", now.metadata.labels))
    })
    .await
    .unwrap();

    // With nobody there who would assign it first.
    fixture.system.kill_sharders().await.unwrap();
    fixture.label(&name, None, None).await;
    refused("taking what is nobody's", set_labels(&a, &name, json!({shard: "a"})).await);
}

/// With nobody there who would put the label back: neither the policy nor the webhook.
pub(crate) async fn nor_does_it_strip_what_it_was_not_asked_to_let_go_of() {
    let fixture = Fixture::on(Keeps::Nothing, "fence-strip", json!({"fence": "APIServer"})).await;
    let (a, _b) = (fixture.shard("a").await, fixture.shard("b").await);
    fixture.until_fenced("True").await;
    let name = fixture.website_of("a", "mine").await.name_any();
    for (what, labels) in [("stripping its own label", json!({&fixture.keys.shard: null})), ("all labels", Value::Null)]
    {
        refused(what, set_labels(&a, &name, labels).await);
    }
    // Nor what it was, where its proxy says who it is.
    let (shard, drain) = (&fixture.keys.shard, &fixture.keys.drain);
    fixture.label(&name, Some("a"), Some("move-1.60000ms")).await;
    refused("a write without the labels", set_labels(&a, &name, json!({shard: null, drain: null})).await);
    let both = Patch::Merge(json!({"metadata": {"labels": {shard: null, drain: null}}}));
    let acknowledges = PatchParams { field_manager: Some(ACKNOWLEDGER.to_owned()), ..PatchParams::default() };
    let acknowledged = websites(&a.client).patch(&name, &acknowledges, &both).await.unwrap();
    assert_eq!((fixture.shard_of(&acknowledged.metadata), acknowledged.labels().get(drain)), (None, None));
}

pub(crate) async fn what_a_shard_creates_has_no_label_its_own_or_the_webhooks() {
    let (fixture, a, b) = Fixture::fenced("fence-creates").await;
    let (shard, drain) = (&fixture.keys.shard, &fixture.keys.drain);
    let owner = fixture.website_of("a", "owner").await;
    let create = async |by: &Writer, body: Value| {
        let api = crate::api_server_fence::fixture::config_maps(&by.client);
        api.create(&Default::default(), &serde_json::from_value(body).unwrap()).await
    };
    let named = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    create(&b, named("free", json!({}))).await.unwrap();
    create(&b, named("own", json!({shard: "b"}))).await.unwrap();
    refused("create for another", create(&b, named("for-a", json!({shard: "a"}))).await);
    refused("create with a drain", create(&b, named("drained", json!({shard: "b", drain: "x"}))).await);
    let child = |name: &str| serde_json::to_value(crate::api_server_fence::fixture::child(&owner, name)).unwrap();
    create(&a, child("by-the-owner")).await.unwrap();
    refused("create of another's child", create(&b, child("late")).await);
    // Where a main object goes is the webhook's to say, whoever creates it.
    for index in 0..10 {
        let made = fixture.create(&b.client, &format!("made-by-b-{index}")).await.unwrap();
        assert!(fixture.shard_of(&made.metadata).is_some());
    }
}

/// An operator may copy its owner's labels to what it creates below it. Whose the owner is by now is the webhook's to say.
pub(crate) async fn nor_what_it_creates_below_an_owner_its_own() {
    let fixture = Fixture::on(Keeps::Both, "fence-children", json!({"fence": "APIServer"})).await;
    let (a, b) = (fixture.shard("a").await, fixture.shard("b").await);
    fixture.until_fenced("True").await;
    let (owner, label) = (fixture.website_of("a", "owner").await, &fixture.keys.shard);
    let create = async |by: &Writer, own: &str, name: &str| {
        let mut child = crate::api_server_fence::fixture::child(&owner, name);
        child.labels_mut().insert(label.clone(), own.to_owned());
        crate::api_server_fence::fixture::config_maps(&by.client).create(&Default::default(), &child).await
    };
    // API servers look for new policies once a second, each for itself.
    let tries = AtomicUsize::new(0);
    eventually("nobody but its owner's shard creates a child", DEADLINE, || async {
        let name = format!("late-{}", tries.fetch_add(1, Ordering::Relaxed));
        let Err(error) = create(&b, "b", &name).await else { return Err(format!("{name} landed")) };
        refused::<()>("create of another's child as its own", Err(error));
        Ok(())
    })
    .await
    .unwrap();
    let made = create(&a, "a", "by-the-owner").await.unwrap();
    assert_eq!(fixture.shard_of(&made.metadata).as_deref(), Some("a"));
}

/// One label flips between two shards while one of them writes all the time: the API server repeats a patch on each
/// conflict, and judges it again on what it then finds.
pub(crate) async fn no_write_of_a_former_owner_lands_however_often_the_label_flips() {
    let (fixture, _a, b) = Fixture::fenced("fence-flips").await;
    let name = fixture.website_of("a", "contended").await.name_any();
    let from = websites(&fixture.admin).get(&name).await.unwrap();
    let fields = WatchParams::default().fields(&format!("metadata.name={name}"));
    let api = websites(&fixture.admin);
    let mut events = std::pin::pin!(api.watch(&fields, &from.resource_version().unwrap()).await.unwrap());

    let (over, denied) = (AtomicBool::new(false), AtomicUsize::new(0));
    let flip = async {
        for index in 0..FLIPS {
            fixture.label(&name, Some(if index % 2 == 0 { "b" } else { "a" }), None).await;
        }
        fixture.label(&name, Some("end"), None).await;
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(write(&b, &name, &over, &denied), write(&b, &name, &over, &denied), flip);

    let (mut content, mut landed, mut foreign, mut flips) = (from.spec.content.clone(), 0, 0, 0);
    let mut owner = fixture.shard_of(&from.metadata);
    let patience = tokio::time::timeout(Duration::from_secs(60), async {
        while let Some(event) = events.next().await {
            let WatchEvent::Modified(website) = event.unwrap() else { continue };
            if website.spec.content != content {
                content.clone_from(&website.spec.content);
                landed += 1;
                foreign += usize::from(fixture.shard_of(&website.metadata).as_deref() != Some("b"));
            }
            let now = fixture.shard_of(&website.metadata);
            flips += usize::from(now != owner);
            owner = now;
            if owner.as_deref() == Some("end") {
                return;
            }
        }
    });
    patience.await.unwrap();
    let denied = denied.into_inner();
    figures(flips, landed, denied);
    assert_eq!(foreign, 0, "of {landed} writes that landed");
    assert!(flips >= FLIPS && landed > 0 && denied > 0, "{flips} flips, {landed} landed, {denied} refused");
}

/// One of two streams of writes, for conflicts between those of one shard as well.
async fn write(by: &Writer, name: &str, over: &AtomicBool, denied: &AtomicUsize) {
    while !over.load(Ordering::Relaxed) {
        let patch = Patch::Merge(json!({"spec": {"content": format!("b wrote this, {:?}", Instant::now())}}));
        if let outcome @ Err(_) = websites(&by.client).patch(name, &PatchParams::default(), &patch).await {
            refused("a contended write", outcome);
            denied.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// For who runs the test with `--nocapture`.
#[allow(clippy::print_stderr, reason = "figures of a test")]
fn figures(flips: usize, landed: usize, denied: usize) {
    eprintln!("{flips} flips of the label, {landed} writes of the owner landed, {denied} were refused");
}
