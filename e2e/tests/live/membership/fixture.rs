//! What the cases stand on: a control plane with a sharder whose clock is wrong, and a ring for each case.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    process::Command,
    time::Duration,
};

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Namespace},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ObjectMeta, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    plain_shard::PlainShard,
    process::Folder,
    proxy::{Identity, Proxy},
    ring_status::until_available,
    shard_identity::ShardIdentity,
    system::{NAMESPACE, Settings, System},
    toolchain::{self, built},
    wall_clock::WallClock,
    website::Website,
    workload::Workload,
};
use ringside_ring::{ClusterRing, RingLabels, RingName};
use serde_json::json;

use super::{history::History, shard::Shard};

/// Enough for a machine that runs other tests beside.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// How long a Lease lasts, by default.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// By how many seconds a wrong wall clock is wrong.
pub(crate) const HOUR: i64 = 3600;

/// The names of each shard's objects.
pub(crate) type Owners = BTreeMap<String, BTreeSet<String>>;

pub(crate) struct Fixture {
    // Dropped in this order.
    pub(crate) history: History,
    pub(crate) system: System,
    /// The sharder's, an hour behind.
    pub(crate) sharder_clock: WallClock,
    pub(crate) folder: Folder,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        let folder = Folder::create("membership").unwrap();
        let sharder_clock = WallClock::create(folder.path(), "sharder").unwrap();
        sharder_clock.shift(-HOUR).unwrap();
        let settings = Settings { sharder_clock: Some(sharder_clock.clone()), ..Settings::default() };
        let mut system = System::start(settings).await.unwrap();
        system.start_sharders(1).await.unwrap();
        let history = History::start(&system.control_plane().client());
        let fixture = Self { history, system, sharder_clock, folder };
        fixture.until_sharder_is_wrong().await;
        fixture
    }

    /// Waits until the clock of the sharder is seen to be wrong, by what it writes into its own Lease: else these tests would
    /// show nothing of the judge.
    pub(crate) async fn until_sharder_is_wrong(&self) {
        let leases: Api<Lease> = Api::namespaced(self.client(), "ringside-system");
        let wrong = eventually("the sharder's clock is wrong", DEADLINE, || async {
            let lease = leases.get("ringside-sharder").await.map_err(|error| error.to_string())?;
            let said = lease.spec.and_then(|spec| spec.renew_time).ok_or("it does not lead yet")?.0;
            let ahead = said.duration_since(Timestamp::now()).as_secs();
            if ahead.abs() > HOUR / 2 { Ok(()) } else { Err(format!("it is {ahead} s ahead")) }
        });
        wrong.await.unwrap();
    }

    pub(crate) fn client(&self) -> Client {
        self.system.control_plane().client()
    }

    /// Where the API server is.
    pub(crate) fn api_server(&self) -> SocketAddr {
        self.system.control_plane().address()
    }

    pub(crate) fn url(&self) -> String {
        self.system.control_plane().url()
    }

    /// Makes a ring for the Websites of a namespace of the same name.
    pub(crate) async fn ring(&self, name: &str) -> RingName {
        let labels = BTreeMap::from([("ring".to_owned(), name.to_owned())]);
        let metadata =
            ObjectMeta { name: Some(name.to_owned()), labels: Some(labels.clone()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        Api::all(self.client()).create(&PostParams::default(), &namespace).await.unwrap();
        let ring: ClusterRing = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "namespaceSelector": {"matchLabels": labels},
                "resources": [{"group": "web.example.com", "resource": "websites"}],
            },
        }))
        .unwrap();
        self.system.allow(&ring, &[NAMESPACE]).await.unwrap();
        Api::all(self.client()).create(&PostParams::default(), &ring).await.unwrap();
        name.parse().unwrap()
    }

    /// Waits until the sharder counts so many shards of a ring.
    pub(crate) async fn until_counted(&self, ring: &RingName, shards: usize) {
        until_available(&self.client(), ring, shards, DEADLINE).await.unwrap();
    }

    /// Makes objects for a ring.
    pub(crate) async fn create(&self, ring: &RingName, objects: usize) {
        Workload::idle("site", objects).within(ring.name()).create(&self.client()).await.unwrap();
    }

    /// Waits until so many objects of a ring have owners, of whom this holds; returns whose they are. One that is to be released
    /// counts as without owner.
    pub(crate) async fn until_owned(&self, ring: &RingName, objects: usize, are: impl Fn(&Owners) -> bool) -> Owners {
        let (websites, labels) = (Api::<Website>::namespaced(self.client(), ring.name()), RingLabels::of(ring));
        let owned = eventually("all objects have owners", DEADLINE, || async {
            let mut owners = Owners::new();
            for website in websites.list_metadata(&Default::default()).await.map_err(|error| error.to_string())? {
                let ownership = labels.ownership(Some(website.labels()));
                let owner = ownership.shard.filter(|_| ownership.drain.is_none()).unwrap_or_default();
                owners.entry(owner.to_owned()).or_default().insert(website.name_any());
            }
            let whole = owners.values().map(BTreeSet::len).sum::<usize>() == objects && !owners.contains_key("");
            if whole && are(&owners) { Ok(owners) } else { Err(format!("{owners:?}")) }
        });
        owned.await.unwrap()
    }

    /// Starts a shard that is nothing but a Lease.
    pub(crate) async fn plain(&self, ring: &RingName, name: &str, duration: Duration) -> PlainShard {
        PlainShard::join(&self.client(), NAMESPACE, ring, &name.parse().unwrap(), duration).await.unwrap()
    }

    /// Starts a ring of this name, with a plain shard of the same name first, its heirs, and so many objects, of which that shard has some.
    pub(crate) async fn ring_with_heirs(
        &self,
        name: &str,
        heirs: [&str; 2],
        objects: usize,
        duration: Duration,
    ) -> (RingName, Vec<PlainShard>) {
        let ring = self.ring(name).await;
        let mut shards = Vec::new();
        for shard in [name, heirs[0], heirs[1]] {
            shards.push(self.plain(&ring, shard, duration).await);
        }
        self.until_counted(&ring, 3).await;
        self.create(&ring, objects).await;
        self.until_owned(&ring, objects, |owners| owners.contains_key(name)).await;
        (ring, shards)
    }

    /// Starts a shard with a proxy that reaches the API server at `url`, and waits until it is ready.
    pub(crate) async fn shard(&self, ring: &RingName, name: &str, url: &str, clock: Option<&WallClock>) -> Shard {
        let proxy = self.begin(NAMESPACE, ring, name, url, clock).await;
        proxy.until_ready().await.unwrap();
        Shard::new(proxy)
    }

    /// Starts its proxy, of a Pod in this namespace, and does not wait.
    pub(crate) async fn begin(
        &self,
        namespace: &str,
        ring: &RingName,
        name: &str,
        url: &str,
        clock: Option<&WallClock>,
    ) -> Proxy {
        let (control_plane, dir) = (self.system.control_plane(), &self.folder.path().join(namespace));
        std::fs::create_dir_all(dir).unwrap();
        let identity = ShardIdentity::create(control_plane, namespace, "website-controller", name, dir).await.unwrap();
        identity.connect_to(control_plane, url).unwrap();
        let programs = built(toolchain::ringside).await.unwrap();
        let mut command = Command::new(programs.proxy);
        command.arg("--kubeconfig").arg(identity.kubeconfig());
        command.arg(format!("--lease-duration={}s", LEASE.as_secs()));
        command.arg("--log-filter=info,ringside_runtime=debug");
        if let Some(clock) = clock {
            clock.give_to(&mut command);
        }
        Proxy::start(command, Identity { ring: ring.name(), shard: name, namespace }, dir).unwrap()
    }
}
