//! Which resource an owner reference means, which names a kind.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use ringside_ring::cluster_ring::GroupResource;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::Instant;

use super::ask::{ApiQuestions, QuestionError};
use crate::{fence::Target, metadata::Owner};

/// How many kinds are remembered: those that control objects of the ring, in all their versions.
const MAX_KINDS: usize = 256;
/// How long a kind is remembered: its CustomResourceDefinition may be replaced by one with another resource.
const MAX_AGE: Duration = Duration::from_secs(60);

/// The kinds that were asked for, by `apiVersion` and kind. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Kinds(Arc<Mutex<HashMap<(String, String), Served>>>);

#[derive(Clone, Debug)]
struct Served {
    resource: GroupResource,
    namespaced: bool,
    /// The version that serves it: not always the one that the reference names.
    version: String,
    asked: Instant,
}

#[derive(Deserialize)]
struct Group {
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
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

/// The API group of an owner.
pub(super) fn group_of(owner: &Owner) -> &str {
    owner.api_version.split_once('/').map_or("", |(group, _)| group)
}

impl Kinds {
    /// The object that an owner reference of an object in `namespace` names, and a version that serves it.
    ///
    /// # Errors
    /// When no served version of the group knows the kind, or the API server does not say.
    pub(super) async fn target(
        &self,
        questions: &ApiQuestions,
        owner: &Owner,
        namespace: Option<&str>,
    ) -> Result<(Target, String), QuestionError> {
        let known = self.0.lock().get(&key(owner)).filter(|served| served.asked.elapsed() < MAX_AGE).cloned();
        let served = match known {
            Some(served) => served,
            None => {
                self.forget(owner);
                let served = ask(questions, owner).await?;
                let mut kinds = self.0.lock();
                let evicted = if kinds.len() >= MAX_KINDS { kinds.len() } else { 0 };
                if evicted > 0 {
                    kinds.clear();
                }
                kinds.insert(key(owner), served.clone());
                questions.metrics.kinds(kinds.len(), evicted);
                served
            }
        };
        // An owner is in the same namespace, or in none.
        let namespace = namespace.filter(|_| served.namespaced).map(str::to_owned);
        let target = Target { resource: served.resource, namespace, name: Some(owner.name.clone()) };
        Ok((target, served.version))
    }

    /// Forgets what is known of an owner's kind.
    pub(super) fn forget(&self, owner: &Owner) {
        self.0.lock().remove(&key(owner));
    }
}

fn key(owner: &Owner) -> (String, String) {
    (owner.api_version.clone(), owner.kind.clone())
}

/// Asks the version that the owner reference names, and then every other version of the group that is served.
async fn ask(questions: &ApiQuestions, owner: &Owner) -> Result<Served, QuestionError> {
    let (group, kind) = (group_of(owner), &owner.kind);
    let named = owner.api_version.rsplit('/').next().unwrap_or_default();
    if let Some(served) = ask_version(questions, group, named, kind).await? {
        return Ok(served);
    }
    let versions = match group {
        "" => vec![Version { version: "v1".to_owned() }],
        _ => discover::<Group>(questions, &format!("/apis/{group}")).await?.map_or(Vec::new(), |group| group.versions),
    };
    for Version { version } in versions.into_iter().filter(|it| it.version != named) {
        if let Some(served) = ask_version(questions, group, &version, kind).await? {
            return Ok(served);
        }
    }
    Err(QuestionError::passing(&format!("no served version of the API group {group:?} knows the kind {kind:?}")))
}

async fn ask_version(
    questions: &ApiQuestions,
    group: &str,
    version: &str,
    kind: &str,
) -> Result<Option<Served>, QuestionError> {
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let list = discover::<ResourceList>(questions, &path).await?;
    // `deployments/scale` is of kind Scale, and no object.
    let mut resources = list.into_iter().flat_map(|list| list.resources);
    let found = resources.find(|it| it.kind == *kind && !it.name.contains('/'));
    Ok(found.map(|it| Served {
        resource: GroupResource { group: group.to_owned(), resource: it.name },
        namespaced: it.namespaced,
        version: version.to_owned(),
        asked: Instant::now(),
    }))
}

async fn discover<T: DeserializeOwned>(questions: &ApiQuestions, path: &str) -> Result<Option<T>, QuestionError> {
    let Some(answer) = questions.json(path).await? else { return Ok(None) };
    serde_json::from_slice(&answer).map(Some).map_err(|error| QuestionError::passing(&error))
}
