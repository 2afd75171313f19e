//! Labels: acknowledged, given away, put back, stripped, and flipped under a writer.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Instant,
};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use ringside_e2e::website::Website;
use ringside_ring::{labels::ACKNOWLEDGER, patch::acknowledge};
use serde_json::{Value, json};

use crate::api_server_fence::fixture::{DEADLINE, Fixture, child, config_maps, refused, touch, websites};
use crate::labels::fixture::until_policy_acts;
use crate::planes::Keeps;

/// Flips in the contention test: enough that writes meet them in every phase.
const FLIPS: usize = 150;
/// So many where no write has landed by then, or none was refused.
const MAX_FLIPS: usize = 20 * FLIPS;

pub(super) async fn set_labels(by: &Client, name: &str, labels: Value) -> kube::Result<Website> {
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    websites(by).patch(name, &PatchParams::default(), &patch).await
}

/// No children move before these objects, so the next owner could be named in the acknowledgement itself: none is.
pub(crate) async fn a_shard_acknowledges_and_changes_no_label_otherwise() {
    let spec = json!({"fence": "APIServer", "resources": [{"group": "web.example.com", "resource": "websites"}]});
    let (fixture, a, b) = Fixture::on(Keeps::Webhook, "fence-acknowledges", spec).await.with_shards().await;
    let website = fixture.website_of("a").await;
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
    websites(&a).patch(&name, &PatchParams::default(), &touch()).await.unwrap();
    let uid = website.uid().unwrap();
    let by_b = Patch::<Website>::Json(acknowledge(&fixture.keys, &uid, &"a".parse().unwrap(), "move-1"));
    refused("an acknowledgement of another's", websites(&b).patch(&name, &PatchParams::default(), &by_b).await);
    let acknowledged = websites(&a).patch(&name, &PatchParams::default(), &by_b).await.unwrap();
    assert_eq!((fixture.shard_of(&acknowledged.metadata), acknowledged.labels().get(drain)), (None, None));
    assert_eq!(fixture.shard_of(&fixture.until_owned(&name).await.metadata).as_deref(), Some("a"), "it belongs there");

    fixture.label(&name, Some("b"), None).await;
    for (what, labels) in
        [("putting its own label back", json!({shard: "a"})), ("stripping the label", json!({shard: null}))]
    {
        refused(what, set_labels(&a, &name, labels).await);
    }
}

/// With nothing there that would put the label back: neither the policy nor the webhook.
pub(crate) async fn nor_does_it_strip_what_it_was_not_asked_to_let_go_of() {
    let fixture = Fixture::on(Keeps::Nothing, "fence-strip", json!({"fence": "APIServer"})).await;
    let (fixture, a, _b) = fixture.with_shards().await;
    let name = fixture.website_of("a").await.name_any();
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
    let acknowledged = websites(&a).patch(&name, &acknowledges, &both).await.unwrap();
    assert_eq!((fixture.shard_of(&acknowledged.metadata), acknowledged.labels().get(drain)), (None, None));
}

/// It has no owner before: the client that creates a main object takes nothing from a shard, and may name its shard.
pub(crate) async fn what_a_shard_creates_has_no_label_its_own_or_the_webhooks() {
    let (fixture, a, b) = Fixture::fenced("fence-creates").await;
    let (shard, drain) = (&fixture.keys.shard, &fixture.keys.drain);
    let owner = fixture.website_of("a").await;
    let create = async |by: &Client, labels: Value, mut object: ConfigMap| {
        object.metadata.labels = serde_json::from_value(labels).unwrap();
        config_maps(by).create(&PostParams::default(), &object).await
    };
    let free = |name: &str| {
        let mut free = child(&owner, name);
        free.metadata.owner_references = None;
        free
    };
    create(&b, json!({}), free("free")).await.unwrap();
    create(&b, json!({shard: "b"}), free("own")).await.unwrap();
    refused("create for another", create(&b, json!({shard: "a"}), free("for-a")).await);
    refused("create with a drain", create(&b, json!({shard: "b", drain: "x"}), free("drained")).await);
    create(&a, json!({}), child(&owner, "by-the-owner")).await.unwrap();
    refused("create of another's child", create(&b, json!({}), child(&owner, "late")).await);

    // The webhook says where a main object goes, whichever client creates it, but for one that names a shard itself.
    let made = fixture.create(&b, "made-by-b").await.unwrap();
    assert!(fixture.shard_of(&made.metadata).is_some());
    let mut site = Website::new("named", Default::default());
    site.labels_mut().insert(shard.clone(), "a".to_owned());
    websites(&b).create(&PostParams::default(), &site).await.unwrap();
    refused("a later write", websites(&b).patch("named", &PatchParams::default(), &touch()).await);
    websites(&a).patch("named", &PatchParams::default(), &touch()).await.unwrap();
}

/// An operator may copy its owner's labels to what it creates below it. Whose the owner is by now is the webhook's to say.
pub(crate) async fn nor_what_it_creates_below_an_owner_its_own() {
    let fixture = Fixture::on(Keeps::Both, "fence-children", json!({"fence": "APIServer"})).await;
    let (fixture, a, b) = fixture.with_shards().await;
    let owner = fixture.website_of("a").await;
    let create = async |by: &Client, own: &str, name: &str| {
        let mut child = child(&owner, name);
        child.labels_mut().insert(fixture.keys.shard.clone(), own.to_owned());
        config_maps(by).create(&PostParams::default(), &child).await
    };
    until_policy_acts(&websites(&fixture.admin), &fixture.keys, &owner.name_any()).await;
    refused("create of another's child as its own", create(&b, "b", "late").await);
    let made = create(&a, "a", "by-the-owner").await.unwrap();
    assert_eq!(fixture.shard_of(&made.metadata).as_deref(), Some("a"));
}

/// One label flips between two shards while one of them writes all the time: the API server repeats a patch on each
/// conflict, and judges it again on what it then finds.
pub(crate) async fn no_write_of_a_former_owner_lands_however_often_the_label_flips() {
    let (fixture, _a, b) = Fixture::fenced("fence-flips").await;
    let name = fixture.website_of("a").await.name_any();
    let from = websites(&fixture.admin).get(&name).await.unwrap();
    let fields = WatchParams::default().fields(&format!("metadata.name={name}"));
    let api = websites(&fixture.admin);
    let mut events = std::pin::pin!(api.watch(&fields, &from.resource_version().unwrap()).await.unwrap());

    let (over, landed, denied) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let flip = async {
        let met = || landed.load(Ordering::Relaxed) > 0 && denied.load(Ordering::Relaxed) > 0;
        for index in (0..MAX_FLIPS).take_while(|index| *index < FLIPS || !met()) {
            fixture.label(&name, Some(if index % 2 == 0 { "b" } else { "a" }), None).await;
        }
        fixture.label(&name, Some("end"), None).await;
        over.store(true, Ordering::Relaxed);
    };
    let write = async || {
        while !over.load(Ordering::Relaxed) {
            let patch = Patch::Merge(json!({"spec": {"content": format!("b wrote this, {:?}", Instant::now())}}));
            match websites(&b).patch(&name, &PatchParams::default(), &patch).await {
                Ok(_) => landed.fetch_add(1, Ordering::Relaxed),
                outcome @ Err(_) => {
                    refused("a contended write", outcome);
                    denied.fetch_add(1, Ordering::Relaxed)
                }
            };
        }
    };
    // Two, for conflicts between the writes of one shard as well.
    tokio::join!(write(), write(), flip);

    let (mut content, mut foreign, mut flips) = (from.spec.content.clone(), 0, 0);
    let mut owner = fixture.shard_of(&from.metadata);
    let patience = tokio::time::timeout(DEADLINE, async {
        while let Some(event) = events.next().await {
            let WatchEvent::Modified(website) = event.unwrap() else { continue };
            if website.spec.content != content {
                content.clone_from(&website.spec.content);
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
    let (landed, denied) = (landed.into_inner(), denied.into_inner());
    assert_eq!(foreign, 0, "of {landed} writes that landed");
    assert!(flips >= FLIPS && landed > 0 && denied > 0, "{flips} flips, {landed} landed, {denied} refused");
}
