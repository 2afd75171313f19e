//! The permissions of a ring: RBAC objects that name its objects, its resources and its shards' namespaces, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    str::FromStr,
};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    RingName,
    cluster_ring::{ClusterRingSpec, GroupResource, RingResource},
};

/// The policies that the sharder keeps for each ring. The API server asks no policy about these, so they are limited by name;
/// webhook configurations are the guard's, in the sharder's own manifest.
const POLICIES: [&str; 4] = [
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];
/// The API server puts Events about objects without namespace there.
const EVENTS_NAMESPACE: &str = "default";
const SHARDER: &str = "ringside-sharder";
const RBAC: &str = "rbac.authorization.k8s.io";

/// A namespace of shards, with the ServiceAccount of their Pods where they use the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    /// The namespace of the Pods and of their Leases.
    pub namespace: String,
    /// The ServiceAccount of the Pods. None: the shards have no proxy, and bring their own permissions.
    pub account: Option<String>,
}

impl FromStr for Shards {
    type Err = Infallible;

    /// Reads `NAMESPACE/SERVICE-ACCOUNT` or `NAMESPACE`.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (namespace, account) = text.split_once('/').map_or((text, None), |(place, account)| (place, Some(account)));
        Ok(Self { namespace: namespace.to_owned(), account: account.map(str::to_owned) })
    }
}

/// Returns what the sharder and the proxies of a ring need beyond the sharder's own manifest.
pub fn rights(ring: &RingName, spec: &ClusterRingSpec, sharder_namespace: &str, shards: &[Shards]) -> Vec<Value> {
    let sharder_role = format!("ringside-ring-{}", in_names(ring));
    let sharder = json!([account(sharder_namespace, SHARDER)]);
    let mut rules = vec![rule(
        "admissionregistration.k8s.io",
        &POLICIES,
        &["get", "create", "patch", "update", "delete"],
        Some(&ring.made_for()),
    )];
    rules.extend(by_group(spec.all_resources(), &["get", "list", "watch", "patch"]));
    // On objects that are refused, wherever they are.
    rules.push(rule("events.k8s.io", &["events"], &["create", "patch"], None));
    let mut role = role("ClusterRole", &sharder_role, None, &rules);
    role["metadata"]["labels"] = json!({"ringside.dev/aggregate-to-sharder": "true"});
    let mut objects = vec![role];
    let told = shards.iter().map(|shards| &shards.namespace);
    let namespaces: BTreeSet<&str> = told.chain(&spec.shard_namespaces).map(String::as_str).collect();
    for namespace in &namespaces {
        let rules = [
            rule("coordination.k8s.io", &["leases"], &["create", "update", "patch", "delete"], None),
            // Listed where the sharder adds the proxy to Pods: those without it have no Lease.
            rule("", &["pods"], &["get", "list"], None),
            rule("events.k8s.io", &["events"], &["create", "patch"], None),
        ];
        objects.extend(bound("Role", &sharder_role, Some(namespace), &rules, &sharder));
    }
    let proxies: Vec<(&str, Value)> = shards
        .iter()
        .filter_map(|one| Some((one.namespace.as_str(), account(&one.namespace, one.account.as_ref()?))))
        .collect();
    if !proxies.is_empty() {
        objects.extend(of_proxies(ring, spec, &proxies));
    }
    objects
}

/// What the proxies need: to follow their ring, to look at its objects, to acknowledge, and to keep their Leases.
fn of_proxies(ring: &RingName, spec: &ClusterRingSpec, proxies: &[(&str, Value)]) -> Vec<Value> {
    let name = format!("ringside-proxy-{}", in_names(ring));
    let of_all: Value = proxies.iter().map(|(_, account)| account.clone()).collect();
    let roots: BTreeSet<GroupResource> = spec.resources.iter().map(RingResource::group_resource).collect();
    let children = spec.all_resources().difference(&roots).cloned().collect();
    let mut rules = vec![rule(
        "sharding.timebertt.dev",
        &[ring.kind().names().plural],
        &["get", "list", "watch"],
        Some(ring.name()),
    )];
    rules.extend(by_group(roots, &["list", "watch", "patch"]));
    rules.extend(by_group(children, &["list", "patch"]));
    let mut objects = bound("ClusterRole", &name, None, &rules, &of_all).to_vec();
    for namespace in proxies.iter().map(|(namespace, _)| *namespace).collect::<BTreeSet<_>>() {
        let here: Value =
            proxies.iter().filter(|(place, _)| *place == namespace).map(|(_, account)| account.clone()).collect();
        let rules = [rule("coordination.k8s.io", &["leases"], &["get", "create", "update"], None)];
        objects.extend(bound("Role", &name, Some(namespace), &rules, &here));
    }
    let events = [rule("events.k8s.io", &["events"], &["create", "patch"], None)];
    objects.extend(bound("Role", &format!("{name}-events"), Some(EVENTS_NAMESPACE), &events, &of_all));
    objects
}

/// The ring in the names of roles, which may have a `:` where those of rings may not.
fn in_names(ring: &RingName) -> String {
    ring.to_string().replace('/', ":")
}

fn by_group(resources: BTreeSet<GroupResource>, verbs: &[&str]) -> Vec<Value> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for GroupResource { group, resource } in resources {
        groups.entry(group).or_default().push(resource);
    }
    groups.iter().map(|(group, names)| rule(group, names, verbs, None)).collect()
}

fn rule<R: Serialize>(group: &str, resources: &[R], verbs: &[&str], name: Option<&str>) -> Value {
    let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    if let Some(name) = name {
        rule["resourceNames"] = json!([name]);
    }
    rule
}

fn account(namespace: &str, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
}

fn object(kind: &str, name: &str, namespace: Option<&str>) -> Value {
    let mut object = json!({"apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": {"name": name}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn role(kind: &str, name: &str, namespace: Option<&str>, rules: &[Value]) -> Value {
    let mut role = object(kind, name, namespace);
    role["rules"] = json!(rules);
    role
}

/// A role and its binding, which has the same name.
fn bound(kind: &str, name: &str, namespace: Option<&str>, rules: &[Value], subjects: &Value) -> [Value; 2] {
    let mut binding = object(&format!("{kind}Binding"), name, namespace);
    binding["roleRef"] = json!({"apiGroup": RBAC, "kind": kind, "name": name});
    binding["subjects"] = subjects.clone();
    [role(kind, name, namespace, rules), binding]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn spec() -> ClusterRingSpec {
        serde_json::from_value(json!({"resources": [
            {"group": "web.example.com", "resource": "websites", "controlledResources": [{"resource": "configmaps"}]},
            {"group": "", "resource": "configmaps", "controlledResources": [{"resource": "secrets"}]},
        ]}))
        .unwrap()
    }

    fn of(shards: &[&str]) -> Vec<Value> {
        let shards: Vec<Shards> = shards.iter().map(|text| text.parse().unwrap()).collect();
        rights(&"example".parse().unwrap(), &spec(), "ringside-system", &shards)
    }

    /// Every rule, with the namespace where it holds.
    fn rules(objects: &[Value]) -> Vec<(Option<&str>, &Value)> {
        let roles = objects.iter().filter_map(|object| Some((object, object.get("rules")?.as_array()?)));
        roles.flat_map(|(of, rules)| rules.iter().map(|rule| (of["metadata"]["namespace"].as_str(), rule))).collect()
    }

    #[test]
    fn no_write_outside_the_rings_resources_is_unnamed_cluster_wide() {
        for (namespace, rule) in rules(&of(&["default/controller", "other"])) {
            let group = rule["apiGroups"][0].as_str().unwrap();
            // Events say something of the ring's objects.
            let is_of_ring = ["", "web.example.com", "events.k8s.io"].contains(&group);
            assert!(namespace.is_some() || is_of_ring || rule["resourceNames"].is_array(), "{rule}");
            let text = rule.to_string();
            assert!(!text.contains("\"*\"") && !text.contains("deletecollection"), "{rule}");
        }
    }

    #[test]
    fn managed_objects_are_those_of_this_ring() {
        let objects = of(&["default"]);
        let managed =
            rules(&objects).into_iter().find(|(_, rule)| rule["apiGroups"][0] == "admissionregistration.k8s.io");
        assert_eq!(managed.unwrap().1["resourceNames"], json!(["sharding-clusterring-50d858e0-example"]));
    }

    #[test]
    fn roles_of_the_newer_kind_are_its_own() {
        let ring: RingName = "controllerring/example".parse().unwrap();
        let objects = rights(&ring, &spec(), "ringside-system", &["default/controller".parse().unwrap()]);
        let proxy =
            objects.iter().find(|one| one["metadata"]["name"] == "ringside-proxy-controllerring:example").unwrap();
        let read = rule("sharding.timebertt.dev", &["controllerrings"], &["get", "list", "watch"], Some("example"));
        assert_eq!(proxy["rules"][0], read);
        let sharder = objects.iter().find(|one| one["kind"] == "ClusterRole").unwrap();
        assert_eq!(sharder["metadata"]["name"], "ringside-ring-controllerring:example");
        assert_eq!(sharder["rules"][0]["resourceNames"], json!(["controllerring-example"]));
    }

    #[test]
    fn proxies_watch_roots_and_only_list_children() {
        let objects = of(&["default/controller"]);
        let proxy = objects.iter().find(|one| one["metadata"]["name"] == "ringside-proxy-example").unwrap();
        assert_eq!(
            proxy["rules"].as_array().unwrap()[1..],
            [
                rule("", &["configmaps"], &["list", "watch", "patch"], None),
                rule("web.example.com", &["websites"], &["list", "watch", "patch"], None),
                rule("", &["secrets"], &["list", "patch"], None),
            ]
        );
    }

    #[test]
    fn sharder_may_write_leases_in_every_namespace_of_the_spec() {
        let spec = ClusterRingSpec { shard_namespaces: vec!["a".to_owned(), "b".to_owned()], ..spec() };
        let objects = rights(&"example".parse().unwrap(), &spec, "ringside-system", &["a".parse().unwrap()]);
        let roles = objects.iter().filter(|one| one["kind"] == "Role");
        let namespaces: Vec<_> = roles.map(|role| role["metadata"]["namespace"].as_str().unwrap()).collect();
        assert_eq!(namespaces, ["a", "b"]);
    }

    #[test]
    fn shards_without_proxy_get_nothing_and_namespaces_once() {
        let kinds =
            |objects: Vec<Value>| objects.iter().map(|one| one["kind"].to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(kinds(of(&["a", "a"])), r#""ClusterRole" "Role" "RoleBinding""#);
        let two = of(&["a/x", "a/y"]);
        let bindings: Vec<_> = two.iter().filter(|one| one["kind"] == "RoleBinding").collect();
        assert_eq!(bindings.iter().map(|one| one["subjects"].as_array().unwrap().len()).collect::<Vec<_>>(), [1, 2, 2]);
    }
}
