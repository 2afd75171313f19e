//! A sharder, and rings of shards that are nothing but Leases: what the cases share.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::{
    api::{core::v1::Namespace, events::v1::Event},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use ringside_e2e::{
    eventually::eventually,
    manifests,
    plain_shard::{Acknowledger, PlainShard, join_all},
    ring_status::{condition, until_available, until_status},
    system::{NAMESPACE, Settings, System},
};
use ringside_ring::{
    HashRing, PartitionKey, RingKind, RingLabels, RingName, ShardName, cluster_ring::GroupResource,
    placement::DEFAULT_TOKENS_PER_SHARD, ring::Ring as Stored,
};
use serde_json::{Value, json};

/// Enough for a machine that runs other tests beside.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Of the Leases of shards that are never late.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// The group of the resources that these tests define.
pub(crate) const GROUP: &str = "resources.example.com";

pub(crate) struct Fixture {
    system: System,
}

/// Who an object belongs to, as its labels say.
pub(crate) type Owner = (Option<String>, Option<String>);

impl Fixture {
    /// With the controllers of Deployments and StatefulSets, or without.
    pub(crate) async fn start(controller_manager: bool) -> Self {
        let settings = Settings { controller_manager, controller_rings: true, ..Settings::default() };
        let mut system = System::start(settings).await.unwrap();
        system.start_sharders(1).await.unwrap();
        Self { system }
    }

    pub(crate) fn client(&self) -> Client {
        self.system.control_plane().client()
    }

    /// What the sharder has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.system.sharders().next().unwrap().process().log()).unwrap()
    }

    /// Creates a ring of the older kind; `resources` are those of its spec.
    pub(crate) async fn ring(&self, name: &str, resources: Value, namespaces: Value) -> Ring {
        self.ring_of(RingKind::ClusterRing, name, resources, namespaces).await
    }

    /// The same of any kind.
    pub(crate) async fn ring_of(&self, kind: RingKind, name: &str, resources: Value, namespaces: Value) -> Ring {
        let (types, spec) =
            (ApiResource::erase::<Stored>(&kind), json!({"resources": resources, "namespaceSelector": namespaces}));
        let name = RingName::new(kind, name).unwrap();
        let ring = DynamicObject::new(name.name(), &types).data(json!({"spec": spec}));
        let stored: Stored = serde_json::from_value(json!(ring)).unwrap();
        self.system.allow(&stored, &[NAMESPACE]).await.unwrap();
        Api::all_with(self.client(), &types).create(&PostParams::default(), &ring).await.unwrap();
        Ring { labels: RingLabels::of(&name), name, client: self.client() }
    }

    /// A ring that is ready, with so many shards, and with a namespace of its name.
    pub(crate) async fn ready(&self, name: &str, resources: Value, shards: usize) -> (Ring, Vec<PlainShard>) {
        self.namespace(name, name).await;
        let ring = self.ring(name, resources, team(name)).await;
        let shards = ring.join(shards).await;
        ring.until_ready_is("True", "").await;
        (ring, shards)
    }

    /// Creates a namespace with this value of the label `team`.
    pub(crate) async fn namespace(&self, name: &str, team: &str) {
        let namespace = json!({"metadata": {"name": name, "labels": {"team": team}}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        Api::<Namespace>::all(self.client()).create(&PostParams::default(), &namespace).await.unwrap();
    }

    pub(crate) async fn relabel(&self, name: &str, team: &str) {
        let labels = Patch::Merge(json!({"metadata": {"labels": {"team": team}}}));
        Api::<Namespace>::all(self.client()).patch(name, &PatchParams::default(), &labels).await.unwrap();
    }

    /// Defines a resource; waits until it is served.
    pub(crate) async fn define(&self, definition: &CustomResourceDefinition) {
        manifests::define(&self.client(), definition).await.unwrap();
    }

    pub(crate) async fn undefine(&self, plural: &str) {
        let api: Api<CustomResourceDefinition> = Api::all(self.client());
        let name = format!("{plural}.{GROUP}");
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        eventually("the definition is gone", DEADLINE, || async {
            match api.get_opt(&name).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
    }
}

/// Which of the shards a ConfigMap belongs to.
pub(crate) fn home(shards: &[PlainShard], namespace: &str, name: &str) -> String {
    home_of(shards, &config_maps(), namespace, name)
}

/// The same of any resource.
pub(crate) fn home_of(shards: &[PlainShard], of: &ApiResource, namespace: &str, name: &str) -> String {
    let placement = HashRing::new(shards.iter().map(|shard| shard.name().clone()), DEFAULT_TOKENS_PER_SHARD);
    placement.owner(&PartitionKey::of(&of.group, &of.kind, namespace, name)).unwrap().to_string()
}

/// What a ring may distribute all of.
pub(crate) fn team(name: &str) -> Value {
    json!({"matchLabels": {"team": name}})
}

/// A definition; each version is its name and whether it is served, the first of them is stored.
pub(crate) fn definition(plural: &str, kind: &str, scope: &str, versions: &[(&str, bool)]) -> CustomResourceDefinition {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let versions: Vec<_> = versions
        .iter()
        .enumerate()
        .map(|(i, (name, served))| json!({"name": name, "served": served, "storage": i == 0, "schema": schema}))
        .collect();
    let definition = json!({
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {"group": GROUP, "scope": scope, "versions": versions,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")}},
    });
    serde_json::from_value(definition).unwrap()
}

pub(crate) fn custom(version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version, kind), plural)
}

pub(crate) fn config_maps() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "ConfigMap"), "configmaps")
}

pub(crate) fn secrets() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Secret"), "secrets")
}

/// What names an object as its child's owner.
pub(crate) fn reference(owner: &DynamicObject) -> Value {
    let types = owner.types.clone().unwrap();
    json!({"apiVersion": types.api_version, "kind": types.kind, "name": owner.name_any(), "uid": owner.uid(),
        "controller": true})
}

/// An entry of a ring's spec.
pub(crate) fn entry(resource: &ApiResource, controlled: &[&ApiResource]) -> Value {
    let name = |of: &ApiResource| GroupResource { group: of.group.clone(), resource: of.plural.clone() };
    let mut entry = json!(name(resource));
    entry["controlledResources"] = controlled.iter().map(|of| json!(name(of))).collect();
    entry
}

pub(crate) struct Ring {
    pub(crate) name: RingName,
    pub(crate) labels: RingLabels,
    client: Client,
}

impl Ring {
    /// With what the names of its shards begin.
    fn shard_prefix(&self) -> String {
        format!("{}-", self.name.to_string().replace('/', "-"))
    }

    fn shard_name(&self, number: usize) -> ShardName {
        format!("{}{number}", self.shard_prefix()).parse().unwrap()
    }

    fn api(&self) -> Api<Stored> {
        Api::all_with(self.client.clone(), &self.name.kind())
    }

    /// Members of it, named after it.
    pub(crate) async fn join(&self, count: usize) -> Vec<PlainShard> {
        let names = (0..count).map(|i| self.shard_name(i));
        let shards = join_all(&self.client, NAMESPACE, &self.name, names, LEASE).await.unwrap();
        self.until_available(count).await;
        shards
    }

    /// One more.
    pub(crate) async fn join_one(&self, shards: &mut Vec<PlainShard>) {
        let name = self.shard_name(shards.len());
        shards.push(PlainShard::join(&self.client, NAMESPACE, &self.name, &name, LEASE).await.unwrap());
        self.until_available(shards.len()).await;
    }

    pub(crate) async fn until_available(&self, count: usize) {
        until_available(&self.client, &self.name, count, DEADLINE).await.unwrap();
    }

    pub(crate) async fn get(&self) -> Result<Stored, String> {
        self.api().get(self.name.name()).await.map_err(|error| error.to_string())
    }

    /// Waits until the condition `Ready` has this status and a message with `part` in it.
    pub(crate) async fn until_ready_is(&self, status: &str, part: &str) -> Condition {
        let what = format!("ring {} is ready: {status}, {part}", self.name);
        let told = until_status(&self.client, &self.name, &what, DEADLINE, |shown| {
            let ready = condition(shown, "Ready")?.clone();
            let wanted = ready.status == status && ready.message.contains(part);
            if wanted { Ok(ready) } else { Err(format!("{ready:?}")) }
        });
        told.await.unwrap()
    }

    /// Waits until an Event of this reason on the ring names one of these shards.
    pub(crate) async fn until_told(&self, reason: &str, shards: &[String]) {
        let events: Api<Event> = Api::all(self.client.clone());
        eventually(&format!("{reason} of one of {shards:?}"), DEADLINE, || async {
            let all = events.list(&Default::default()).await.map_err(|error| error.to_string())?;
            let about = |event: &&Event| {
                let of = event.regarding.as_ref().and_then(|of| of.name.as_deref());
                of == Some(self.name.name()) && event.reason.as_deref() == Some(reason)
            };
            let notes: Vec<_> = all.iter().filter(about).filter_map(|event| event.note.as_deref()).collect();
            let told = shards.iter().any(|shard| notes.iter().any(|note| note.contains(&format!("'{shard}'"))));
            if told { Ok(()) } else { Err(format!("{notes:?}")) }
        })
        .await
        .unwrap();
    }

    pub(crate) async fn change(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api().patch(self.name.name(), &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self) {
        self.api().delete(self.name.name(), &DeleteParams::default()).await.unwrap();
    }

    /// Acknowledges each drain of this resource, for all shards, until it is dropped.
    pub(crate) fn start_acknowledger(&self, resource: &ApiResource) -> Acknowledger {
        Acknowledger::start(&self.client, &self.labels, resource, |_| true)
    }

    /// The objects in the namespace that is named as the ring.
    pub(crate) fn own(&self, resource: &ApiResource) -> Objects {
        self.objects(resource, Some(self.name.name()))
    }

    pub(crate) fn objects(&self, resource: &ApiResource, namespace: Option<&str>) -> Objects {
        let api = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        };
        Objects { api, resource: resource.clone(), labels: self.labels.clone(), shard_prefix: self.shard_prefix() }
    }
}

/// The objects of one resource, as one ring has them.
pub(crate) struct Objects {
    pub(crate) api: Api<DynamicObject>,
    resource: ApiResource,
    pub(crate) labels: RingLabels,
    shard_prefix: String,
}

impl Objects {
    pub(crate) async fn create(&self, name: &str) -> DynamicObject {
        self.create_with(json!({"name": name})).await
    }

    /// One with this metadata.
    pub(crate) async fn create_with(&self, metadata: Value) -> DynamicObject {
        let mut object = DynamicObject::new("", &self.resource);
        object.metadata = serde_json::from_value(metadata).unwrap();
        self.api.create(&PostParams::default(), &object).await.unwrap()
    }

    /// One with a name that the API server makes up; waits until it belongs to a shard, and returns both.
    pub(crate) async fn generate(&self, prefix: &str) -> (String, String) {
        let name = self.create_with(json!({"generateName": prefix})).await.name_any();
        let shard = self.until_owned(&name).await;
        (name, shard)
    }

    /// A child of `owner`.
    pub(crate) async fn create_under(&self, name: &str, owner: &DynamicObject) -> DynamicObject {
        self.create_with(json!({"name": name, "ownerReferences": [reference(owner)]})).await
    }

    /// Creates one with a child of its name; returns the shard that has both.
    pub(crate) async fn create_family(&self, children: &Self, name: &str) -> String {
        let root = self.create(name).await;
        let shard = self.until_owned(name).await;
        children.create_under(name, &root).await;
        children.until_placed(name, &shard).await;
        shard
    }

    /// Changes the metadata of one.
    pub(crate) async fn change(&self, name: &str, metadata: Value) {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        self.api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) fn owner_of(&self, object: &DynamicObject) -> Owner {
        let ownership = self.labels.ownership(object.metadata.labels.as_ref());
        (ownership.shard.map(str::to_owned), ownership.drain.map(str::to_owned))
    }

    pub(crate) async fn owner(&self, name: &str) -> Owner {
        self.owner_of(&self.api.get(name).await.unwrap())
    }

    /// Waits until the object belongs to a shard of the ring; returns which.
    pub(crate) async fn until_owned(&self, name: &str) -> String {
        let owned = self.until(name, "is owned", |(shard, drain)| {
            drain.is_none() && shard.as_ref().is_some_and(|shard| shard.starts_with(&self.shard_prefix))
        });
        owned.await.0.unwrap()
    }

    /// Waits until the object belongs to a shard, which is this one from the first.
    pub(crate) async fn until_placed(&self, name: &str, shard: &str) {
        assert_eq!(self.until_owned(name).await, shard, "{name}");
    }

    /// Waits until the object belongs to this shard, and is not asked for.
    pub(crate) async fn until_with(&self, name: &str, shard: &str) {
        let wanted = (Some(shard.to_owned()), None);
        self.until(name, &format!("is with {shard}"), |owner| *owner == wanted).await;
    }

    /// Waits until the object is asked for.
    pub(crate) async fn until_drained(&self, name: &str) -> Owner {
        self.until(name, "is drained", |(shard, drain)| shard.is_some() && drain.is_some()).await
    }

    /// Waits until the object has no labels of the ring.
    pub(crate) async fn until_bare(&self, name: &str) {
        self.until(name, "has no labels", |owner| *owner == (None, None)).await;
    }

    pub(crate) async fn until(&self, name: &str, what: &str, reached: impl Fn(&Owner) -> bool) -> Owner {
        eventually(&format!("{} {name} {what}", self.resource.kind), DEADLINE, || async {
            let found = self.api.get(name).await.map_err(|error| error.to_string())?;
            let owner = self.owner_of(&found);
            if reached(&owner) { Ok(owner) } else { Err(format!("{owner:?}")) }
        })
        .await
        .unwrap()
    }

    /// The version of each object, which any write to it changes, by its name.
    pub(crate) async fn versions(&self) -> BTreeMap<String, String> {
        let all = self.api.list(&Default::default()).await.unwrap();
        all.items.into_iter().map(|object| (object.name_any(), object.resource_version().unwrap())).collect()
    }

    /// The shards of all objects whose names begin so.
    pub(crate) async fn owners(&self, prefix: &str) -> BTreeSet<(String, Owner)> {
        let all = self.api.list(&Default::default()).await.unwrap();
        let ours = all.items.into_iter().filter(|object| object.name_any().starts_with(prefix));
        ours.map(|object| (object.name_any(), self.owner_of(&object))).collect()
    }
}
