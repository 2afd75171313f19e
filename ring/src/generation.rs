//! Which Pods of a Deployment are about to be replaced, as far as the Pods themselves tell.
//!
//! While a Deployment rolls, Pods of the new template come and those of the old one go. An object that is given to one of
//! the old moves again soon. A Deployment's Pods carry the hash of their template (`pod-template-hash`, Kubernetes,
//! "Deployments"), and belong to a ReplicaSet named after Deployment and hash.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};

use crate::{name::ShardName, partition::controller_of};

/// The label of a Deployment's Pods that tells their template.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Of which Deployment a Pod is, and of which of its templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    deployment: String,
    template: String,
    created: Timestamp,
}

impl Generation {
    /// Reads it from a Pod's metadata; `None` when no Deployment made the Pod.
    pub fn of(pod: &ObjectMeta) -> Option<Self> {
        let template = pod.labels.as_ref()?.get(TEMPLATE_HASH)?;
        let replica_set = controller_of(pod.owner_references.as_deref()).filter(|owner| owner.kind == "ReplicaSet")?;
        let deployment = replica_set.name.strip_suffix(template)?.strip_suffix('-')?;
        let namespace = pod.namespace.as_deref().unwrap_or_default();
        Some(Self {
            deployment: format!("{namespace}/{deployment}"),
            template: template.clone(),
            created: pod.creation_timestamp.as_ref()?.0,
        })
    }
}

/// Deployments that go from one template to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roll {
    /// The shards that are about to be replaced.
    pub outgoing: BTreeSet<ShardName>,
    /// By the Deployments that do so, the template that each of them goes to.
    pub towards: BTreeMap<String, String>,
}

/// Which shards are about to be replaced: there is a younger Pod of their Deployment, of another template. What a Deployment
/// makes is of the template that it is going to, be it new or one that it goes back to.
pub fn roll(shards: &BTreeMap<ShardName, Generation>) -> Roll {
    let mut newest: BTreeMap<&str, &Generation> = BTreeMap::new();
    for generation in shards.values() {
        let known = newest.entry(&generation.deployment).or_insert(generation);
        if generation.created > known.created {
            *known = generation;
        }
    }
    let mut roll = Roll::default();
    for (shard, generation) in shards {
        let newest = newest.get(&*generation.deployment).filter(|newest| newest.template != generation.template);
        if let Some(newest) = newest {
            roll.outgoing.insert(shard.clone());
            roll.towards.insert(newest.deployment.clone(), newest.template.clone());
        }
    }
    roll
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn pod(deployment: &str, template: &str, second: u32) -> ObjectMeta {
        serde_json::from_value(json!({
            "namespace": "default", "labels": {TEMPLATE_HASH: template},
            "creationTimestamp": format!("2024-01-01T00:00:{second:02}Z"),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true, "uid": "u",
                "name": format!("{deployment}-{template}")}],
        }))
        .unwrap()
    }

    #[test]
    fn pods_of_an_older_template_are_outgoing() {
        let shards = [
            ("old", pod("web", "5d8", 1)),
            ("new", pod("web", "7f9", 5)),
            ("old-too", pod("web", "5d8", 2)),
            ("canary", pod("web-canary", "5d8", 0)),
        ];
        let known = shards.map(|(shard, pod)| (shard.parse().unwrap(), Generation::of(&pod).unwrap())).into();
        let found = roll(&known);
        let outgoing: Vec<_> = found.outgoing.iter().map(ShardName::as_str).collect();
        assert_eq!(outgoing, ["old", "old-too"]);
        assert_eq!(found.towards, [("default/web".to_owned(), "7f9".to_owned())].into());
        assert_eq!(roll(&BTreeMap::new()), Roll::default());
    }

    #[test]
    fn a_pod_that_no_deployment_made_has_none() {
        assert_eq!(Generation::of(&ObjectMeta::default()), None);
        let mut of_a_stateful_set = pod("web", "5d8", 1);
        of_a_stateful_set.owner_references.as_mut().unwrap()[0].kind = "StatefulSet".into();
        assert_eq!(Generation::of(&of_a_stateful_set), None);
    }
}
