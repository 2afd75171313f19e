//! Looks at the objects of a controller: how many there are, what they follow, and what is copied.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Api, api::DynamicObject};
use ringside_ring::{
    cluster_ring::GroupResource,
    partition::{Owner, group_of, owner_of},
};
use ringside_runtime::discovery::{self, Served};
use serde_json::Value;

use super::Reader;
use crate::fit::{
    resources,
    subject::{Labels, Population, Relation, Subject},
};

/// How many children of a resource are compared with their owners.
const COMPARED: usize = 50;

/// How many objects with pods are read as a whole, of a resource.
const READ: usize = 20;

/// An object of the controller's own resources.
struct Root {
    name: String,
    labels: Labels,
}

/// A resource of the controller, with what was found of it.
struct Found {
    served: Served,
    population: Population,
}

/// Adds populations and relations to a subject.
pub(super) async fn gather(reader: &mut Reader, subject: &mut Subject) {
    let mut found = resources_of(reader, subject).await;
    // Owners come before what they control.
    found.sort_by_key(|found| !found.population.own);
    let kinds: Kinds = found
        .iter()
        .map(|found| {
            let api = &found.served.api;
            ((api.group.clone(), api.kind.clone()), found.population.resource.clone())
        })
        .collect();
    let mut roots = HashMap::new();
    for Found { served, population } in &mut found {
        let api: Api<DynamicObject> = Api::all_with(reader.client.clone(), &served.api);
        let mut compared: Vec<(String, Relation, ObjectMeta)> = Vec::new();
        let mut met: Vec<ObjectMeta> = Vec::new();
        let what = population.resource.to_string();
        reader.each_metadata(&api, &what, |object| met.push(object.metadata)).await;
        for metadata in met {
            count(population, &metadata, &kinds);
            let name = full_name(&population.kind, &metadata);
            let owner = owner(&metadata, &kinds).one();
            if population.own {
                let labels = metadata.labels.clone().unwrap_or_default();
                roots.insert(metadata.uid.clone().unwrap_or_default(), Root { name: name.clone(), labels });
            }
            let root = owner.and_then(|owner| roots.get(&owner.uid));
            if let (Some(root), true) = (root, compared.len() < COMPARED) {
                let relation = Relation {
                    root: root.name.clone(),
                    root_labels: root.labels.clone(),
                    child_kind: population.kind.clone(),
                    child: name.clone(),
                    labels: metadata.labels.clone().unwrap_or_default(),
                    pods: None,
                };
                compared.push((name, relation, metadata));
            }
        }
        read_pods(reader, (served, population), &mut compared).await;
        subject.relations.extend(compared.into_iter().map(|(_, relation, _)| relation));
    }
    subject.populations = found.into_iter().map(|found| found.population).collect();
}

/// The resources that the rights name, as the API server serves them.
async fn resources_of(reader: &mut Reader, subject: &Subject) -> Vec<Found> {
    let all = match discovery::groups(&reader.client).await {
        Ok(all) => all,
        Err(error) => {
            reader.unseen.push(format!("API groups: {error}"));
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for name in resources::groups(subject, &all) {
        let group = match discovery::group(&reader.client, name).await {
            Ok(group) => group,
            Err(error) => {
                reader.unseen.push(format!("API group {name}: {error}"));
                continue;
            }
        };
        for served in group.all().0.into_iter().filter(|served| served.supports(&["list"])) {
            let resource = GroupResource { group: served.api.group.clone(), resource: served.api.plural.clone() };
            if let Some(population) = resources::population(subject, &resource, &served.api.kind) {
                found.push(Found { served, population });
            }
        }
    }
    found
}

/// The resources of the controller, by group and kind.
type Kinds = HashMap<(String, String), GroupResource>;

fn resource<'a>(owner: &OwnerReference, kinds: &'a Kinds) -> Option<&'a GroupResource> {
    kinds.get(&(group_of(&owner.api_version).to_owned(), owner.kind.clone()))
}

/// What an object follows in a ring of all of these.
fn owner<'a>(metadata: &'a ObjectMeta, kinds: &Kinds) -> Owner<&'a OwnerReference> {
    let references = metadata.owner_references.as_deref().unwrap_or_default();
    owner_of(references, |owner| resource(owner, kinds).is_some())
}

fn count(population: &mut Population, metadata: &ObjectMeta, kinds: &Kinds) {
    population.total += 1;
    population.generated += usize::from(metadata.generate_name.is_some());
    match owner(metadata, kinds) {
        Owner::One(owner) => {
            if let Some(owner) = resource(owner, kinds) {
                *population.controlled_by.entry(owner.clone()).or_default() += 1;
            }
        }
        Owner::None => population.uncontrolled += 1,
        Owner::Several => {
            population.uncontrolled += 1;
            for owner in metadata.owner_references.iter().flatten().filter_map(|owner| resource(owner, kinds)) {
                *population.owned_by.entry(owner.clone()).or_default() += 1;
            }
        }
    }
}

fn full_name(kind: &str, metadata: &ObjectMeta) -> String {
    let name = metadata.name.as_deref().unwrap_or_default();
    match metadata.namespace.as_deref() {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// Reads the labels of the pods that some of the objects make.
async fn read_pods(
    reader: &mut Reader,
    (served, population): (&Served, &Population),
    of: &mut [(String, Relation, ObjectMeta)],
) {
    if population.kind == "Pod" {
        for (_, relation, _) in of {
            relation.pods = Some(relation.labels.clone());
        }
        return;
    }
    if !["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"].contains(&population.kind.as_str()) {
        return;
    }
    for (name, relation, metadata) in of.iter_mut().take(READ) {
        let (Some(place), Some(object)) = (metadata.namespace.as_deref(), metadata.name.as_deref()) else { continue };
        let api: Api<DynamicObject> = Api::namespaced_with(reader.client.clone(), place, &served.api);
        match api.get(object).await {
            Ok(object) => relation.pods = Some(pod_labels(&object.data)),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                reader.unseen.push(format!("{name}: {}", ringside_runtime::explain::explain(&error)));
                return;
            }
        }
    }
}

/// The labels of the pod template in an object's spec, be it of a job's template or its own.
fn pod_labels(object: &Value) -> Labels {
    let spec = &object["spec"];
    let template =
        if spec["jobTemplate"].is_object() { &spec["jobTemplate"]["spec"]["template"] } else { &spec["template"] };
    serde_json::from_value(template["metadata"]["labels"].clone()).unwrap_or_default()
}
