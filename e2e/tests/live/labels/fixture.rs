//! A system with two shards and a few objects.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use ringside_e2e::{
    eventually::eventually,
    ring_status::{condition, status},
    system::{Settings, System},
    website::{Homes, Website},
    workload::Workload,
};
use ringside_ring::{RingLabels, RingName, cluster_ring::Fence};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::{
    labels::history::History,
    planes::{Keeps, plane},
};

/// Enough that each shard has some, and that each case has its own.
const OBJECTS: usize = 24;

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// No shard loses its Lease for a machine that is slow.
const LEASE: Duration = Duration::from_secs(20);

/// What has labels of the ring.
pub(crate) trait Labelled:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned
{
}

impl<K> Labelled for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned
{
}

pub(crate) struct Fixture {
    /// Gone before the system that it follows.
    history: History,
    pub(crate) system: System,
    pub(crate) ring: RingName,
    pub(crate) labels: RingLabels,
    pub(crate) keeps: Keeps,
}

impl Fixture {
    /// A ring with two shards and the API server's fence, on a plane of its own.
    pub(crate) async fn start() -> Self {
        let settings = settings(Keeps::Both, Fence::ApiServer);
        let mut system = System::start(settings).await.unwrap();
        system.start_sharders(1).await.unwrap();
        Self::at(system, Keeps::Both).await
    }

    /// A ring with two shards on a shared plane, with a ring and a namespace of this name.
    pub(crate) async fn on(keeps: Keeps, name: &str) -> Self {
        Self::fenced(Fence::Proxy, keeps, name).await
    }

    /// The same with this fence.
    pub(crate) async fn fenced(fence: Fence, keeps: Keeps, name: &str) -> Self {
        let system = System::on(&plane(keeps).await, name, settings(keeps, fence)).await.unwrap();
        Self::at(system, keeps).await
    }

    async fn at(mut system: System, keeps: Keeps) -> Self {
        let ring = system.start_ring().await.unwrap();
        for shard in ["shard-0", "shard-1"] {
            system.add_shard(shard).await.unwrap();
        }
        let workload = Workload::idle("site", OBJECTS).within(system.namespace());
        system.share_out(&workload, DEADLINE).await.unwrap();
        let labels = RingLabels::of(&ring);
        let history = History::follow::<Website>(&system.control_plane().client(), &labels).await;
        let fixture = Self { history, system, ring, labels, keeps: keeps.here() };
        fixture.until_protection_is(fixture.has_policy()).await;
        fixture
    }

    /// Whether a policy in the API server keeps labels.
    pub(crate) fn has_policy(&self) -> bool {
        matches!(self.keeps, Keeps::Both | Keeps::Policy)
    }

    pub(crate) fn client(&self) -> Client {
        self.system.control_plane().client()
    }

    pub(crate) fn websites(&self) -> Api<Website> {
        self.objects()
    }

    /// Owners or children, which have the names of their owners.
    pub(crate) fn objects<K: Labelled>(&self) -> Api<K> {
        Api::namespaced(self.client(), self.system.namespace())
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = &str> {
        self.system.shards().map(ringside_e2e::system::Shard::name)
    }

    pub(crate) fn another(&self, shard: &str) -> String {
        self.shards().find(|name| *name != shard).unwrap().to_owned()
    }

    /// The shard that a website of this name belongs to.
    pub(crate) fn home(&self, name: &str) -> String {
        Homes::among(self.shards()).unwrap().of(self.system.namespace(), name).unwrap().to_owned()
    }

    /// The shard of an object, when it is one that lives and was not asked to release it.
    pub(crate) fn owner(&self, object: &impl Labelled) -> Option<String> {
        let ownership = self.labels.ownership(object.meta().labels.as_ref());
        let live = ownership.shard.filter(|shard| self.shards().any(|name| name == *shard))?;
        ownership.drain.is_none().then(|| live.to_owned())
    }

    /// The shard of the object of this name, once one that lives has it, and is not asked to release it.
    pub(crate) async fn until_owned<K: Labelled>(&self, what: &str, name: &str) -> String {
        let objects = self.objects::<K>();
        eventually(&format!("after {what}, {name} has an owner"), DEADLINE, || async {
            let now = objects.get(name).await.map_err(|error| error.to_string())?;
            self.owner(&now).ok_or_else(|| format!("{:?}", now.meta().labels))
        })
        .await
        .unwrap()
    }

    pub(crate) fn assert_nobody_lost_anything(&self) {
        let lost = self.history.lost(&self.shards().collect());
        assert!(lost.is_empty(), "taken from a live shard without drain: {lost:#?}");
    }

    /// Waits until the children are where their owners are: where no webhook is asked they have no label at first.
    pub(crate) async fn until_children_follow(&self) {
        let followed = eventually("the children are with their owners", DEADLINE, || async {
            let error = |error: kube::Error| error.to_string();
            let owners = self.websites().list(&ListParams::default()).await.map_err(error)?;
            let children = self.objects::<ConfigMap>().list(&ListParams::default()).await.map_err(error)?;
            let mut shards: BTreeMap<_, _> =
                children.iter().map(|child| (child.name_any(), self.owner(child))).collect();
            let apart = owners.iter().filter(|owner| shards.remove(&owner.name_any()).flatten() != self.owner(*owner));
            let apart: Vec<_> = apart.map(kube::ResourceExt::name_any).collect();
            if apart.is_empty() { Ok(()) } else { Err(format!("not {apart:?}")) }
        });
        followed.await.unwrap();
    }

    async fn until_protection_is(&self, protected: bool) {
        let expected = if protected { ("True", "PolicyInPlace") } else { ("False", "PolicyNotServed") };
        let condition = eventually("the ring says whether its labels are protected", DEADLINE, || async {
            let condition = self.condition("LabelsProtected").await?;
            let seen = (condition.status.as_str(), condition.reason.as_str());
            if seen == expected { Ok(()) } else { Err(format!("{condition:?}")) }
        });
        condition.await.unwrap();
        if protected {
            until_policy_acts(&self.websites(), &self.labels, "site-00000").await;
        }
    }

    pub(crate) async fn condition(&self, type_: &str) -> Result<Condition, String> {
        condition(&status(&self.client(), &self.ring).await?, type_).cloned()
    }
}

/// Waits until the policy puts back a label of this object that a write drops: the API server learns of a policy by a watch of
/// its own.
pub(crate) async fn until_policy_acts<K: Labelled>(objects: &Api<K>, labels: &RingLabels, name: &str) {
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let strip = Patch::Merge(json!({"metadata": {"labels": {&labels.shard: null}}}));
    eventually("the policy acts", DEADLINE, || async {
        let stripped = objects.patch(name, &dry_run, &strip).await.map_err(|error| error.to_string())?;
        let shard = labels.ownership(stripped.meta().labels.as_ref()).shard;
        shard.map(drop).ok_or_else(|| "the label would be gone".to_owned())
    })
    .await
    .unwrap();
}

fn settings(keeps: Keeps, fence: Fence) -> Settings {
    Settings { fence, lease_duration: LEASE, ..keeps.settings() }
}
