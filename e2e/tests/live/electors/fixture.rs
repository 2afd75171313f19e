//! A control plane that writes down who asks for what, and proxies in front of it.

use std::{path::Path, process::Command, time::Duration};

use kube::CustomResourceExt as _;
use ringside_e2e::{
    control_plane::{ControlPlane, Options},
    manifests,
    process::Folder,
    proxy::{Identity, Proxy},
    shard_identity::ShardIdentity,
    toolchain::{self, built},
    website::Website,
};

/// Enough for a machine that runs other tests beside.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
pub(crate) const NAMESPACE: &str = "default";
pub(crate) const SERVICE_ACCOUNT: &str = "website-controller";
pub(crate) const MIGHTY: &str = "mighty";
/// As the audit log has it.
pub(crate) const USER: &str = "system:serviceaccount:default:website-controller";

/// An account of a controller that may do anything, and what one needs whose library patches the lock.
const ACCOUNTS: &str = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: mighty, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: mighty}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: mighty, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: patches-its-lock, namespace: default}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: patches-its-lock, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: patches-its-lock}
subjects: [{kind: ServiceAccount, name: website-controller, namespace: default}]
";

/// See the module.
pub(crate) struct Fixture {
    pub(crate) control_plane: ControlPlane,
    pub(crate) folder: Folder,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        let options = Options { audit: true, ..Options::default() };
        let control_plane = ControlPlane::start(options).await.unwrap();
        let client = control_plane.client();
        manifests::define(&client, &Website::crd()).await.unwrap();
        for file in ["kustomize/base/crd/clusterring.yaml", "example/roles.yaml"] {
            manifests::apply(&client, &deploy(file)).await.unwrap();
        }
        manifests::apply(&client, &manifests::parse(ACCOUNTS).unwrap()).await.unwrap();
        manifests::served(&client, "clusterrings.sharding.timebertt.dev").await.unwrap();
        manifests::apply(&client, &deploy("example/ring.yaml")).await.unwrap();
        Self { control_plane, folder: Folder::create("electors").unwrap() }
    }

    /// A Pod of the controller, and its credentials.
    pub(crate) async fn identity(&self, name: &str, account: &str) -> ShardIdentity {
        let dir = self.folder.path();
        ShardIdentity::create(&self.control_plane, NAMESPACE, account, name, dir).await.unwrap()
    }

    /// Starts the proxy of a shard of this account, and waits until it is ready.
    pub(crate) async fn shard(&self, name: &str, account: &str, options: &[&str]) -> Proxy {
        let (dir, identity) = (self.folder.path(), self.identity(name, account).await);
        let programs = built(toolchain::ringside).await.unwrap();
        let mut command = Command::new(programs.proxy);
        command.arg("--kubeconfig").arg(identity.kubeconfig()).args(options);
        let proxy =
            Proxy::start(command, Identity { ring: "websites", shard: name, namespace: NAMESPACE }, dir).unwrap();
        proxy.until_ready().await.unwrap();
        proxy
    }
}

fn deploy(file: &str) -> Vec<kube::core::DynamicObject> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file);
    let mut objects = manifests::read(&path).unwrap();
    objects.retain(|object| !matches!(object.types.as_ref(), Some(types) if types.kind == "Deployment"));
    objects
}
