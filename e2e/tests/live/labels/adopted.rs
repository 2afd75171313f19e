//! Children that are there before their owner: made by hand, or restored from a backup.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt as _,
    api::{ListParams, ObjectMeta, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    website::{Website, WebsiteSpec},
};
use serde_json::json;

use crate::{labels::fixture::Fixture, planes::Keeps};

/// Enough that each shard has some of their owners.
const OBJECTS: usize = 12;
/// What is promised: the create, the label, and the controller's next attempt.
const SOON: Duration = Duration::from_secs(20);

pub(crate) async fn children_made_before_their_owners_are_adopted_with_webhook_and_policy() {
    are_adopted(Fixture::on(Keeps::Both, "labels-adopted").await).await;
}

pub(crate) async fn children_made_before_their_owners_are_adopted_behind_the_api_servers_fence() {
    are_adopted(Fixture::fenced("labels-adopted-fenced").await).await;
}

async fn are_adopted(fixture: Fixture) {
    let (children, websites) = (fixture.objects::<ConfigMap>(), fixture.websites());
    let names: Vec<_> = (0..OBJECTS).map(|number| format!("hand-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        // One restored from a backup has the label of the shard that it had then, and labels of its own.
        let labels = (number % 2 == 0).then(|| {
            [(fixture.labels.shard.clone(), "long-gone".to_owned()), ("app".to_owned(), "site".to_owned())].into()
        });
        let metadata = ObjectMeta { name: Some(name.clone()), labels, ..ObjectMeta::default() };
        let made = ConfigMap { metadata, ..ConfigMap::default() };
        let made = children.create(&PostParams::default(), &made).await.unwrap();
        assert!(!made.labels().contains_key(&fixture.labels.shard), "the policy takes off what a user restores");
    }
    let since = Instant::now();
    for name in &names {
        websites.create(&PostParams::default(), &Website::new(name, WebsiteSpec::default())).await.unwrap();
    }
    eventually("each child has its owner, and its owner's shard", SOON, || async {
        let error = |error: kube::Error| error.to_string();
        let mut missing = Vec::new();
        for child in children.list(&ListParams::default()).await.map_err(error)? {
            let name = child.name_any();
            if !names.contains(&name) {
                continue;
            }
            let owner = websites.get(&name).await.map_err(error)?;
            let is_adopted = child.owner_references().iter().any(|it| Some(&it.uid) == owner.uid().as_ref());
            let done = owner.status.as_ref().is_some_and(|status| status.observed_generation == 1);
            if !(is_adopted && done) || fixture.owner(&child) != fixture.owner(&owner) {
                missing.push(json!({"name": name, "labels": child.labels(), "adopted": is_adopted}));
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
    })
    .await
    .unwrap();
    eprintln!("{OBJECTS} children that were there before their owners: all adopted after {:.2?}", since.elapsed());
    fixture.assert_nobody_lost_anything();
}
