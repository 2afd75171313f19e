//! What the cases stand on: a control plane with a ring, and proxies in front of it, without sharder and controllers.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, CustomResourceExt as _,
    api::{ObjectMeta, PostParams},
};
use ringside_e2e::{
    control_plane::{ControlPlane, Options},
    manifests,
    process::Folder,
    proxy::{Identity, Proxy},
    shard_identity::ShardIdentity,
    toolchain::{self, Environment},
    website::Website,
};
use ringside_ring::{RingLabels, RingName};

/// For what a machine that runs other tests beside may take its time for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const NAMESPACE: &str = "default";
const SERVICE_ACCOUNT: &str = "website-controller";
/// The ring of the example manifests.
const RING: &str = "websites";

/// A control plane with all that one proxy needs.
pub(crate) struct Fixture {
    pub(crate) control_plane: ControlPlane,
    pub(crate) folder: Folder,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        let options = Options::default();
        let control_plane = ControlPlane::start(options).await.unwrap();
        let client = control_plane.client();
        manifests::define(&client, &Website::crd()).await.unwrap();
        for file in ["kustomize/base/crd/clusterring.yaml", "example/roles.yaml"] {
            manifests::apply(&client, &deploy(file)).await.unwrap();
        }
        manifests::served(&client, "clusterrings.sharding.timebertt.dev").await.unwrap();
        manifests::apply(&client, &deploy("example/ring.yaml")).await.unwrap();
        Self { control_plane, folder: Folder::create("endurance").unwrap() }
    }

    /// Where the API server is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.control_plane.url().trim_start_matches("https://").parse().unwrap()
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

    /// Starts a proxy by a command that knows the way to the API server.
    pub(crate) fn begin(&self, shard: &str, mut command: Command) -> Proxy {
        command.arg("--log-filter=info,ringside_proxy=debug,ringside_runtime=debug");
        let identity = Identity { ring: RING, shard, namespace: NAMESPACE };
        Proxy::start(command, identity, self.folder.path()).unwrap()
    }

    /// The same, and waits until it is ready.
    pub(crate) async fn start_proxy(&self, shard: &str, command: Command) -> Proxy {
        let proxy = self.begin(shard, command);
        proxy.until_ready().await.unwrap();
        proxy
    }

    /// A proxy with that kubeconfig.
    pub(crate) async fn proxy_with(&self, shard: &str, kubeconfig: &Path) -> Proxy {
        let mut command = command();
        command.arg("--kubeconfig").arg(kubeconfig);
        self.start_proxy(shard, command).await
    }

    /// A proxy that reaches the API server at `url`.
    pub(crate) async fn proxy_by(&self, shard: &str, url: &str) -> Proxy {
        self.proxy_with(shard, self.identity_by(shard, url).await.kubeconfig()).await
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

/// The objects that a proxy shows.
pub(crate) async fn objects_by(proxy: &Proxy) -> Api<ConfigMap> {
    Api::namespaced(proxy.client().await.unwrap(), NAMESPACE)
}

/// What runs a proxy beside the test.
pub(crate) fn command() -> Command {
    Command::new(program())
}

pub(crate) fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| toolchain::ringside(&Environment::of_process()).unwrap().proxy)
}

fn deploy(file: &str) -> Vec<kube::core::DynamicObject> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file);
    let mut objects = manifests::read(&path).unwrap();
    objects.retain(|object| !matches!(object.types.as_ref(), Some(types) if types.kind == "Deployment"));
    objects
}
