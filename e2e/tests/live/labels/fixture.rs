//! A system with two shards and a few objects, and what is measured on it.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    future::Future,
    sync::Mutex,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use ringside_e2e::{
    eventually::eventually,
    system::{Settings, System},
    website::{Homes, Website, WebsiteSpec},
    workload::Workload,
};
use ringside_ring::{ClusterRing, RingLabels, RingName, cluster_ring::Fence};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::{
    labels::history::History,
    planes::{Keeps, plane},
};

/// Enough that each shard has some, and that each case has its own.
const OBJECTS: usize = 24;

/// Enough for a machine that runs other tests beside; what is measured is printed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// What is promised.
const PROMISED: Duration = Duration::from_secs(1);

/// For no longer a machine stands still.
const MOMENT: Duration = Duration::from_secs(5);

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
    /// How long a shard keeps still before it lets go of what somebody drained.
    grace: Duration,
    /// What took longer than what is promised, and how long.
    late: Mutex<Vec<(String, Duration)>>,
}

/// Waits until a sharder that has just begun takes objects from names that never had a Lease.
async fn until_unknown_names_are_gone(system: &System, labels: &RingLabels) {
    let websites: Api<Website> = Api::namespaced(system.control_plane().client(), system.namespace());
    let mut copy = Website::new("unknown-0", WebsiteSpec { content: "a copy".to_owned(), ..WebsiteSpec::default() });
    copy.labels_mut().insert(labels.shard.clone(), "nobody".to_owned());
    websites.create(&PostParams::default(), &copy).await.unwrap();
    eventually("an object of a name without Lease has a shard", DEADLINE, || async {
        let now = websites.get("unknown-0").await.map_err(|error| error.to_string())?;
        let shard = now.labels().get(&labels.shard).filter(|shard| *shard != "nobody");
        shard.map(drop).ok_or_else(|| format!("{:?}", now.metadata.labels))
    })
    .await
    .unwrap();
    // No garbage collector runs here.
    let children: Api<ConfigMap> = Api::namespaced(system.control_plane().client(), system.namespace());
    let secrets: Api<Secret> = Api::namespaced(system.control_plane().client(), system.namespace());
    eventually("its shard has made its children", DEADLINE, || async {
        let (child, secret) = tokio::join!(children.get("unknown-0"), secrets.get("unknown-0"));
        child.and(secret.map(drop)).map_err(|error| error.to_string())
    })
    .await
    .unwrap();
    websites.delete("unknown-0", &DeleteParams::default()).await.unwrap();
    children.delete("unknown-0", &DeleteParams::default()).await.unwrap();
    secrets.delete("unknown-0", &DeleteParams::default()).await.unwrap();
}

impl Fixture {
    /// A ring with two shards, on a plane of its own.
    pub(crate) async fn start(keeps: Keeps, settings: Settings) -> Self {
        let mut system = System::start(settings.clone()).await.unwrap();
        system.start_sharders(1).await.unwrap();
        Self::at(system, keeps, &settings).await
    }

    /// The same on a shared plane, with a ring and a namespace of this name.
    pub(crate) async fn on(keeps: Keeps, name: &str) -> Self {
        Self::on_as(keeps, name, keeps.settings()).await
    }

    /// The same with the API server's fence.
    pub(crate) async fn fenced(name: &str) -> Self {
        Self::on_as(Keeps::Both, name, Settings { fence: Fence::ApiServer, ..Keeps::Both.settings() }).await
    }

    async fn on_as(keeps: Keeps, name: &str, settings: Settings) -> Self {
        let system = System::on(&plane(keeps).await, name, settings.clone()).await.unwrap();
        Self::at(system, keeps, &settings).await
    }

    async fn at(mut system: System, keeps: Keeps, settings: &Settings) -> Self {
        let ring = system.start_ring().await.unwrap();
        for shard in ["shard-0", "shard-1"] {
            system.add_shard(shard).await.unwrap();
        }
        let workload = Workload::idle("site", OBJECTS).within(system.namespace());
        system.share_out(&workload, DEADLINE).await.unwrap();
        let labels = RingLabels::of(&ring);
        until_unknown_names_are_gone(&system, &labels).await;
        let history = History::follow::<Website>(&system.control_plane().client(), &labels).await;
        let fixture = Self { history, system, ring, labels, grace: settings.drain_grace, late: Mutex::default() };
        fixture.until_protection_is(matches!(keeps, Keeps::Both | Keeps::Policy)).await;
        fixture
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

    /// The shard of an object, when it is one that lives and was not asked to let go.
    pub(crate) fn owner(&self, object: &impl Labelled) -> Option<String> {
        let ownership = self.labels.ownership(object.meta().labels.as_ref());
        let live = ownership.shard.filter(|shard| self.shards().any(|name| name == *shard))?;
        ownership.drain.is_none().then(|| live.to_owned())
    }

    /// Does something to an object; returns the shard that it belongs to after that, and prints how long that took from the
    /// API server's answer: until then all see it as it was.
    pub(crate) async fn measure<K: Labelled>(&self, what: &str, write: impl Future<Output = K>) -> String {
        let written = write.await;
        let start = Instant::now();
        let drained = self.labels.ownership(written.meta().labels.as_ref()).drain.is_some();
        let in_time = PROMISED + if drained { self.grace } else { Duration::ZERO };
        let (name, objects) = (written.name_any(), self.objects::<K>());
        let owner = eventually(what, DEADLINE, || async {
            let now = objects.get(&name).await.map_err(|error| error.to_string())?;
            self.owner(&now).ok_or_else(|| format!("{:?}", now.meta().labels))
        });
        let owner = owner.await.unwrap();
        let took = start.elapsed();
        eprintln!("{what}: {took:?} until {owner} has it");
        if took > in_time {
            self.late.lock().unwrap().push((format!("{what}: {took:?}, not {in_time:?}"), took - in_time));
        }
        owner
    }

    /// All but one, as a machine that does much else may stand still for a moment.
    pub(crate) fn assert_all_was_in_time(&self) {
        let late = self.late.lock().unwrap();
        assert!(late.len() <= 1 && late.iter().all(|(_, beyond)| *beyond < MOMENT), "{late:#?}");
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
            let condition = self.condition("LabelsProtected").await.ok_or("it does not say")?;
            let seen = (condition.status.as_str(), condition.reason.as_str());
            if seen == expected { Ok(condition) } else { Err(format!("{condition:?}")) }
        });
        eprintln!("LabelsProtected: {}", condition.await.unwrap().message);
        if !protected {
            return;
        }
        // The API server learns of a policy by a watch of its own.
        eventually("the policy acts", DEADLINE, || async {
            let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
            let strip = Patch::Merge(json!({"metadata": {"labels": {&self.labels.shard: null}}}));
            let stripped =
                self.websites().patch("site-00000", &dry_run, &strip).await.map_err(|error| error.to_string())?;
            self.owner(&stripped).ok_or_else(|| "the label would be gone".to_owned())
        })
        .await
        .unwrap();
    }

    pub(crate) async fn condition(&self, type_: &str) -> Option<Condition> {
        let rings: Api<ClusterRing> = Api::all(self.client());
        let status = rings.get_opt(self.ring.name()).await.ok()??.status?;
        status.conditions.into_iter().find(|condition| condition.type_ == type_)
    }
}
