//! Which resources a controller works with, by its rights.

use std::collections::BTreeSet;

use ringside_ring::cluster_ring::GroupResource;

use super::subject::{Population, Subject};

/// What is never a controller's root or child: sharding works with it itself, or Kubernetes keeps it by itself.
const NEVER: [(&str, &str); 9] = [
    ("coordination.k8s.io", "leases"),
    ("sharding.timebertt.dev", "clusterrings"),
    ("sharding.timebertt.dev", "controllerrings"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("", "endpoints"),
    ("discovery.k8s.io", "endpointslices"),
    ("", "nodes"),
    ("", "namespaces"),
];

/// Whether a group is none of Kubernetes itself.
#[must_use]
pub fn is_custom(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

/// Returns what the rights say about a resource; `None` where the controller does not work with its objects.
#[must_use]
pub fn population(subject: &Subject, resource: &GroupResource, kind: &str) -> Option<Population> {
    let GroupResource { group, resource: plural } = resource;
    let is_never = NEVER.contains(&(group, plural)) || group == "admissionregistration.k8s.io";
    if is_never || ["authentication.k8s.io", "authorization.k8s.io", "metrics.k8s.io"].contains(&group.as_str()) {
        return None;
    }
    let may = |resource: &str, verbs: &[&str]| !subject.granted(group, resource, verbs).is_empty();
    let (created, read) = (may(plural, &["create"]), may(plural, &["get", "list", "watch"]));
    let writes = ["update", "patch"];
    let part = |part: &str| may(&format!("{plural}/{part}"), &writes);
    let works = part("status") || part("finalizers") || (may(plural, &writes) && !created);
    let own = is_custom(group) && may(plural, &["list", "watch"]) && works;
    (created || read).then(|| Population {
        resource: resource.clone(),
        kind: kind.to_owned(),
        own,
        created,
        read,
        ..Population::default()
    })
}

/// The groups that the rights name; all that there are where they name all.
#[must_use]
pub fn groups<'a>(subject: &'a Subject, all: &'a [String]) -> BTreeSet<&'a str> {
    let rules = subject.grants.iter().flatten().map(|grant| &grant.rule);
    let named: BTreeSet<&str> = rules.flat_map(|rule| rule.api_groups.iter().flatten()).map(String::as_str).collect();
    if named.contains("*") { all.iter().map(String::as_str).collect() } else { named }
}

/// The populations that manifests show, without any count: of definitions, and of resources that the rights name.
#[must_use]
pub fn of_manifests(subject: &Subject) -> Vec<Population> {
    let mut known: Vec<(GroupResource, String)> = Vec::new();
    for definition in &subject.definitions {
        let spec = &definition.spec;
        let resource = GroupResource { group: spec.group.clone(), resource: spec.names.plural.clone() };
        known.push((resource, spec.names.kind.clone()));
    }
    for rule in subject.grants.iter().flatten().map(|grant| &grant.rule) {
        for group in rule.api_groups.iter().flatten() {
            let plurals = rule.resources.iter().flatten().filter(|plural| !plural.contains(['/', '*']));
            for plural in plurals.filter(|_| group != "*") {
                let resource = GroupResource { group: group.clone(), resource: plural.clone() };
                if !known.iter().any(|(one, _)| *one == resource) {
                    known.push((resource, plural.clone()));
                }
            }
        }
    }
    known.iter().filter_map(|(resource, kind)| population(subject, resource, kind)).collect()
}
