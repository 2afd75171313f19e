//! A control plane, a sharder, a ring, and shards that are a Pod, a token and a Lease: none has a proxy or a controller.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Request;
use k8s_openapi::{
    api::{
        authentication::v1::TokenRequest,
        coordination::v1::Lease,
        core::v1::{ConfigMap, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use ringside_e2e::{
    control_plane::client_of,
    eventually::eventually,
    manifests,
    plain_shard::PlainShard,
    ring_status::{condition, status, until_condition},
    shard_identity::ShardIdentity,
    system::{Settings, System, metrics},
    website::{Website, WebsiteSpec},
};
use ringside_ring::{ClusterRing, RingLabels, labels::LEASE_TOKEN_POD};
use serde_json::{Value, json};

pub(crate) use ringside_e2e::website::child;

use crate::planes::{Keeps, plane};

pub(crate) const DEADLINE: Duration = Duration::from_secs(90);
/// No shard loses its Lease for a machine that is slow.
const LEASE: Duration = Duration::from_secs(60);
/// The service account of the shards.
pub(crate) const SHARDS: &str = "website-controller";
/// The service account of a controller that has nothing to do with the ring.
pub(crate) const OTHERS: &str = "another-controller";

/// What both accounts may do in NAMESPACE: the fence is to be what refuses, and nothing else.
const ROLES: &str = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: another-controller, namespace: NAMESPACE}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: everything-of-the-ring}
rules:
- {apiGroups: [web.example.com], resources: [websites, websites/status], verbs: ['*']}
- {apiGroups: [''], resources: [configmaps, secrets, pods, pods/eviction], verbs: ['*']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: everything-of-the-ring-in-NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: everything-of-the-ring}
subjects:
- {kind: ServiceAccount, name: website-controller, namespace: NAMESPACE}
- {kind: ServiceAccount, name: another-controller, namespace: NAMESPACE}
";

/// All that a test needs. The system has no shards of its own kind.
pub(crate) struct Fixture {
    shards: Mutex<Vec<PlainShard>>,
    pub(crate) system: System,
    pub(crate) admin: Client,
    pub(crate) keys: RingLabels,
    pub(crate) ring: &'static str,
}

impl Fixture {
    /// A ring whose spec has these fields besides its resources, on a plane of its own.
    pub(crate) async fn start(settings: Settings, spec: Value) -> Self {
        let mut system = System::start(settings).await.unwrap();
        system.start_sharders(1).await.unwrap();
        Self::at(system, "websites", spec).await
    }

    /// The same on a shared plane, with a ring and a namespace of this name.
    pub(crate) async fn on(keeps: Keeps, name: &'static str, spec: Value) -> Self {
        let system = System::on(&plane(keeps).await, name, keeps.settings()).await.unwrap();
        Self::at(system, name, spec).await
    }

    async fn at(system: System, ring: &'static str, spec: Value) -> Self {
        let roles = ROLES.replace("NAMESPACE", system.namespace());
        let control_plane = system.control_plane();
        manifests::apply(&control_plane.client(), &manifests::parse(&roles).unwrap()).await.unwrap();
        let kubeconfig = system.dir().join("admin.kubeconfig");
        control_plane.write_kubeconfig(&kubeconfig, control_plane.admin_token(), system.namespace()).unwrap();
        let (admin, keys) = (client_of(&kubeconfig).await.unwrap(), RingLabels::of(&ring.parse().unwrap()));
        let fixture = Self { shards: Mutex::default(), system, admin, keys, ring };
        fixture.apply_ring(spec).await;
        fixture
    }

    /// Shards `a` and `b`, and the fence in place. Without the policy that keeps labels, which would put right what the
    /// fence is to refuse.
    pub(crate) async fn fenced(name: &'static str) -> (Self, Client, Client) {
        Self::on(Keeps::Webhook, name, json!({"fence": "APIServer"})).await.with_shards().await
    }

    /// Adds shards `a` and `b`, and waits for the fence around them.
    pub(crate) async fn with_shards(self) -> (Self, Client, Client) {
        let (a, b) = (self.shard("a").await, self.shard("b").await);
        self.until_fenced("True").await;
        (self, a, b)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.system.namespace()
    }

    /// Gives the ring these fields, besides its resources and its namespace.
    pub(crate) async fn apply_ring(&self, spec: Value) {
        let mut ring = json!({
            "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing", "metadata": {"name": self.ring},
            "spec": {
                "resources": [{"group": "web.example.com", "resource": "websites", "controlledResources": [
                    {"group": "", "resource": "configmaps"}, {"group": "", "resource": "secrets"}]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace()}},
            },
        });
        let fields = spec.as_object().unwrap().clone();
        ring["spec"].as_object_mut().unwrap().extend(fields);
        let parameters = PatchParams::apply("test").force();
        self.rings().patch(self.ring, &parameters, &Patch::Apply(ring)).await.unwrap();
    }

    pub(crate) fn rings(&self) -> Api<ClusterRing> {
        Api::all(self.admin.clone())
    }

    /// A client with a token that is bound to the Pod of this name.
    pub(crate) async fn pod(&self, account: &str, name: &str) -> Client {
        let dir = self.system.dir();
        let identity =
            ShardIdentity::create(self.system.control_plane(), self.namespace(), account, name, dir).await.unwrap();
        client_of(identity.kubeconfig()).await.unwrap()
    }

    /// A client with a token of the shards' account that is bound to no Pod.
    pub(crate) async fn unbound(&self) -> Client {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), self.namespace());
        let answer =
            accounts.create_token_request(SHARDS, &PostParams::default(), &TokenRequest::default()).await.unwrap();
        let path = self.system.dir().join("unbound.kubeconfig");
        self.system.control_plane().write_kubeconfig(&path, &answer.status.unwrap().token, self.namespace()).unwrap();
        client_of(&path).await.unwrap()
    }

    /// A client of which the API server knows this name and nothing else, as with a token that lies in a Secret.
    pub(crate) async fn named(&self, user: &str) -> Client {
        let mut admin = Kubeconfig::read_from(self.system.dir().join("admin.kubeconfig")).unwrap();
        let infos = admin.auth_infos.iter_mut().filter_map(|user| user.auth_info.as_mut());
        infos.for_each(|info| info.impersonate = Some(user.to_owned()));
        let config = Config::from_custom_kubeconfig(admin, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// A shard that holds its Lease, and releases nothing.
    pub(crate) async fn shard(&self, name: &str) -> Client {
        let writer = self.pod(SHARDS, name).await;
        self.lease(name, Some(name)).await;
        writer
    }

    /// A shard's Lease, which says that its token is bound to this Pod.
    pub(crate) async fn lease(&self, name: &str, token_pod: Option<&str>) {
        let (ring, shard) = (self.ring.parse().unwrap(), name.parse().unwrap());
        let shard = PlainShard::join(&self.admin, self.namespace(), &ring, &shard, LEASE).await.unwrap();
        self.shards.lock().unwrap().push(shard);
        let labels = Patch::Merge(json!({"metadata": {"labels": {LEASE_TOKEN_POD: token_pod}}}));
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), self.namespace());
        leases.patch(name, &PatchParams::default(), &labels).await.unwrap();
    }

    /// Waits until the ring says so of its fence; returns the whole condition.
    pub(crate) async fn until_fenced(&self, status: &str) -> Condition {
        until_condition(&self.admin, &self.ring.parse().unwrap(), "Fenced", status, DEADLINE).await.unwrap()
    }

    pub(crate) async fn condition(&self, type_: &str) -> Result<Condition, String> {
        condition(&status(&self.admin, &self.ring.parse().unwrap()).await?, type_).cloned()
    }

    /// What the sharder counts of the ring.
    pub(crate) async fn sharder_metrics(&self) -> String {
        let port = self.system.sharders().next().unwrap().admin_port();
        let (all, of_ring) = (metrics(port).await.unwrap(), format!("ring=\"{}\"", self.ring));
        all.lines().filter(|line| line.contains(&of_ring)).map(|line| format!("{line}\n")).collect()
    }

    /// An object that belongs to `shard`, by whichever name does.
    pub(crate) async fn website_of(&self, shard: &str) -> Website {
        static CREATED: AtomicUsize = AtomicUsize::new(0);
        for _ in 0..100 {
            let name = format!("site-of-{shard}-{}", CREATED.fetch_add(1, Ordering::Relaxed));
            self.create(&self.admin, &name).await.unwrap();
            let owned = self.until_owned(&name).await;
            if self.shard_of(&owned.metadata).as_deref() == Some(shard) {
                return owned;
            }
        }
        panic!("of 100 objects {shard} has none");
    }

    /// The object, once it has an owner.
    pub(crate) async fn until_owned(&self, name: &str) -> Website {
        eventually(&format!("{name} has an owner"), DEADLINE, || async {
            let website = websites(&self.admin).get(name).await.map_err(|error| error.to_string())?;
            let shard = self.shard_of(&website.metadata);
            shard.map(|_| website).ok_or_else(|| "none".to_owned())
        })
        .await
        .unwrap()
    }

    pub(crate) async fn create(&self, by: &Client, name: &str) -> kube::Result<Website> {
        websites(by).create(&PostParams::default(), &Website::new(name, WebsiteSpec::default())).await
    }

    pub(crate) fn shard_of(&self, metadata: &ObjectMeta) -> Option<String> {
        metadata.labels.as_ref()?.get(&self.keys.shard).cloned()
    }

    /// Sets the labels of a Website as only an administrator or the sharder may.
    pub(crate) async fn label(&self, name: &str, shard: Option<&str>, drain: Option<&str>) -> Website {
        let labels = json!({&self.keys.shard: shard, &self.keys.drain: drain});
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        websites(&self.admin).patch(name, &PatchParams::default(), &patch).await.unwrap()
    }
}

/// Sends this, as a JSON merge patch where it is a `PATCH` and the path does not say how it is applied.
pub(crate) async fn ask(client: &Client, method: &str, path: &str, body: &str) -> kube::Result<String> {
    let content = match (method, path.contains("fieldManager=")) {
        ("PATCH", true) => "application/apply-patch+yaml",
        ("PATCH", false) => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder().method(method).uri(path).header("content-type", content);
    client.request_text(request.body(body.as_bytes().to_vec()).unwrap()).await
}

/// What a shard that has lost an object may send about it yet.
pub(crate) fn touch() -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {"touched": "late"}}}))
}

pub(crate) fn websites(client: &Client) -> Api<Website> {
    Api::default_namespaced(client.clone())
}

pub(crate) fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::default_namespaced(client.clone())
}

/// Fails unless the fence, and nothing else, has refused it.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(what: &str, outcome: kube::Result<T>) {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("ValidatingAdmissionPolicy") => {
        }
        other => panic!("{what} by a former owner: {other:?}"),
    }
}
