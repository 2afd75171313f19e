//! Children that are there before their owner: made by hand, or restored from a backup.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt as _,
    api::{ListParams, ObjectMeta, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    website::{Website, WebsiteSpec},
};
use ringside_ring::cluster_ring::Fence;

use crate::{
    labels::fixture::{DEADLINE, Fixture},
    planes::Keeps,
};

/// Enough that each shard has some of their owners.
const OBJECTS: usize = 12;

pub(crate) async fn made_before_their_owners(fence: Fence, name: &str) {
    let fixture = Fixture::fenced(fence, Keeps::Both, name).await;
    let (children, websites) = (fixture.objects::<ConfigMap>(), fixture.websites());
    let names: Vec<_> = (0..OBJECTS).map(|number| format!("hand-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        // One restored from a backup has the label of the shard that it had then, and labels of its own. Nothing but the policy
        // takes that off.
        let labels = (number % 2 == 0 && fixture.has_policy()).then(|| {
            [(fixture.labels.shard.clone(), "long-gone".to_owned()), ("app".to_owned(), "site".to_owned())].into()
        });
        let metadata = ObjectMeta { name: Some(name.clone()), labels, ..ObjectMeta::default() };
        let made = ConfigMap { metadata, ..ConfigMap::default() };
        let made = children.create(&PostParams::default(), &made).await.unwrap();
        assert!(!made.labels().contains_key(&fixture.labels.shard), "the policy takes off what a user restores");
    }
    for name in &names {
        websites.create(&PostParams::default(), &Website::new(name, WebsiteSpec::default())).await.unwrap();
    }
    eventually("each child has its owner, and its owner's shard", DEADLINE, || async {
        let error = |error: kube::Error| error.to_string();
        let all = children.list(&ListParams::default()).await.map_err(error)?;
        for child in all.iter().filter(|child| names.contains(&child.name_any())) {
            let owner = websites.get(&child.name_any()).await.map_err(error)?;
            let is_adopted = child.owner_references().iter().any(|it| Some(&it.uid) == owner.uid().as_ref());
            let done = owner.status.as_ref().is_some_and(|status| status.observed_generation == 1);
            if !(is_adopted && done) || fixture.owner(child) != fixture.owner(&owner) {
                return Err(format!("{:?}", child.metadata));
            }
        }
        Ok(())
    })
    .await
    .unwrap();
    fixture.assert_nobody_lost_anything();
}
