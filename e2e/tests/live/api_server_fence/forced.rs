//! Shards that don't release: with the fence around them they lose the object, without it they keep it and it is told.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use k8s_openapi::api::{core::v1::ConfigMap, events::v1::Event};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, PatchParams, PostParams, WatchEvent, WatchParams},
};
use ringside_e2e::{eventually::eventually, system::Settings, website::Website};
use serde_json::{Value, json};

use crate::api_server_fence::fixture::{DEADLINE, Fixture, SHARDS, child, config_maps, refused, touch, websites};
use crate::planes::Keeps;
use crate::webhook::calls::sum;

/// Enough that a third shard gets some of them: the chance that it gets none is below one in 100,000.
const OBJECTS: usize = 30;

/// Whom an overdue drain is told about, and what of it.
const KINDS: [(&str, &[&str]); 2] = [
    ("ClusterRing", &["They stay with it", "/site-", "fence: APIServer"]),
    ("Lease", &["were not released within 5 s", "look at the shard's proxy"]),
];

/// The shortest deadline that a ring may have.
fn spec(fence: &str) -> Value {
    json!({"fence": fence, "drainDeadlineSeconds": 5})
}

/// Two shards with objects that have a child each, and a third one that has just come. None ever releases anything. The
/// ring says this of its fence before the third one comes.
async fn stuck(fixture: Fixture, fenced: Option<&str>) -> (Fixture, BTreeMap<&'static str, Client>) {
    let mut shards = BTreeMap::from([("a", fixture.shard("a").await), ("b", fixture.shard("b").await)]);
    if let Some(fenced) = fenced {
        fixture.until_fenced(fenced).await;
    }
    populate(&fixture).await;
    shards.insert("c", fixture.shard("c").await);
    (fixture, shards)
}

async fn populate(fixture: &Fixture) {
    for index in 0..OBJECTS {
        let name = format!("site-{index}");
        fixture.create(&fixture.admin, &name).await.unwrap();
        let site = fixture.until_owned(&name).await;
        config_maps(&fixture.admin).create(&PostParams::default(), &child(&site, &name)).await.unwrap();
    }
}

async fn owners(fixture: &Fixture) -> BTreeMap<String, (Option<String>, bool)> {
    let all = websites(&fixture.admin).list(&ListParams::default()).await.unwrap();
    let of = |site: Website| {
        let drained = site.labels().contains_key(&fixture.keys.drain);
        (site.name_any(), (fixture.shard_of(&site.metadata), drained))
    };
    all.into_iter().map(of).collect()
}

/// The objects that drain, once each of these shards is to release some.
async fn drained(fixture: &Fixture, from: &[&str]) -> BTreeMap<String, String> {
    let seen = eventually("objects drain", DEADLINE, || async {
        let draining = owners(fixture).await.into_iter().filter(|(_, (_, drained))| *drained);
        let draining: BTreeMap<_, _> = draining.map(|(name, (shard, _))| (name, shard.unwrap_or_default())).collect();
        let all = from.iter().all(|shard| draining.values().any(|was| was == shard));
        if all { Ok(draining) } else { Err(format!("{draining:?}")) }
    });
    seen.await.unwrap()
}

/// Waits until an Event with this reason about an object of this kind says all of this.
async fn until_told(fixture: &Fixture, kind: &str, reason: &str, words: &[&str]) {
    // Those about rings are in the namespace `default`.
    let events: Api<Event> = Api::all(fixture.admin.clone());
    eventually(&format!("an Event {reason} of a {kind}"), DEADLINE, || async {
        let mut notes = Vec::new();
        for event in events.list(&ListParams::default()).await.map_err(|error| error.to_string())? {
            let about = event.regarding.unwrap_or_default();
            let of_ring = [about.namespace, about.name].iter().flatten().any(|one| one == fixture.ring);
            if of_ring && about.kind.as_deref() == Some(kind) && event.reason.as_deref() == Some(reason) {
                notes.extend(event.note);
            }
        }
        let told = notes.iter().any(|note| words.iter().all(|words| note.contains(words)));
        if told { Ok(()) } else { Err(format!("{notes:?}")) }
    })
    .await
    .unwrap();
}

pub(crate) async fn a_fenced_shard_that_does_not_let_go_loses_the_object_after_its_children() {
    let (fixture, shards) = stuck(Fixture::on(Keeps::Both, "fence-stuck", spec("APIServer")).await, Some("True")).await;
    let from =
        config_maps(&fixture.admin).list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let children = config_maps(&fixture.admin);
    let mut changes = std::pin::pin!(children.watch(&WatchParams::default(), &from).await.unwrap());
    let draining = drained(&fixture, &["a", "b"]).await;
    until_lost(&fixture, &draining).await;
    let (name, was) = draining.first_key_value().unwrap();
    let site = fixture.until_owned(name).await;
    assert_eq!(
        fixture.shard_of(&site.metadata).as_deref(),
        Some("c"),
        "the others keep theirs, so it goes to the new one"
    );

    // The child first.
    let moved = tokio::time::timeout(DEADLINE, async {
        loop {
            match changes.next().await.unwrap().unwrap() {
                WatchEvent::Modified(map) if map.name_any() == *name => return map,
                _ => {}
            }
        }
    });
    let moved: ConfigMap = moved.await.unwrap();
    let version = |of: Option<String>| of.unwrap().parse::<u64>().unwrap();
    assert_eq!(fixture.shard_of(&moved.metadata).as_deref(), Some("c"));
    assert!(version(moved.resource_version()) < version(site.resource_version()));

    // The shard that lost it can do nothing about it, nor take it back by an acknowledgement that comes too late.
    let (former, parameters) = (&shards[was.as_str()], PatchParams::default());
    refused("a late write", websites(former).patch(name, &parameters, &touch()).await);
    refused("a late write to a child", config_maps(former).patch(name, &parameters, &touch()).await);
    websites(&shards["c"]).patch(name, &parameters, &touch()).await.unwrap();
    until_told(&fixture, "ClusterRing", "DrainForced", &["they were taken from it"]).await;
}

pub(crate) async fn a_shard_without_the_fence_keeps_what_it_does_not_let_go_of_and_that_is_told() {
    let (fixture, _shards) = stuck(Fixture::on(Keeps::Both, "fence-stuck-proxy", spec("Proxy")).await, None).await;
    let draining = drained(&fixture, &["a", "b"]).await;
    // Those who look at the ring and those who look at the shard are told each.
    for (kind, words) in KINDS {
        until_told(&fixture, kind, "DrainOverdue", words).await;
    }
    // Drains are paced, so they are not overdue all at once.
    eventually("the ring names both shards", DEADLINE, || async {
        let told = fixture.condition("DrainsInTime").await?;
        let named = ["shard 'a' of ", "shard 'b' of "].iter().all(|shard| told.message.contains(shard));
        if told.status == "False" && told.reason == "DrainOverdue" && named { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await
    .unwrap();
    let metrics = eventually("all of them are counted", DEADLINE, || async {
        let metrics = fixture.sharder_metrics().await;
        let overdue = sum(&metrics, "controller_sharding_overdue_objects", &[]);
        if overdue >= draining.len() as u64 { Ok(metrics) } else { Err(metrics) }
    });
    let metrics = metrics.await.unwrap();
    assert!(!metrics.contains("controller_sharding_forced_movements_total{"), "{metrics}");
    // They are worked on again: their drains are taken back.
    eventually("every shard has its objects again", DEADLINE, || async {
        let now = owners(&fixture).await;
        let is_back = |(name, was): &(&String, &String)| now[*name] == (Some((*was).clone()), false);
        let left: Vec<_> = draining.iter().filter(|it| !is_back(it)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await
    .unwrap();
    let metrics = fixture.sharder_metrics().await;
    assert!(sum(&metrics, "controller_sharding_drains_taken_back_total", &[]) >= draining.len() as u64, "{metrics}");
}

/// Returns once none of these objects is with the shard that did not release it.
async fn until_lost(fixture: &Fixture, draining: &BTreeMap<String, String>) {
    eventually("they are taken from shards that don't release", DEADLINE, || async {
        let now = owners(fixture).await;
        let left: Vec<_> = draining.iter().filter(|(name, was)| now[*name].0.as_ref() == Some(was)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await
    .unwrap();
}

/// One shard has no Pod, one a token that is bound to none, and one does not say which Pod its is: each would go on writing.
pub(crate) async fn a_shard_that_the_fence_does_not_know_is_named_and_keeps_its_objects() {
    let fixture = Fixture::on(Keeps::Both, "fence-podless", spec("APIServer")).await;
    fixture.shard("a").await;
    fixture.until_fenced("True").await;
    fixture.lease("podless", None).await;
    fixture.until_fenced("False").await;
    populate(&fixture).await;
    fixture.shard("c").await;
    let draining = drained(&fixture, &["a", "podless"]).await;
    let (kept, lost): (BTreeMap<_, _>, _) = draining.into_iter().partition(|(_, was)| was == "podless");
    until_lost(&fixture, &lost).await;
    until_told(&fixture, "Lease", "DrainOverdue", &[]).await;
    let now = owners(&fixture).await;
    assert!(kept.keys().all(|name| now[name].0.as_deref() == Some("podless")), "{now:?}");

    for (name, token_pod) in [("unbound", Some("")), ("silent", None)] {
        fixture.pod(SHARDS, name).await;
        fixture.lease(name, token_pod).await;
    }
    eventually("all are named", DEADLINE, || async {
        let condition = fixture.condition("Fenced").await?;
        let words = [
            "shard 'podless': there is no Pod 'fence-podless/podless'",
            "shard 'unbound': its token",
            "shard 'silent': it does not say which pod",
        ];
        let named = words.iter().all(|words| condition.message.contains(words)) && condition.reason == "ShardsOutside";
        if named { Ok(()) } else { Err(format!("{condition:?}")) }
    })
    .await
    .unwrap();
}

/// An API server stores policies, and serves them, also where it does not enforce them.
pub(crate) async fn where_policies_are_turned_off_nothing_is_forced_and_that_is_told() {
    let off = "--disable-admission-plugins=ValidatingAdmissionPolicy,MutatingAdmissionPolicy";
    let settings = Settings { api_server_flags: vec![off.to_owned()], ..Settings::default() };
    let (mut fixture, shards) = stuck(Fixture::start(settings, spec("APIServer")).await, Some("False")).await;
    for (type_, plugin) in [("Fenced", "ValidatingAdmissionPolicy"), ("LabelsProtected", "MutatingAdmissionPolicy")] {
        let told = || async {
            let told = fixture.condition(type_).await?;
            let named = told.message.contains(&format!("is its admission plugin {plugin} turned off?"));
            if told.status == "False" && named { Ok(()) } else { Err(format!("{told:?}")) }
        };
        eventually(&format!("{type_} says which plugin is missing"), DEADLINE, told).await.unwrap();
    }
    let draining = drained(&fixture, &["a", "b"]).await;
    until_told(&fixture, "ClusterRing", "DrainOverdue", &[]).await;
    for (name, was) in &draining {
        assert_eq!(owners(&fixture).await[name].0.as_ref(), Some(was), "{name}");
    }

    // Once it enforces them, what is written late is refused. So they are taken when they are asked for the next time.
    fixture.system.set_api_server_flags(Vec::new());
    fixture.system.restart_api_server().await.unwrap();
    fixture.until_fenced("True").await;
    until_lost(&fixture, &draining).await;
    let (name, was) = draining.first_key_value().unwrap();
    let late = websites(&shards[was.as_str()]).patch(name, &PatchParams::default(), &touch()).await;
    refused("a late write", late);
}
