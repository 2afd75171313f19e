//! Proxies before a control plane, without sharder and controllers: tests do what these would.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use kube::CustomResourceExt as _;
use ringside_e2e::{
    compatibility::client::Endpoint,
    control_plane::{ControlPlane, Options},
    manifests,
    proxy::{Identity, Proxy},
    shard_identity::ShardIdentity,
    toolchain::{self, built},
    website::Website,
};
use ringside_ring::{ClusterRing, RingLabels};

pub(crate) const NAMESPACE: &str = "default";
const RING: &str = "websites";

/// The ring, up to its spec, and a ServiceAccount that may do everything: which rights a proxy needs is tested elsewhere.
const SETTING: &str = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: shard, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: shard}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: shard, namespace: default}]
---
apiVersion: sharding.timebertt.dev/v1alpha1
kind: ClusterRing
metadata: {name: websites}
spec: ";

pub(crate) struct Proxies {
    pub(crate) control_plane: ControlPlane,
    pub(crate) program: PathBuf,
}

impl Proxies {
    /// Starts a control plane with a ring of this spec.
    pub(crate) async fn start(spec: &str) -> Self {
        let program = built(toolchain::ringside).await.unwrap().proxy;
        let control_plane = ControlPlane::start(Options::default()).await.unwrap();
        let client = control_plane.client();
        for definition in [ClusterRing::crd(), Website::crd()] {
            manifests::define(&client, &definition).await.unwrap();
        }
        manifests::apply(&client, &manifests::parse(&format!("{SETTING}{spec}\n")).unwrap()).await.unwrap();
        Self { control_plane, program }
    }

    /// A Pod for a proxy, with a kubeconfig that connects straight to the API server.
    pub(crate) async fn identity(&self, shard: &str) -> ShardIdentity {
        let control_plane = &self.control_plane;
        ShardIdentity::create(control_plane, NAMESPACE, "shard", shard, control_plane.dir()).await.unwrap()
    }

    /// What runs a proxy with that kubeconfig.
    pub(crate) fn command(&self, kubeconfig: &Path, options: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(options).arg("--kubeconfig").arg(kubeconfig);
        command
    }

    /// Starts a proxy by a command that knows the way to the API server.
    pub(crate) fn begin(&self, shard: &str, mut command: Command) -> Proxy {
        command.arg("--log-filter=info,ringside_proxy=debug,ringside_runtime=debug");
        let identity = Identity { ring: RING, shard, namespace: NAMESPACE };
        Proxy::start(command, identity, self.control_plane.dir()).unwrap()
    }

    /// The same, and waits until it is ready.
    pub(crate) async fn start_proxy(&self, shard: &str, command: Command) -> Proxy {
        let proxy = self.begin(shard, command);
        proxy.until_ready().await.unwrap();
        proxy
    }

    /// A proxy that reaches the API server at `url`.
    pub(crate) async fn proxy_by(&self, shard: &str, url: &str, options: &[&str]) -> Proxy {
        let identity = self.identity(shard).await;
        identity.connect_to(&self.control_plane, url).unwrap();
        self.start_proxy(shard, self.command(identity.kubeconfig(), options)).await
    }

    /// A proxy that reaches the API server itself.
    pub(crate) async fn proxy(&self, shard: &str, options: &[&str]) -> Proxy {
        self.proxy_by(shard, &self.control_plane.url(), options).await
    }
}

/// The labels of the ring.
pub(crate) fn labels() -> RingLabels {
    RingLabels::of(&RING.parse().unwrap())
}

/// A proxy, as its controller knows it.
pub(crate) fn endpoint(proxy: &Proxy) -> Endpoint {
    let token = std::fs::read_to_string(proxy.access.join("token")).unwrap();
    Endpoint::new(([127, 0, 0, 1], proxy.port).into(), &proxy.access.join("ca.crt"), &token).unwrap()
}
