//! The objects of a ring: Secrets, and ConfigMaps that they control.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::{
    ByteString, NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ListParams, ObjectMeta, PostParams},
};
use ringside_e2e::system::NAMESPACE;
use ringside_ring::{RingLabels, ShardName};
use serde::de::DeserializeOwned;

/// Requests at once while objects are created.
const CREATES: usize = 16;
/// A page of a list.
const PAGE: u32 = 2_000;
const ROOT: &str = "root";
const CHILD: &str = "child";

/// How many objects there are.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Main objects.
    pub objects: usize,
    /// Children of each.
    pub children: usize,
}

/// The name of a main object.
pub(super) fn root(number: usize) -> String {
    format!("{ROOT}-{number:06}")
}

/// The name of a child of a main object.
pub(super) fn child(number: usize, nth: usize) -> String {
    format!("{CHILD}-{number:06}-{nth}")
}

/// Whether the name is that of an object of the ring here.
pub(super) fn is_ours(name: &str) -> bool {
    name.starts_with(ROOT) || name.starts_with(CHILD)
}

/// The main object of a child, by their names.
pub(super) fn root_of(child: &str) -> Option<String> {
    let number = child.strip_prefix(CHILD)?.split('-').nth(1)?;
    Some(format!("{ROOT}-{number}"))
}

/// Creates main objects and their children.
pub(super) async fn create(client: &Client, shape: Shape) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let creates = stream::iter(0..shape.objects).map(|number| {
        let (secrets, maps) = (secrets.clone(), maps.clone());
        async move {
            let made = secrets.create(&PostParams::default(), &secret(&root(number))).await?;
            for nth in 0..shape.children {
                maps.create(&PostParams::default(), &config_map(child(number, nth), &made)).await?;
            }
            anyhow::Ok(())
        }
    });
    creates.buffer_unordered(CREATES).try_collect().await
}

/// A Secret of the size that all have here.
pub(super) fn secret(name: &str) -> Secret {
    let data = [("token".to_owned(), ByteString(vec![b'x'; 64]))].into();
    Secret { metadata: metadata(name.to_owned()), data: Some(data), ..Secret::default() }
}

fn config_map(name: String, owner: &Secret) -> ConfigMap {
    let reference = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let data = [("token".to_owned(), "x".repeat(64))].into();
    let metadata = ObjectMeta { owner_references: Some(vec![reference]), ..metadata(name) };
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

fn metadata(name: String) -> ObjectMeta {
    let labels = Some([("app".to_owned(), "bench".to_owned())].into());
    ObjectMeta { name: Some(name), labels, ..ObjectMeta::default() }
}

/// Where each object is, by its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Placement {
    roots: BTreeMap<String, Owner>,
    children: BTreeMap<String, Owner>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Owner {
    shard: Option<String>,
    is_drained: bool,
}

impl Placement {
    /// As the API server has it.
    pub(super) async fn read(client: &Client, labels: &RingLabels) -> anyhow::Result<Self> {
        let roots = owners::<Secret>(client, labels).await.context("list the Secrets")?;
        let children = owners::<ConfigMap>(client, labels).await.context("list the ConfigMaps")?;
        Ok(Self { roots, children })
    }

    /// The first thing that is still to be done.
    pub(super) fn left(&self, shape: Shape, belongs_to: impl Fn(&str, Option<&str>) -> bool) -> Option<String> {
        let (roots, children) = (self.roots.len(), self.children.len());
        if roots != shape.objects || children != shape.objects * shape.children {
            return Some(format!("{roots} objects and {children} children"));
        }
        let misplaced =
            |(name, owner): &(&String, &Owner)| owner.is_drained || !belongs_to(name, owner.shard.as_deref());
        if let Some((name, owner)) = self.roots.iter().find(misplaced) {
            return Some(format!("{name} is with {owner:?}"));
        }
        let apart = |child: &String, owner: &Owner| {
            root_of(child).and_then(|root| self.roots.get(&root)).is_none_or(|root| root.shard != owner.shard)
        };
        let (name, owner) = self.children.iter().find(|(child, owner)| apart(child, owner))?;
        Some(format!("{name} is with {owner:?}"))
    }

    /// The main objects that are elsewhere later.
    pub(super) fn moved(&self, later: &Self) -> BTreeSet<String> {
        let at = |name: &String| self.roots.get(name).and_then(|owner| owner.shard.as_ref());
        let moved = later.roots.iter().filter(|(name, owner)| at(name) != owner.shard.as_ref());
        moved.map(|(name, _)| name.clone()).collect()
    }

    /// Whether a shard has any main object.
    pub(super) fn has(&self, shard: &ShardName) -> bool {
        self.roots.values().any(|owner| owner.shard.as_deref() == Some(shard.as_str()))
    }

    /// The fullest shard against the mean.
    pub(super) fn max_to_mean(&self) -> f64 {
        let mut loads = BTreeMap::<_, usize>::new();
        for shard in self.roots.values().filter_map(|owner| owner.shard.as_ref()) {
            *loads.entry(shard).or_default() += 1;
        }
        let fullest = loads.values().max().copied().unwrap_or_default();
        (fullest * loads.len()) as f64 / self.roots.len() as f64
    }
}

async fn owners<K>(client: &Client, labels: &RingLabels) -> anyhow::Result<BTreeMap<String, Owner>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    let (mut found, mut page) = (BTreeMap::new(), ListParams::default().limit(PAGE));
    loop {
        let list = api.list_metadata(&page).await?;
        for object in list.items.iter().filter(|object| is_ours(&object.name_any())) {
            let seen = labels.ownership(object.metadata.labels.as_ref());
            let owner = Owner { shard: seen.shard.map(str::to_owned), is_drained: seen.drain.is_some() };
            found.insert(object.name_any(), owner);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(owners: &[(&str, &str)]) -> Placement {
        let owner = |shard: &str| Owner { shard: Some(shard.to_owned()), is_drained: false };
        let all = |start: &str| {
            let of_kind = owners.iter().filter(|(name, _)| name.starts_with(start));
            of_kind.map(|(name, shard)| ((*name).to_owned(), owner(shard))).collect()
        };
        Placement { roots: all(ROOT), children: all(CHILD) }
    }

    #[test]
    fn a_child_that_is_not_beside_its_owner_is_still_to_be_moved() {
        let shape = Shape { objects: 1, children: 1 };
        let left = |child| placed(&[("root-000007", "a"), ("child-000007-0", child)]).left(shape, |_, _| true);
        assert_eq!(left("a"), None);
        assert!(left("b").is_some_and(|left| left.starts_with("child-000007-0")));
    }

    #[test]
    fn objects_that_changed_their_shard_have_moved() {
        let before = placed(&[("root-000001", "a"), ("root-000002", "a"), ("root-000003", "b")]);
        let after = placed(&[("root-000001", "a"), ("root-000002", "b"), ("root-000003", "b")]);
        assert_eq!(before.moved(&after), BTreeSet::from(["root-000002".to_owned()]));
        assert!((before.max_to_mean() - 4.0 / 3.0).abs() < 1e-9);
    }
}
