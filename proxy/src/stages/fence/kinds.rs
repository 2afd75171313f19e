//! Which resource an owner reference means, which names a kind.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use ringside_ring::cluster_ring::GroupResource;
use serde::Deserialize;

use super::ask::{Asker, Failed};
use crate::{fence::Target, metadata::Owner};

/// How many kinds are remembered: those that control objects of the ring, in all their versions.
const MAX_KINDS: usize = 256;

/// The kinds that were asked for, by `apiVersion` and kind. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Kinds(Arc<Mutex<HashMap<(String, String), Served>>>);

#[derive(Clone, Debug)]
struct Served {
    resource: GroupResource,
    namespaced: bool,
}

#[derive(Deserialize)]
struct ResourceList {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
}

impl Kinds {
    /// The object that an owner reference of an object in `namespace` names, and the version that it names it in.
    pub(super) async fn target(
        &self,
        asker: &Asker,
        owner: &Owner,
        namespace: Option<&str>,
    ) -> Result<Option<(Target, String)>, Failed> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let key = (owner.api_version.clone(), owner.kind.clone());
        let known = self.0.lock().get(&key).cloned();
        let served = match known {
            Some(served) => served,
            None => match ask(asker, group, version, &owner.kind).await? {
                Some(served) => {
                    let mut kinds = self.0.lock();
                    let evicted = if kinds.len() >= MAX_KINDS { kinds.len() } else { 0 };
                    if evicted > 0 {
                        kinds.clear();
                    }
                    kinds.insert(key, served.clone());
                    asker.metrics.kinds(kinds.len(), evicted);
                    served
                }
                None => return Ok(None),
            },
        };
        // An owner is in the same namespace, or in none.
        let namespace = namespace.filter(|_| served.namespaced).map(str::to_owned);
        let target = Target { resource: served.resource, namespace, name: Some(owner.name.clone()) };
        Ok(Some((target, version.to_owned())))
    }
}

async fn ask(asker: &Asker, group: &str, version: &str, kind: &str) -> Result<Option<Served>, Failed> {
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let Some(answer) = asker.json(&path).await? else { return Ok(None) };
    let list: ResourceList = serde_json::from_slice(&answer).map_err(|error| Failed::passing(&error))?;
    // `deployments/scale` is of kind Scale, and no object.
    let found = list.resources.into_iter().find(|it| it.kind == kind && !it.name.contains('/'));
    let served = |it: Resource| Served {
        resource: GroupResource { group: group.to_owned(), resource: it.name },
        namespaced: it.namespaced,
    };
    Ok(found.map(served))
}
