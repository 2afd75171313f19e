//! Takes the snapshot of a controller from a cluster. It writes nothing.

use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apps::v1::Deployment,
    autoscaling::v2::HorizontalPodAutoscaler,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ListParams, PartialObjectMeta},
};
use ringside_runtime::explain::explain;
use serde::de::DeserializeOwned;

use super::{
    documents::{account, mutating, scaled, validating},
    grants::Roles,
    subject::{Lock, Subject, Webhook},
};
use crate::cluster::pages;

mod objects;

/// How many objects a page has.
const PAGE: u32 = 500;

/// Looks at a Deployment, its rights, and what surrounds it.
///
/// # Errors
/// When the Deployment can't be read. What else can't be read is said in [`Subject::unseen`].
pub async fn gather(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Subject> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = deployments.get_opt(name).await.map_err(|error| anyhow::anyhow!(explain(&error)))?;
    let Some(deployment) = deployment else {
        anyhow::bail!("there is no Deployment {namespace}/{name}: `kubectl get deployments -A` names all");
    };
    let mut subject = Subject { deployment, live: true, ..Subject::default() };
    let mut reader = Reader { client: client.clone(), unseen: Vec::new() };
    let account = account(&subject.deployment);
    subject.grants = reader.roles().await.of(namespace, &account);
    subject.definitions = reader.all(Api::all(client.clone()), "CustomResourceDefinitions").await;
    subject.webhooks = reader.webhooks().await;
    subject.services = reader.all(Api::namespaced(client.clone(), namespace), "Services").await;
    let scalers: Vec<HorizontalPodAutoscaler> =
        reader.all(Api::namespaced(client.clone(), namespace), "HorizontalPodAutoscalers").await;
    let of_it = scalers.iter().filter_map(scaled).filter(|(target, _)| target == name);
    subject.scalers = of_it.map(|(_, scaler)| scaler).collect();
    subject.locks = reader.locks(&subject).await;
    objects::gather(&mut reader, &mut subject).await;
    subject.unseen = reader.unseen;
    Ok(subject)
}

/// Looks at what shows where a controller elects its leader: its Deployment, its rights, and the locks that its pods hold.
pub async fn gather_election(client: &Client, deployment: Deployment) -> Subject {
    let mut subject = Subject { deployment, live: true, ..Subject::default() };
    let mut reader = Reader { client: client.clone(), unseen: Vec::new() };
    subject.grants = reader.roles().await.of(subject.namespace(), &account(&subject.deployment));
    subject.locks = reader.locks(&subject).await;
    subject
}

/// Reads lists, and notes what it may not read.
struct Reader {
    client: Client,
    unseen: Vec<String>,
}

impl Reader {
    /// All objects, by pages.
    async fn all<K>(&mut self, api: Api<K>, what: &str) -> Vec<K>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let mut all = Vec::new();
        let read = pages(PAGE, async |page| api.list(page).await, |object| all.push(object)).await;
        self.note(read, what);
        all
    }

    /// The metadata of all objects, page by page.
    async fn each_metadata<K>(&mut self, api: &Api<K>, what: &str, take: impl FnMut(PartialObjectMeta<K>))
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let read = pages(PAGE, async |page| api.list_metadata(page).await, take).await;
        self.note(read, what);
    }

    fn note(&mut self, read: kube::Result<()>, what: &str) {
        self.unseen.extend(read.err().map(|error| format!("{what}: {}", explain(&error))));
    }

    async fn roles(&mut self) -> Roles {
        Roles {
            roles: self.all(Api::all(self.client.clone()), "Roles").await,
            cluster_roles: self.all(Api::all(self.client.clone()), "ClusterRoles").await,
            bindings: self.all(Api::all(self.client.clone()), "RoleBindings").await,
            cluster_bindings: self.all(Api::all(self.client.clone()), "ClusterRoleBindings").await,
        }
    }

    async fn webhooks(&mut self) -> Vec<Webhook> {
        let validate: Vec<ValidatingWebhookConfiguration> =
            self.all(Api::all(self.client.clone()), "ValidatingWebhookConfigurations").await;
        let mutate: Vec<MutatingWebhookConfiguration> =
            self.all(Api::all(self.client.clone()), "MutatingWebhookConfigurations").await;
        validate.iter().flat_map(validating).chain(mutate.iter().flat_map(mutating)).collect()
    }

    /// The locks that the pods of a Deployment hold.
    async fn locks(&mut self, subject: &Subject) -> Vec<Lock> {
        let labels: Vec<_> = subject.pod_labels().iter().map(|(key, value)| format!("{key}={value}")).collect();
        let namespace = subject.namespace();
        let of_pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pods = of_pods.list_metadata(&ListParams::default().labels(&labels.join(","))).await;
        let pods: Vec<_> = match pods {
            Ok(pods) => pods.items.iter().map(kube::ResourceExt::name_any).collect(),
            Err(error) => {
                self.unseen.push(format!("Pods: {}", explain(&error)));
                return Vec::new();
            }
        };
        let leases: Vec<Lease> = self.all(Api::all(self.client.clone()), "Leases").await;
        let held = leases.iter().filter(|lease| is_held_by(lease, &pods)).map(|lease| place(lease, Lock::Lease));
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let mut owned = Vec::new();
        self.each_metadata(&maps, "ConfigMaps", |map| {
            if map.owner_references().iter().any(|owner| owner.kind == "Pod" && pods.contains(&owner.name)) {
                owned.push(place(&map, Lock::OwnedByPod));
            }
        })
        .await;
        owned.into_iter().chain(held).collect()
    }
}

fn place<K: Resource>(object: &K, lock: fn(String, String) -> Lock) -> Lock {
    lock(object.namespace().unwrap_or_default(), object.name_any())
}

/// Whether a Lease is the lock of an election that one of the pods won. Shards' own Leases are none.
fn is_held_by(lease: &Lease, pods: &[String]) -> bool {
    let is_shard = ringside_ring::labels::ring_of(&lease.metadata).is_some();
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    // Libraries put something behind the name of the pod: `_` and a UUID, or the like.
    let is_name = |pod: &String| {
        holder
            .strip_prefix(pod.as_str())
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
    };
    !is_shard && pods.iter().any(is_name)
}
