//! The objects of a published controller: how they are made and changed, and when its work on them is done.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use ringside_e2e::{eventually::eventually, manifests, system::NAMESPACE};
use serde_json::json;

use super::controller::Controller;

/// Requests in flight while all objects are created or changed.
const CONCURRENT_WRITES: usize = 8;

/// How often all objects are looked at: each time they are listed, with what is made of them.
const LOOKS: Duration = Duration::from_millis(250);

/// The objects of one controller.
#[derive(Clone)]
pub(super) struct Objects {
    client: Client,
    roots: Api<DynamicObject>,
    of: &'static Controller,
}

/// The name of an object.
pub(super) fn name(index: usize) -> String {
    format!("object-{index:03}")
}

impl Objects {
    /// Of this controller; with what all objects name.
    pub(super) async fn of(client: Client, of: &'static Controller) -> Self {
        manifests::apply(&client, &manifests::parse(of.beside).unwrap()).await.unwrap();
        let [group, version, kind] = of.kind;
        let kind = GroupVersionKind::gvk(group, version, kind);
        let roots = Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind));
        Self { client, roots, of }
    }

    /// Creates objects.
    pub(super) async fn create(&self, which: Range<usize>) {
        let create = |index| async move {
            let [group, version, kind] = self.of.kind;
            let object = json!({
                "apiVersion": format!("{group}/{version}"),
                "kind": kind,
                "metadata": {"name": name(index)},
                "spec": (self.of.spec)(index, 0),
            });
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            self.roots.create(&PostParams::default(), &object).await
        };
        let created = stream::iter(which.map(create)).buffer_unordered(CONCURRENT_WRITES);
        created.try_collect::<Vec<_>>().await.unwrap();
    }

    /// Changes an object, to its change of this number.
    pub(super) async fn change(&self, index: usize, change: usize) {
        let patch = json!({"spec": (self.of.spec)(index, change)});
        self.roots.patch(&name(index), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Changes objects, each to its change of this number.
    pub(super) async fn change_all(&self, changes: &[usize]) {
        let change = |(index, change): (usize, &usize)| self.change(index, *change);
        stream::iter(changes.iter().enumerate().map(change)).buffer_unordered(CONCURRENT_WRITES).count().await;
    }

    /// Waits until the controller is done with the last change of each object.
    pub(super) async fn until_final(&self, what: &str, changes: &[usize], within: Duration) {
        let is_final = eventually(what, within, || async {
            tokio::time::sleep(LOOKS).await;
            let late = self.late(changes).await.map_err(|error| error.to_string())?;
            if late.is_empty() {
                Ok(())
            } else {
                Err(format!("{} are not: {:?}", late.len(), &late[..late.len().min(5)]))
            }
        });
        is_final.await.unwrap();
    }

    /// The objects with whose last change the controller is not done.
    async fn late(&self, changes: &[usize]) -> kube::Result<Vec<String>> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let roots = self.roots.list(&ListParams::default()).await?.items;
        let roots: BTreeMap<_, _> = roots.into_iter().map(|root| (root.name_any(), root)).collect();
        let secrets = secrets.list(&ListParams::default()).await?.items;
        let secrets: BTreeMap<_, _> = secrets.into_iter().map(|secret| (secret.name_any(), secret)).collect();
        let is_done = |index: usize, change: usize| {
            let (root, secret) = (roots.get(&name(index)), secrets.get(&(self.of.secret)(index)));
            root.zip(secret).is_some_and(|(root, secret)| (self.of.is_final)(root, secret, change))
        };
        let late = changes.iter().enumerate().filter(|(index, change)| !is_done(*index, **change));
        Ok(late.map(|(index, _)| name(index)).collect())
    }

    /// Deletes the first of them, and waits until they are gone.
    pub(super) async fn delete(&self, count: usize, within: Duration) {
        for index in 0..count {
            self.roots.delete(&name(index), &DeleteParams::background()).await.unwrap();
        }
        let gone = eventually("deleted objects are gone", within, || async {
            let roots = self.roots.list_metadata(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let left = roots.items.iter().filter(|root| (0..count).any(|index| name(index) == root.name_any()));
            let left: Vec<_> = left.map(kube::ResourceExt::name_any).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?} are there")) }
        });
        gone.await.unwrap();
    }
}
