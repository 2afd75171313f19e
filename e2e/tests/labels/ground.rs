//! A system with two shards and a few objects, and what is measured on it.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use ringside_e2e::{
    eventually::eventually,
    system::{NAMESPACE, Settings, System},
    website::Website,
    workload::Workload,
};
use ringside_ring::{ClusterRing, RingLabels, RingName};
use serde_json::json;

use crate::history::History;

/// Enough that each shard has some, and that each case has its own.
const OBJECTS: usize = 24;

/// Enough for a machine that runs other tests beside; what is measured is printed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// What is promised is one second; the rest is for a machine that does much else.
const BOUND: Duration = Duration::from_secs(10);

pub(crate) struct Ground {
    pub(crate) system: System,
    pub(crate) ring: RingName,
    pub(crate) labels: RingLabels,
    history: History,
}

impl Ground {
    /// `protected`: whether the ring is to say that the API server keeps the labels.
    pub(crate) async fn start(settings: Settings, protected: bool) -> Self {
        let mut system = System::start(settings).await.unwrap();
        let ring = system.start_sharding(1).await.unwrap();
        for shard in ["shard-0", "shard-1"] {
            system.add_shard(shard).await.unwrap();
        }
        system.until_counted(DEADLINE).await.unwrap();
        let workload = Workload {
            namespace: NAMESPACE.to_owned(),
            prefix: "site",
            objects: OBJECTS,
            work: Duration::ZERO,
            interval: DEADLINE,
            seed: 0,
        };
        workload.create(&system.control_plane().client()).await.unwrap();
        system.until_balanced(DEADLINE).await.unwrap();
        system.until_settled(DEADLINE).await.unwrap();
        let labels = RingLabels::of(&ring);
        let history = History::follow(&system.control_plane().client(), &labels).await;
        let ground = Self { system, ring, labels, history };
        ground.until_protection_is(protected).await;
        ground
    }

    pub(crate) fn client(&self) -> Client {
        self.system.control_plane().client()
    }

    pub(crate) fn websites(&self) -> Api<Website> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = &str> {
        self.system.shards().map(ringside_e2e::system::Shard::name)
    }

    pub(crate) fn another(&self, shard: &str) -> String {
        self.shards().find(|name| *name != shard).unwrap().to_owned()
    }

    /// The shard of an object, when it is one that lives and was not asked to let go.
    pub(crate) fn owner(&self, website: &Website) -> Option<String> {
        let ownership = self.labels.ownership(website.metadata.labels.as_ref());
        let live = ownership.shard.filter(|shard| self.shards().any(|name| name == *shard))?;
        ownership.drain.is_none().then(|| live.to_owned())
    }

    /// Does something to an object; returns the shard that it belongs to after that, and prints how long that took.
    pub(crate) async fn measure<W: Future<Output = Website>>(&self, what: &str, write: W) -> String {
        let start = Instant::now();
        let written = write.await;
        let name = written.name_any();
        let owner = eventually(what, BOUND, || async {
            let now = self.websites().get(&name).await.map_err(|error| error.to_string())?;
            self.owner(&now).ok_or_else(|| format!("{:?}", now.metadata.labels))
        });
        let owner = owner.await.unwrap();
        eprintln!("{what}: {:?} until {owner} has it", start.elapsed());
        owner
    }

    pub(crate) fn assert_nobody_lost_anything(&self) {
        let lost = self.history.lost(&self.shards().collect());
        assert!(lost.is_empty(), "taken from a live shard without drain: {lost:#?}");
    }

    async fn until_protection_is(&self, protected: bool) {
        let status = if protected { "True" } else { "False" };
        let condition = eventually("the ring says whether its labels are protected", DEADLINE, || async {
            let condition = self.condition("LabelsProtected").await.ok_or("it does not say")?;
            if condition.status == status { Ok(condition) } else { Err(format!("{condition:?}")) }
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
        let status = rings.get_opt(self.ring.as_str()).await.ok()??.status?;
        status.conditions.into_iter().find(|condition| condition.type_ == type_)
    }
}
