//! A control plane, proxies that are a shard each, and nothing else: the tests are sharders and controllers.

use std::{path::PathBuf, process::Command, time::Duration};

use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, CustomResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    client::Body,
};
use ringside_e2e::{
    control_plane::{ControlPlane, Options, client_of},
    eventually::eventually,
    manifests,
    proxy::{Identity, Proxy},
    shard_identity::ShardIdentity,
    toolchain::{self, built},
};
use ringside_ring::{ClusterRing, labels::RingLabels};
use serde_json::{Value, json};

pub(crate) const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// Shorter than the time to a watch's first bookmark, a minute.
pub(crate) const SOON: Duration = Duration::from_secs(40);
/// How long an object rests before it is let go.
pub(crate) const GRACE: Duration = Duration::from_millis(200);

/// The ring, and a ServiceAccount that may do everything.
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
metadata: {name: moves}
spec:
  drainDeadlineSeconds: 5
  resources: [{group: '', resource: secrets}]
";

/// What all shards stand on.
pub(crate) struct World {
    control_plane: ControlPlane,
    proxy: PathBuf,
}

/// A shard of its own: what one client still sees holds nothing of the others.
pub(crate) struct Fixture {
    pub(crate) shard: String,
    pub(crate) direct: Client,
    pub(crate) proxied: Client,
    pub(crate) labels: RingLabels,
    pub(crate) secrets: Api<Secret>,
    pub(crate) proxy: Proxy,
}

impl World {
    pub(crate) async fn start() -> Self {
        let control_plane = ControlPlane::start(Options::default()).await.unwrap();
        let client = control_plane.client();
        manifests::define(&client, &ClusterRing::crd()).await.unwrap();
        manifests::apply(&client, &manifests::parse(SETTING).unwrap()).await.unwrap();
        let programs = built(toolchain::ringside).await.unwrap();
        Self { control_plane, proxy: programs.proxy }
    }

    /// A shard of this name.
    pub(crate) async fn shard(&self, name: &str) -> Fixture {
        let (control_plane, dir) = (&self.control_plane, self.control_plane.dir());
        let shard = ShardIdentity::create(control_plane, "default", "shard", name, dir).await.unwrap();
        let mut command = Command::new(&self.proxy);
        command
            .args(["--drain-grace", &format!("{}ms", GRACE.as_millis())])
            .arg("--kubeconfig")
            .arg(shard.kubeconfig());
        let identity = Identity { ring: "moves", shard: name, namespace: "default" };
        let proxy = Proxy::start(command, identity, dir).unwrap();
        proxy.until_ready().await.unwrap();
        let (proxied, direct) = (proxy.client().await.unwrap(), client_of(shard.kubeconfig()).await.unwrap());
        let fixture = Fixture {
            shard: name.to_owned(),
            secrets: Api::namespaced(direct.clone(), "default"),
            labels: RingLabels::of(&"moves".parse().unwrap()),
            direct,
            proxied,
            proxy,
        };
        // As each client begins: no watch goes on from before.
        assert_eq!(fixture.list(&format!("{SECRETS}?limit=1")).await.0, StatusCode::OK);
        fixture
    }
}

impl Fixture {
    /// Makes a Secret of the shard, and returns its resourceVersion.
    pub(crate) async fn create(&self, name: &str) -> String {
        self.create_for(name, "shop").await
    }

    /// The same, of another app.
    pub(crate) async fn create_for(&self, name: &str, app: &str) -> String {
        let labels = json!({&self.labels.shard: self.shard, "app": app});
        let secret = json!({"metadata": {"name": name, "labels": labels}, "type": "Opaque"});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let created = self.secrets.create(&PostParams::default(), &secret).await.unwrap();
        created.metadata.resource_version.unwrap()
    }

    /// As the sharder does it.
    pub(crate) async fn drain(&self, name: &str, value: &str) {
        self.label(name, &json!({&self.labels.drain: value})).await;
    }

    pub(crate) async fn label(&self, name: &str, labels: &Value) {
        let patch = json!({"metadata": {"labels": labels}});
        self.secrets.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub(crate) async fn is_let_go(&self, name: &str) -> bool {
        let labels = self.secrets.get(name).await.unwrap().metadata.labels.unwrap_or_default();
        !labels.contains_key(&self.labels.shard)
    }

    pub(crate) async fn until_let_go(&self, name: &str) {
        let sought = format!("the proxy lets go of {name}");
        let let_go = eventually(&sought, SOON, || async {
            if self.is_let_go(name).await { Ok(()) } else { Err("not yet".to_owned()) }
        });
        let_go.await.unwrap();
    }

    /// What the proxy's metrics say of its drains: how many there are, and the age of the oldest.
    pub(crate) async fn drains(&self) -> (f64, f64) {
        let metrics = ringside_e2e::system::metrics(self.proxy.admin_port).await.unwrap();
        let value = |name: &str| {
            let found = metrics.lines().find(|line| line.starts_with(name)).and_then(|line| line.rsplit(' ').next());
            found.unwrap().parse().unwrap()
        };
        (value("ringside_proxy_drains{"), value("ringside_proxy_oldest_drain_seconds{"))
    }

    /// What the proxy has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.proxy.process.log()).unwrap()
    }

    /// Asks the proxy.
    pub(crate) async fn get(&self, target: &str, headers: &[(&str, &str)]) -> Response<Body> {
        let mut request = Request::get(target).header(header::ACCEPT_ENCODING, "identity");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.proxied.send(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    /// Asks the proxy for a list.
    pub(crate) async fn list(&self, target: &str) -> (StatusCode, Value) {
        let response = self.get(target, &[("accept", "application/json")]).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }
}
