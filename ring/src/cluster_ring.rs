//! The `ClusterRing` resource: which resources are shared among the shards of a ring.

#![allow(unreachable_pub, reason = "the derive copies each struct into a private module of its own")]

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{
    CustomResource, KubeSchema,
    core::{Selector, SelectorExt as _},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::placed_by::PlacedBy;

/// A ring of controller instances that share the work on the named resources, each object with one of them at a time.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "sharding.timebertt.dev",
    version = "v1alpha1",
    kind = "ClusterRing",
    plural = "clusterrings",
    shortname = "ring",
    category = "ringside",
    status = "ClusterRingStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A ring of controller instances that share the work on the named resources, each object with one of them at a time.",
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message("a ring's name is also the value of a label, so it may have 63 characters at most"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Shards", type_ = "integer", json_path = ".status.shards"),
    printcolumn(name = "Objects", type_ = "integer", json_path = ".status.objects.assigned"),
    printcolumn(name = "Unassigned", type_ = "integer", json_path = ".status.objects.unassigned"),
    printcolumn(name = "Draining", type_ = "integer", json_path = ".status.objects.draining"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableShards", priority = 1),
    printcolumn(name = "Lone", type_ = "integer", json_path = ".status.objects.lone", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new("has(self.resources) && self.resources.size() > 0")
    .message("a ring without resources shares nothing: name at least one resource in spec.resources"))]
#[serde(rename_all = "camelCase")]
pub struct ClusterRingSpec {
    /// The resources whose objects are distributed among the shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.all(one, self.exists_one(other, other.group == one.group && other.resource == one.resource))")
        .message("a resource is in spec.resources twice: name it once, with all of its controlledResources"))]
    pub resources: Vec<RingResource>,
    /// The namespaces whose objects are distributed; all but `kube-system`, `sharding-system` and `ringside-system` when it is
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Who keeps a shard from writing to objects that are not its own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fence: Fence,
    /// How many seconds a shard may take to release an object; 60 when it is absent. An object that is held longer is
    /// reported, and taken from its shard where the fence is the API server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::drain_deadline")]
    pub drain_deadline_seconds: Option<u16>,
    /// Whether objects stay where they are. No shard is asked to release one, unless its controller does not work or its Pod ends.
    /// Moves that have begun end. New objects are assigned, and those of shards that are gone are taken over.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
    /// The namespaces of the shards: a Lease in another one makes no shard. When it is absent, every namespace where the sharder
    /// may update Leases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::namespaces")]
    pub shard_namespaces: Vec<String>,
    /// Groups of shards that have some of the objects for themselves. An object is of the first group whose selector matches its
    /// labels; all others go to the shards that are of no group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.all(one, self.exists_one(other, other.name == one.name))")
        .message("a group is in spec.groups twice: give each a name of its own"))]
    pub groups: Vec<ShardGroup>,
}

/// A group of shards that has some of the ring's objects for itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShardGroup {
    /// The name, which its shards' Leases have in the annotation `ringside.dev/group`.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The labels of the objects that go to these shards, and to no others.
    #[schemars(schema_with = "crate::schema::required_label_selector")]
    pub selector: LabelSelector,
    /// How many shards the group is to have at least: fewer are told in the ring's status. 1 when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::group_shards")]
    pub shards: Option<u16>,
}

/// Who keeps a shard from writing to objects that are not its own (DESIGN, "The fence has two layers").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Fence {
    /// Each shard itself: a `ringside-proxy` refuses late writes. It needs nothing of the cluster, but can't refuse what it
    /// let through before it was stopped, or what goes past it.
    #[default]
    Proxy,
    /// The API server as well, by a ValidatingAdmissionPolicy for the ring. Needs Kubernetes 1.30, and shards whose
    /// service-account tokens are bound to their pods.
    #[serde(rename = "APIServer")]
    ApiServer,
}

/// A resource of a ring, with the resources that its objects control.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("!has(self.controlledResources) || !self.controlledResources.exists(one, one.group == self.group && one.resource == self.resource)")
        .message("a resource is in its own controlledResources: take it out there, as its objects are placed each by itself"),
    validation = Rule::new("!has(self.controlledResources) || self.controlledResources.all(one, self.controlledResources.exists_one(other, other == one))")
        .message("a resource is in controlledResources twice: name it once"),
    validation = Rule::new("([self.resource + '.' + self.group] + (has(self.controlledResources) ? self.controlledResources.map(one, one.resource + '.' + one.group) : [])).all(name, !name.endsWith('.admissionregistration.k8s.io') && !(name in ['leases.coordination.k8s.io', 'clusterrings.sharding.timebertt.dev', 'controllerrings.sharding.timebertt.dev']))")
        .message("Leases, rings and resources of admissionregistration.k8s.io are what sharding itself works with, and can't be shared among shards: take them out of the ring")
)]
#[serde(rename_all = "camelCase")]
pub struct RingResource {
    /// The API group of the resource, empty for the core group.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub group: String,
    /// The plural name of the resource, as in `kubectl api-resources`.
    #[schemars(length(max = 63))]
    pub resource: String,
    /// Resources whose objects belong to the shard of their owner: the object that controls them, or else their only owner of a kind of
    /// the ring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub controlled_resources: Vec<GroupResource>,
    /// Which objects of the resource a shard may get by name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reads_by_name: ReadsByName,
    /// By what objects of the resource are placed: `Namespace`, or `{label: KEY}`, or `{annotation: KEY}`. Objects with one value
    /// are placed together, and those without it by their names. Each by its name when it is absent.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(schema_with = "crate::schema::placed_by")]
    pub key: PlacedBy,
}

/// Which objects of a resource a shard may get by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ReadsByName {
    /// Those that are its own or have no owner: another shard's looks deleted, as in lists and watches.
    #[default]
    Own,
    /// All: for controllers that follow references between objects of the resource.
    All,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl RingResource {
    /// The resource itself, without what it controls.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }
}

/// A resource in an API group, whatever its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub struct GroupResource {
    /// The API group, empty for the core group.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub group: String,
    /// The plural name of the resource.
    #[schemars(length(max = 63))]
    pub resource: String,
}

impl std::fmt::Display for GroupResource {
    /// As `kubectl` names it: `websites.example.com`, `configmaps`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// What the sharder observed of a ring.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRingStatus {
    /// The generation of the spec that this status is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// The namespaces in which Leases make shards, as far as the ring has had shards there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_namespaces: Option<Vec<String>>,
    /// How many shards have a Lease in the ring.
    #[serde(default)]
    pub shards: i32,
    /// How many of them take part in partitioning.
    #[serde(default)]
    pub available_shards: i32,
    /// How its objects are distributed; absent before they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectCounts>,
    /// `Ready` says whether the ring was set up as its spec asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The resources whose objects may have labels of the ring: those of the spec, and those that it names no more until
    /// their labels are off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<LabelledResource>,
    /// The resources of which each shard is shown its own objects alone, as these are labelled. Absent: all of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filtered: Option<FilteredResources>,
}

/// The resources of which each shard is shown its own objects alone, in one generation of the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilteredResources {
    /// The generation of the spec that this is about. Where the status is about another one, this does not count.
    #[serde(default)]
    pub observed_generation: i64,
    /// The resources.
    #[serde(default)]
    pub resources: Vec<GroupResource>,
}

/// A resource whose objects may have labels of a ring, with those that follow them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelledResource {
    /// The API group of the resource, empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The resources that follow it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controlled_resources: Vec<GroupResource>,
}

impl LabelledResource {
    /// The resource itself, without what it controls.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }
}

impl From<&RingResource> for LabelledResource {
    fn from(resource: &RingResource) -> Self {
        let RingResource { group, resource, controlled_resources, .. } = resource.clone();
        Self { group, resource, controlled_resources }
    }
}

/// How the objects of a ring's resources are distributed; what they control follows them, and is not counted.
///
/// What is absent is written as null: a merge patch takes it off then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectCounts {
    /// Objects that an available shard has, those that it was asked to release among them.
    #[serde(default)]
    pub assigned: i64,
    /// Objects that no available shard has.
    #[serde(default)]
    pub unassigned: i64,
    /// Since when the first of those has been known to have none.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::time")]
    pub unassigned_since: Option<Time>,
    /// Objects whose shard was asked to release them, and has not.
    #[serde(default)]
    pub draining: i64,
    /// Since when the first of those has been drained.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::time")]
    pub draining_since: Option<Time>,
    /// Objects of controlled resources that no object of the ring controls, in its namespaces: no shard sees them.
    #[serde(default)]
    pub lone: Option<i64>,
    /// How many times as many objects the shard with the most has as a shard has on average.
    #[serde(default)]
    pub max_to_mean: Option<String>,
    /// How many objects each available shard has; of very many shards those with the most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<ShardObjects>,
    /// When all objects were counted last: what others created or deleted since then is not in `assigned`, `maxToMean` and
    /// `shards`.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::time")]
    pub counted_at: Option<Time>,
}

/// How many shards a status names with their objects: those with the most.
pub const NAMED_SHARDS: usize = 100;

/// How many objects a shard has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct ShardObjects {
    /// The shard.
    pub name: String,
    /// Its objects.
    pub objects: i64,
}

/// The type of the condition that says whether the ring was set up.
pub const CONDITION_READY: &str = "Ready";
/// The reason in that condition when it was.
pub const REASON_SUCCEEDED: &str = "ReconciliationSucceeded";
/// The type of the condition that says whether each shard name has one instance. A sharder that writes it admits instances:
/// a proxy works only where its Lease names it as the admitted one.
pub const CONDITION_ADMITTED: &str = "ShardsAdmitted";
/// The sharder's namespace, unless it is told another.
pub const SHARDER_NAMESPACE: &str = "ringside-system";
/// The namespaces that a ring without a selector of its own leaves alone: those of the contract ("Assignment"), and ours.
pub const EXCLUDED_NAMESPACES: [&str; 3] = ["kube-system", "sharding-system", SHARDER_NAMESPACE];

/// How long a shard may take to release an object where the ring does not say.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(60);

impl ClusterRingStatus {
    /// Whether the ring's sharder says which instance of a shard name may work.
    pub fn admits_instances(&self) -> bool {
        self.conditions.iter().any(|condition| condition.type_ == CONDITION_ADMITTED)
    }

    /// The resources of which each shard is shown its own objects alone. None where the ring's sharder does not say: then it is so
    /// with all.
    ///
    /// An older sharder leaves the field as it is when it writes about a newer generation.
    pub fn filtered(&self) -> Option<&[GroupResource]> {
        let filtered = self.filtered.as_ref()?;
        (filtered.observed_generation == self.observed_generation).then_some(&filtered.resources)
    }
}

impl ClusterRingSpec {
    /// How long a shard may take to release an object.
    pub fn drain_deadline(&self) -> Duration {
        self.drain_deadline_seconds.map_or(DRAIN_DEADLINE, |seconds| Duration::from_secs(seconds.into()))
    }

    /// The group of an object with these labels; none for one that is of no group.
    pub fn group_of(&self, labels: &std::collections::BTreeMap<String, String>) -> Option<&str> {
        let matches = |group: &&ShardGroup| {
            Selector::try_from(group.selector.clone()).is_ok_and(|selector| selector.matches(labels))
        };
        self.groups.iter().find(matches).map(|group| group.name.as_str())
    }

    /// By what objects of this main resource are placed.
    pub fn placed_by(&self, main: &GroupResource) -> &PlacedBy {
        let entry = self.resources.iter().find(|entry| entry.group_resource() == *main);
        entry.map_or(&PlacedBy::Name, |entry| &entry.key)
    }

    /// Every resource of the ring, the controlled ones included, each once.
    pub fn all_resources(&self) -> std::collections::BTreeSet<GroupResource> {
        let controlled = self.resources.iter().flat_map(|resource| resource.controlled_resources.iter().cloned());
        self.resources.iter().map(RingResource::group_resource).chain(controlled).collect()
    }

    /// The resources whose objects follow those of `main`: those that it controls, those that these control, and so on,
    /// nearest first. A chain can be said link by link, each under the one before, or all of it under `main`.
    pub fn family(&self, main: &GroupResource) -> Vec<GroupResource> {
        let mut family: Vec<GroupResource> = Vec::new();
        let mut next = 0;
        let mut above = Some(main.clone());
        while let Some(link) = above {
            let entries = self.resources.iter().filter(|entry| entry.group_resource() == link);
            for child in entries.flat_map(|entry| &entry.controlled_resources) {
                if child != main && !family.contains(child) {
                    family.push(child.clone());
                }
            }
            above = family.get(next).cloned();
            next += 1;
        }
        family
    }

    /// The main resources, and what follows each ([`Self::family`]).
    pub fn families(&self) -> std::collections::BTreeMap<GroupResource, Vec<GroupResource>> {
        let named = self.resources.iter().map(RingResource::group_resource);
        named.filter(|name| self.is_main(name)).map(|main| (main.clone(), self.family(&main))).collect()
    }

    /// Whether objects of the resource are placed by themselves. Of one that another controls as well these are the objects that
    /// nothing of the ring controls. One that another controls and that controls others is a link of a chain.
    pub fn is_main(&self, resource: &GroupResource) -> bool {
        let entries = || self.resources.iter().filter(|entry| entry.group_resource() == *resource);
        let controls_none = || entries().all(|entry| entry.controlled_resources.is_empty());
        entries().next().is_some() && (!self.is_controlled(resource) || controls_none())
    }

    /// Whether another resource's objects, or its own, control objects of this one.
    pub fn is_controlled(&self, resource: &GroupResource) -> bool {
        self.resources.iter().any(|main| main.controlled_resources.contains(resource))
    }

    /// Whether a released object of this main resource stays without labels until the sharder's controller assigns it.
    /// What it controls is moved first. And the API server's fence could not tell another client that assigns it from a
    /// shard (DESIGN, "The webhook must not undo the handover").
    pub fn waits_when_let_go(&self, resource: &GroupResource) -> bool {
        let controls =
            |main: &RingResource| main.group_resource() == *resource && !main.controlled_resources.is_empty();
        self.asks_for_fence() || self.resources.iter().any(controls)
    }

    /// Whether the API server is to fence its shards.
    pub fn asks_for_fence(&self) -> bool {
        self.fence == Fence::ApiServer
    }

    /// The namespaces whose objects are distributed, the default of the contract included.
    pub fn effective_namespace_selector(&self) -> LabelSelector {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
        self.namespace_selector.clone().unwrap_or_else(|| LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                // Set by the API server on every namespace (Kubernetes, "Automatic labelling").
                key: "kubernetes.io/metadata.name".to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(EXCLUDED_NAMESPACES.map(str::to_owned).to_vec()),
            }]),
            match_labels: None,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_proxy_is_the_fence_unless_the_ring_asks_for_more() {
        let said = |spec: serde_json::Value| serde_json::from_value::<ClusterRingSpec>(spec).unwrap().fence;
        assert_eq!(said(serde_json::json!({"resources": []})), Fence::Proxy);
        assert_eq!(said(serde_json::json!({"resources": [], "fence": "APIServer"})), Fence::ApiServer);
    }

    #[test]
    fn all_resources_are_named_once() {
        let child = GroupResource { group: String::new(), resource: "secrets".into() };
        let main = |resource: &str| RingResource {
            resource: resource.into(),
            controlled_resources: vec![child.clone()],
            ..RingResource::default()
        };
        let spec = ClusterRingSpec { resources: vec![main("configmaps"), main("secrets")], ..Default::default() };
        let names: Vec<_> = spec.all_resources().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["configmaps", "secrets"]);
        assert!(spec.is_controlled(&child) && !spec.is_controlled(&main("configmaps").group_resource()));
    }

    #[test]
    fn a_chain_is_one_family_however_it_is_said() {
        let of = |resource: &str| GroupResource { group: String::new(), resource: resource.into() };
        let entry = |resource: &str, controlled: &[&str]| RingResource {
            resource: resource.into(),
            controlled_resources: controlled.iter().map(|child| of(child)).collect(),
            ..RingResource::default()
        };
        let family = |resources: Vec<RingResource>| {
            let family = ClusterRingSpec { resources, ..Default::default() }.family(&of("a"));
            family.into_iter().map(|child| child.resource).collect::<Vec<_>>()
        };
        assert_eq!(family(vec![entry("a", &["b", "c"])]), ["b", "c"]);
        assert_eq!(family(vec![entry("a", &["b"]), entry("b", &["c"])]), ["b", "c"]);
        assert_eq!(
            family(vec![entry("b", &["c", "a", "b"]), entry("a", &["d", "b"]), entry("x", &["y"])]),
            ["d", "b", "c"]
        );
        assert_eq!(family(vec![entry("x", &["y"])]), Vec::<String>::new());
    }
}
