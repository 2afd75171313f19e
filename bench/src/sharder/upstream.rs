//! The alternative: the sharder that the thesis's author keeps, built from a checkout of its repository.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _, api::PostParams};
use ringside_e2e::{
    control_plane::{ControlPlane, Options},
    eventually::eventually,
    manifests,
    process::{Folder, Process},
    shard_identity::ShardIdentity,
    system::NAMESPACE as OBJECTS,
};
use ringside_ring::RingLabels;
use serde_json::{Value, json};

use super::{objects::secret, running::IN_RING};
use crate::say;

/// What the API server calls it.
pub(super) const USER: &str = "system:serviceaccount:sharding-system:sharder";
const NAMESPACE: &str = "sharding-system";
const RING: &str = "bench";
/// The label of shard Leases, and its value here.
pub(super) const LEASE_LABEL: (&str, &str) = ("alpha.sharding.timebertt.dev/controllerring", RING);
const DEFINITION: &str = "config/crds/sharding.timebertt.dev_controllerrings.yaml";
/// Its replica has to become the leader first.
const DEADLINE: Duration = Duration::from_secs(60);
/// Its webhook always listens there.
const WEBHOOK: &str = "https://127.0.0.1:9443/";

/// The label keys of its ring's objects.
pub(super) fn labels() -> RingLabels {
    let key = |kind: &str| format!("{kind}.alpha.sharding.timebertt.dev/{RING}");
    RingLabels { shard: key("shard"), drain: key("drain") }
}

/// Its program, and the definition of its ring.
#[derive(Clone, Debug)]
pub struct Upstream {
    program: PathBuf,
    definition: PathBuf,
}

impl Upstream {
    /// Builds it from a checkout of github.com/timebertt/kubernetes-controller-sharding, into `target/bench`.
    ///
    /// # Errors
    /// When it is none, or can't be built.
    pub fn build(checkout: &Path) -> anyhow::Result<Self> {
        let definition = checkout.join(DEFINITION);
        ensure!(definition.is_file(), "{} is no checkout of upstream: it has no {DEFINITION}", checkout.display());
        let folder = std::env::current_dir()?.join("target/bench");
        fs::create_dir_all(&folder)?;
        let program = folder.join("upstream-sharder");
        say(format_args!("building upstream's sharder with Go: minutes the first time"));
        let mut go = Command::new("go");
        go.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg("./cmd/sharder").current_dir(checkout);
        go.env("GOWORK", "off").env("CGO_ENABLED", "0").stdin(Stdio::null());
        let status = go.status().context("start `go build`")?;
        ensure!(status.success(), "`go build ./cmd/sharder` in {} ended with {status}", checkout.display());
        Ok(Self { program, definition })
    }

    /// Starts a control plane for it.
    pub(super) async fn start(&self) -> anyhow::Result<Running> {
        let control_plane = ControlPlane::start(Options { audit: true, ..Options::default() }).await?;
        let client = control_plane.client();
        let object = |kind: &str, name: &str, more: Value| {
            let mut fields = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
            if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
                fields.extend(more);
            }
            fields.to_string()
        };
        let in_namespace = json!({"metadata": {"name": "sharder", "namespace": NAMESPACE}});
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "sharder", "namespace": NAMESPACE}],
        });
        for manifest in [
            object("Namespace", NAMESPACE, json!({})),
            object("ServiceAccount", "sharder", in_namespace),
            object("ClusterRoleBinding", "sharder", binding),
        ] {
            manifests::apply(&client, &manifests::parse(&manifest)?).await?;
        }
        manifests::apply(&client, &manifests::read(&self.definition)?).await?;
        manifests::served(&client, "controllerrings.sharding.timebertt.dev").await?;
        let folder = Folder::create("upstream")?;
        Ok(Running { sharder: None, identity: None, control_plane, upstream: self.clone(), folder })
    }
}

/// A control plane with it.
pub(super) struct Running {
    // Dropped in this order.
    sharder: Option<Process>,
    identity: Option<ShardIdentity>,
    control_plane: ControlPlane,
    upstream: Upstream,
    folder: Folder,
}

impl Running {
    /// Starts one replica, with the limits of its client lifted.
    pub(super) async fn start_sharder(&mut self) -> anyhow::Result<()> {
        let dir = self.folder.path();
        let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        fs::write(dir.join("tls.crt"), certificate.cert.pem())?;
        fs::write(dir.join("tls.key"), certificate.signing_key.serialize_pem())?;
        let config = json!({
            "apiVersion": "config.sharding.timebertt.dev/v1alpha1",
            "kind": "SharderConfig",
            "clientConnection": {"qps": 10_000, "burst": 10_000},
            "health": {"bindAddress": "0"},
            "metrics": {"bindAddress": "0"},
            "webhook": {
                "server": {"certDir": dir, "certName": "tls.crt", "keyName": "tls.key"},
                "config": {"clientConfig": {
                    "url": WEBHOOK, "caBundle": BASE64_STANDARD.encode(certificate.cert.pem()),
                }},
            },
        });
        fs::write(dir.join("config.yaml"), config.to_string())?;
        let identity = ShardIdentity::create(&self.control_plane, NAMESPACE, "sharder", "sharder-0", dir).await?;
        let mut command = Command::new(&self.upstream.program);
        command.arg("--config").arg(dir.join("config.yaml")).env("KUBECONFIG", identity.kubeconfig());
        command.env("HOSTNAME", "sharder-0").env("DISABLE_HTTP2", "true");
        self.sharder = Some(Process::spawn("upstream-sharder", &command, &dir.join("sharder.log"))?);
        self.identity = Some(identity);
        Ok(())
    }

    pub(super) fn sharder(&self) -> Option<&Process> {
        self.sharder.as_ref()
    }

    pub(super) fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Creates its ring, and has it scan all objects once its webhook answers: it assigns by its webhook alone, and
    /// what it looked at before has to wait for minutes.
    pub(super) async fn create_ring(&self, mut spec: Value) -> anyhow::Result<()> {
        self.apply(&spec).await?;
        self.until_webhook_answers().await?;
        // Another generation of the same ring.
        spec["namespaceSelector"]["matchExpressions"] = json!([{"key": IN_RING, "operator": "Exists"}]);
        self.apply(&spec).await
    }

    async fn until_webhook_answers(&self) -> anyhow::Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.control_plane.client(), OBJECTS);
        let (tried, labels) = (PostParams { dry_run: true, ..PostParams::default() }, labels());
        eventually("upstream's webhook answers", DEADLINE, || async {
            let made = secrets.create(&tried, &secret("tried")).await.map_err(|error| error.to_string())?;
            let has_shard = made.labels().contains_key(&labels.shard);
            has_shard.then_some(()).ok_or_else(|| "no shard".to_owned())
        })
        .await
        .with_context(|| self.sharder.as_ref().map(Process::log_tail).unwrap_or_default())
    }

    async fn apply(&self, spec: &Value) -> anyhow::Result<()> {
        let ring = json!({
            "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ControllerRing", "metadata": {"name": RING}, "spec": spec,
        });
        manifests::apply(&self.control_plane.client(), &manifests::parse(&ring.to_string())?).await
    }
}
