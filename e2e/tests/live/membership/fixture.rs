//! What the cases stand on: a control plane with sharders, and a ring for each case.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, process::Command, time::Duration};

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Namespace},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    plain_shard::PlainShard,
    process::Folder,
    proxy::{Identity, Proxy},
    shard_identity::ShardIdentity,
    system::{NAMESPACE, Settings, System},
    toolchain::{self, built},
    wall_clock::WallClock,
};
use ringside_ring::{ClusterRing, RingName};
use serde_json::json;

use super::{history::History, shard::Shard};

/// Enough for a machine that runs other tests beside.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// The usual duration of a Lease, and the shortest.
pub(crate) const USUAL: Duration = Duration::from_secs(15);
pub(crate) const SHORT: Duration = Duration::from_secs(5);

/// By how many seconds a wrong wall clock is wrong.
pub(crate) const HOUR: i64 = 3600;

pub(crate) struct Fixture {
    // Dropped in this order.
    pub(crate) history: History,
    pub(crate) system: System,
    /// The sharders', an hour behind.
    pub(crate) sharder_clock: WallClock,
    pub(crate) folder: Folder,
}

impl Fixture {
    pub(crate) async fn start(sharders: usize) -> Self {
        let folder = Folder::create("membership").unwrap();
        let sharder_clock = WallClock::create(folder.path(), "sharder").unwrap();
        sharder_clock.shift(-HOUR).unwrap();
        let settings = Settings { sharder_clock: Some(sharder_clock.clone()), ..Settings::default() };
        let mut system = System::start(settings).await.unwrap();
        system.start_sharders(sharders).await.unwrap();
        let history = History::start(&system.control_plane().client());
        let fixture = Self { history, system, sharder_clock, folder };
        fixture.until_sharder_is_wrong().await;
        fixture
    }

    /// Waits until the clock of the sharder that leads is seen to be wrong, by what it writes into its own Lease: else these
    /// tests would show nothing of the judge.
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
        self.system.control_plane().url().trim_start_matches("https://").parse().unwrap()
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
    pub(crate) async fn until_counted(&self, ring: &RingName, shards: i32) {
        let rings: Api<ClusterRing> = Api::all(self.client());
        let counted = eventually("the sharder counts the shards", DEADLINE, || async {
            let status = rings.get(ring.name()).await.map_err(|error| error.to_string())?.status;
            let available = status.map(|status| status.available_shards);
            if available == Some(shards) { Ok(()) } else { Err(format!("{available:?}")) }
        });
        counted.await.unwrap();
    }

    /// Starts a shard that is nothing but a Lease.
    pub(crate) async fn plain(&self, ring: &RingName, name: &str, duration: Duration) -> PlainShard {
        PlainShard::join(&self.client(), NAMESPACE, ring, &name.parse().unwrap(), duration).await.unwrap()
    }

    /// Starts a shard with a proxy that reaches the API server at `url`, and waits until it is ready.
    pub(crate) async fn shard(
        &self,
        ring: &RingName,
        name: &str,
        duration: Duration,
        url: &str,
        clock: Option<&WallClock>,
    ) -> Shard {
        let proxy = self.begin(ring, name, duration, url, clock).await;
        proxy.until_ready().await.unwrap();
        Shard::new(name, proxy)
    }

    /// Starts its proxy, and does not wait.
    pub(crate) async fn begin(
        &self,
        ring: &RingName,
        name: &str,
        duration: Duration,
        url: &str,
        clock: Option<&WallClock>,
    ) -> Proxy {
        self.begin_in(NAMESPACE, ring, name, duration, (url, clock)).await
    }

    /// The same, of a Pod in this namespace.
    pub(crate) async fn begin_in(
        &self,
        namespace: &str,
        ring: &RingName,
        name: &str,
        duration: Duration,
        (url, clock): (&str, Option<&WallClock>),
    ) -> Proxy {
        let (control_plane, dir) = (self.system.control_plane(), &self.folder.path().join(namespace));
        std::fs::create_dir_all(dir).unwrap();
        let identity = ShardIdentity::create(control_plane, namespace, "website-controller", name, dir).await.unwrap();
        redirect(identity.kubeconfig(), &control_plane.url(), url);
        let programs = built(toolchain::ringside).await.unwrap();
        let mut command = Command::new(programs.proxy);
        command.arg("--kubeconfig").arg(identity.kubeconfig());
        command.arg(format!("--lease-duration={}s", duration.as_secs()));
        command.arg("--log-filter=info,ringside_runtime=debug");
        if let Some(clock) = clock {
            clock.give_to(&mut command);
        }
        let as_shard = Identity { ring: ring.name(), shard: name, namespace };
        Proxy::start(command, as_shard, dir).unwrap()
    }
}

fn redirect(kubeconfig: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    std::fs::write(kubeconfig, text.replace(from, to)).unwrap();
}
