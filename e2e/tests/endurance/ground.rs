//! What the cases stand on: a control plane with a ring, and proxies in front of it, without sharder and controllers.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, CustomResourceExt as _,
    api::{ObjectMeta, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use ringside_e2e::{
    control_plane::{ControlPlane, Options},
    eventually::eventually,
    manifests,
    ports::free_port,
    process::{Folder, Process, keep_logs},
    shard_identity::ShardIdentity,
    toolchain::{self, Environment},
    website::Website,
};
use ringside_ring::{RingLabels, RingName};
use ringside_runtime::{admin::Probe, probe};

use super::report;

/// For what a machine that runs other tests beside may take its time for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const NAMESPACE: &str = "default";
const SERVICE_ACCOUNT: &str = "website-controller";
/// The ring of the example manifests.
const RING: &str = "websites";

/// A control plane with all that one proxy needs.
pub(crate) struct Ground {
    pub(crate) control_plane: ControlPlane,
    pub(crate) folder: Folder,
    logs_kept: AtomicBool,
}

impl Ground {
    pub(crate) async fn start() -> Self {
        let options = Options { controller_manager: false, ..Options::default() };
        let control_plane = ControlPlane::start(options).await.unwrap();
        let client = control_plane.client();
        manifests::define(&client, &Website::crd()).await.unwrap();
        for file in ["clusterring-crd.yaml", "proxy-roles.yaml", "example/roles.yaml"] {
            manifests::apply(&client, &deploy(file)).await.unwrap();
        }
        manifests::served(&client, "clusterrings.sharding.timebertt.dev").await.unwrap();
        manifests::apply(&client, &deploy("example/ring.yaml")).await.unwrap();
        Self { control_plane, folder: Folder::create("endurance").unwrap(), logs_kept: AtomicBool::new(false) }
    }

    pub(crate) fn client(&self) -> Client {
        self.control_plane.client()
    }

    /// A Pod for a proxy, with a kubeconfig that connects straight to the API server.
    pub(crate) async fn identity(&self, shard: &str) -> ShardIdentity {
        let dir = self.folder.path();
        ShardIdentity::create(&self.control_plane, NAMESPACE, SERVICE_ACCOUNT, shard, dir).await.unwrap()
    }

    /// The same with the API server at `url`.
    pub(crate) async fn identity_by(&self, shard: &str, url: &str) -> ShardIdentity {
        let identity = self.identity(shard).await;
        let kubeconfig = fs::read_to_string(identity.kubeconfig()).unwrap();
        fs::write(identity.kubeconfig(), kubeconfig.replace(&self.control_plane.url(), url)).unwrap();
        identity
    }

    /// A proxy that reaches the API server at `url`.
    pub(crate) async fn proxy_by(&self, shard: &str, url: &str) -> Proxy {
        let identity = self.identity_by(shard, url).await;
        Proxy::start(self, shard, identity.kubeconfig(), &Surroundings::default()).await
    }

    /// A proxy that reaches the API server itself.
    pub(crate) async fn proxy(&self, shard: &str) -> Proxy {
        self.proxy_by(shard, &self.control_plane.url()).await
    }

    /// Creates an object of that shard, without a proxy.
    pub(crate) async fn create(&self, shard: &str, name: &str, bytes: usize) {
        self.objects().create(&PostParams::default(), &config_map(shard, name, bytes)).await.unwrap();
    }

    pub(crate) fn objects(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client(), NAMESPACE)
    }
}

/// Keeps the logs when the case fails that has this.
pub(crate) struct LogsOnPanic<'a>(pub(crate) &'a Ground);

impl Drop for LogsOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.0.logs_kept.swap(true, Ordering::Relaxed) {
            let kept = keep_logs(&[self.0.folder.path(), self.0.control_plane.dir()]);
            report(&format!("the logs are kept in {kept:?}"));
        }
    }
}

/// For a case that has all of it.
impl Drop for Ground {
    fn drop(&mut self) {
        drop(LogsOnPanic(self));
    }
}

/// An object that is that shard's.
pub(crate) fn config_map(shard: &str, name: &str, bytes: usize) -> ConfigMap {
    let ring: RingName = RING.parse().unwrap();
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(RingLabels::of(&ring).shard, shard.to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some([("data".to_owned(), "x".repeat(bytes))].into()),
        ..ConfigMap::default()
    }
}

/// How a proxy runs otherwise than beside the test.
#[derive(Default)]
pub(crate) struct Surroundings {
    /// What the proxy's command is an argument of.
    pub(crate) wrapper: Vec<String>,
    /// More of its options.
    pub(crate) options: Vec<String>,
}

/// A running proxy, and the way to it.
pub(crate) struct Proxy {
    pub(crate) process: Process,
    pub(crate) port: u16,
    pub(crate) access: PathBuf,
    pub(crate) admin_port: u16,
}

impl Proxy {
    /// Starts one and waits until it is ready.
    pub(crate) async fn start(ground: &Ground, shard: &str, kubeconfig: &Path, surroundings: &Surroundings) -> Self {
        let proxy = Self::begin(ground, shard, kubeconfig, surroundings);
        proxy.until_ready().await;
        proxy
    }

    /// Starts one.
    pub(crate) fn begin(ground: &Ground, shard: &str, kubeconfig: &Path, surroundings: &Surroundings) -> Self {
        let access = ground.folder.path().join(format!("{shard}.access"));
        fs::create_dir_all(&access).unwrap();
        let (port, admin_port) = (free_port().unwrap(), free_port().unwrap());
        let mut line = surroundings.wrapper.clone();
        line.push(program().display().to_string());
        line.extend(["--ring", RING, "--shard-name", shard, "--lease-namespace", NAMESPACE].map(str::to_owned));
        line.push(format!("--kubeconfig={}", kubeconfig.display()));
        line.push(format!("--access-dir={}", access.display()));
        line.push(format!("--listen=127.0.0.1:{port}"));
        line.push(format!("--admin-listen=127.0.0.1:{admin_port}"));
        line.extend(surroundings.options.iter().cloned());
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).env("RINGSIDE_LOG_FILTER", "info,ringside_proxy=debug,ringside_runtime=debug");
        let log = ground.folder.path().join(format!("{shard}-proxy.log"));
        Self { process: Process::spawn(&format!("{shard}-proxy"), &command, &log).unwrap(), port, access, admin_port }
    }

    pub(crate) async fn until_ready(&self) {
        let address = (Ipv4Addr::LOCALHOST, self.admin_port).into();
        let ready = eventually("the proxy is ready", DEADLINE, || async {
            probe::ask(address, Probe::Ready, DEADLINE).await.map_err(|error| error.to_string())
        });
        if let Err(error) = ready.await {
            panic!("{error}; the end of its log:\n{}", self.process.log_tail());
        }
    }

    /// What a controller is given.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.access.join("kubeconfig")
    }

    /// kube's own client, as a controller uses it.
    pub(crate) async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    pub(crate) async fn objects(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client().await, NAMESPACE)
    }
}

fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| toolchain::ringside(&Environment::of_process()).unwrap().proxy)
}

fn deploy(file: &str) -> Vec<kube::core::DynamicObject> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file);
    let mut objects = manifests::read(&path).unwrap();
    objects.retain(|object| !matches!(object.types.as_ref(), Some(types) if types.kind == "Deployment"));
    objects
}
