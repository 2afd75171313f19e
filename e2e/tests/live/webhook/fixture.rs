//! A system with two sharder replicas and two shards, and objects that are created one by one.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ListParams, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    system::{NAMESPACE, Settings, System},
    website::{Website, WebsiteSpec},
};
use ringside_ring::{RingLabels, RingName};

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// No shard loses its Lease for a machine that is slow.
const LEASE: Duration = Duration::from_secs(20);

pub(crate) struct Fixture {
    pub(crate) system: System,
    pub(crate) ring: RingName,
    pub(crate) labels: RingLabels,
    created: AtomicUsize,
}

impl Fixture {
    /// Returns once the webhook answers.
    pub(crate) async fn start(settings: Settings) -> Self {
        let fixture = Self::begin(settings).await;
        fixture.until_answered().await;
        fixture
    }

    /// The same, but no API server has asked the webhook yet.
    pub(crate) async fn begin(settings: Settings) -> Self {
        let mut system = System::start(Settings { lease_duration: LEASE, ..settings }).await.unwrap();
        let ring = system.start_sharding(2).await.unwrap();
        for shard in ["shard-0", "shard-1"] {
            system.add_shard(shard).await.unwrap();
        }
        system.until_counted(DEADLINE).await.unwrap();
        Self { system, labels: RingLabels::of(&ring), ring, created: AtomicUsize::new(0) }
    }

    pub(crate) fn client(&self) -> Client {
        self.system.control_plane().client()
    }

    pub(crate) fn websites(&self) -> Api<Website> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// Creates an object of which there was none before; the answer shows whether the webhook was asked.
    pub(crate) async fn create(&self) -> Website {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        let website = Website::new(&format!("site-{number:05}"), WebsiteSpec::default());
        // Whatever becomes of the webhook, no create fails.
        self.websites().create(&PostParams::default(), &website).await.unwrap()
    }

    pub(crate) fn is_labelled(&self, object: &impl Resource) -> bool {
        object.labels().contains_key(&self.labels.shard)
    }

    /// Where the API server's way to each replica's webhook leads from now on, on this machine.
    pub(crate) fn lead_webhook(&self, to: impl Fn(u16) -> u16) {
        for sharder in self.system.sharders() {
            sharder.line().unwrap().lead_to(([127, 0, 0, 1], to(sharder.webhook_port())).into());
        }
    }

    pub(crate) async fn until_answered(&self) {
        eventually("the webhook assigns an object", DEADLINE, || async {
            if self.is_labelled(&self.create().await) { Ok(()) } else { Err("an object without owner".to_owned()) }
        })
        .await
        .unwrap();
    }

    pub(crate) async fn until_assigned(&self) {
        let without = ListParams::default().labels(&format!("!{}", self.labels.shard));
        eventually("every object has an owner", DEADLINE, || async {
            let unassigned = self.websites().list(&without).await.map_err(|error| error.to_string())?.items.len();
            if unassigned == 0 { Ok(()) } else { Err(format!("{unassigned} without")) }
        })
        .await
        .unwrap();
    }
}
