//! A control plane with a ring whose objects stand in the way of some namespaces only.
//!
//! The sharder writes them, and they are copied with another namespace selector each. Then a sharder serves the webhook that
//! does not lead: so no sharder restores what was copied, and no object is assigned after its creation, which would
//! cost the control plane time beside what is measured.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::Context as _;
use k8s_openapi::{
    api::{
        admissionregistration::v1::MutatingWebhookConfiguration,
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Service,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client, Config, CustomResourceExt as _, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use ringside_e2e::{
    control_plane::{ControlPlane, Options},
    eventually::eventually,
    manifests,
    ports::free_port,
    process::Process,
    shard_identity::ShardIdentity,
    toolchain::{self, Environment},
    website::Website,
};
use ringside_ring::{RingKind, RingName, manifest::definition};
use serde_json::{Value, json};

use crate::least::Least;

const NAMESPACE: &str = "ringside-system";
const ACCOUNT: &str = "sharder";
const RING: &str = "bench";
/// The key of the shard label for a ring of this name.
pub(crate) const SHARD_LABEL: &str = "shard.alpha.sharding.timebertt.dev/clusterring-";
const SHARDS: [&str; 3] = ["shard-0", "shard-1", "shard-2"];
/// The name of what is copied.
const COPY: &str = "copy";
/// The namespace, configuration and Service of the least webhook.
const LEAST: &str = "least";
/// The namespace and configuration of the same without conditions.
const BARE: &str = "bare";
const ELECTION: &str = "ringside-sharder";
const DEADLINE: Duration = Duration::from_secs(60);
/// Longer than any measurement: no process renews it.
const HELD_SECONDS: i32 = 24 * 60 * 60;

/// What stands in the way of creates in a namespace.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// The namespace.
    pub(crate) name: &'static str,
    pub(crate) policy: bool,
    pub(crate) webhook: Webhook,
}

/// Which webhook is called for a create.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Webhook {
    None,
    /// The sharder's.
    Sharder,
    /// One that does the least that a webhook can do.
    Least,
    /// The same, and the API server looks at nothing before it calls it.
    Bare,
}

/// All ways, the one without anything first.
pub(crate) const WAYS: [Way; 6] = [
    Way { name: "nothing", policy: false, webhook: Webhook::None },
    Way { name: "policy", policy: true, webhook: Webhook::None },
    Way { name: "webhook", policy: false, webhook: Webhook::Sharder },
    Way { name: "both", policy: true, webhook: Webhook::Sharder },
    Way { name: LEAST, policy: false, webhook: Webhook::Least },
    Way { name: BARE, policy: false, webhook: Webhook::Bare },
];

/// What is created.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    /// Where the API server serves it.
    pub(crate) path: &'static str,
    /// The field with what the object says.
    pub(crate) field: &'static str,
}

/// A built-in one and a custom one.
pub(crate) const KINDS: [Kind; 2] = [
    Kind { group: "", api_version: "v1", kind: "ConfigMap", plural: "configmaps", path: "/api/v1", field: "data" },
    Kind {
        group: "web.example.com",
        api_version: "web.example.com/v1",
        kind: "Website",
        plural: "websites",
        path: "/apis/web.example.com/v1",
        field: "spec",
    },
];

pub(crate) struct Ground {
    // Dropped in this order.
    _sharder: Process,
    _least: Least,
    control_plane: ControlPlane,
    /// Calls that failed before the webhook was there.
    failed_before: usize,
}

impl Ground {
    /// With this sharder, or with one that is built.
    pub(crate) async fn start(program: Option<PathBuf>) -> anyhow::Result<Self> {
        let program = match program {
            Some(program) => program,
            None => {
                let build = || toolchain::ringside(&Environment::of_process());
                tokio::task::spawn_blocking(build).await??.sharder
            }
        };
        let options = Options::default();
        let control_plane = ControlPlane::start(options).await?;
        let client = control_plane.client();
        namespaces(&client).await?;
        account(&client).await?;
        // Another user than the one who creates objects: what the sharder itself writes is not the policy's business.
        let identity = ShardIdentity::create(&control_plane, NAMESPACE, ACCOUNT, ACCOUNT, control_plane.dir()).await?;
        let (webhook_port, admin_port) = (free_port()?, free_port()?);
        let sharder = |number: usize| {
            let mut command = Command::new(&program);
            command
                .arg("--kubeconfig")
                .arg(identity.kubeconfig())
                .args(["--webhook-listen", &format!("127.0.0.1:{webhook_port}")])
                .args(["--admin-listen", &format!("127.0.0.1:{admin_port}")]);
            Process::spawn("sharder", &command, &control_plane.dir().join(format!("sharder-{number}.log")))
        };
        manifests::define(&client, &definition(RingKind::ClusterRing)).await?;
        let first = sharder(1)?;
        ring(&client).await?;
        let least = Least::start(&format!("{LEAST}.{NAMESPACE}.svc")).await?;
        put_in_the_way(&client, webhook_port, &least).await?;
        first.terminate()?;
        first.wait(DEADLINE).await?;
        retire(&client).await?;
        let mut ground = Self { _sharder: sharder(2)?, _least: least, control_plane, failed_before: 0 };
        ground.until_in_place().await?;
        ground.failed_before = ground.failed_open().await?;
        Ok(ground)
    }

    /// A client with connections of its own.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let kubeconfig = Kubeconfig::read_from(self.control_plane.kubeconfig_path())?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// How many calls of the webhook failed, and let the create pass.
    pub(crate) async fn failed_open(&self) -> anyhow::Result<usize> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let metrics = self.control_plane.client().request_text(request).await?;
        let failed = metrics.lines().filter(|line| line.starts_with("apiserver_admission_webhook_fail_open_count{"));
        let counts = failed.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        Ok(counts.sum::<usize>() - self.failed_before)
    }

    /// Waits until the API server does for each namespace what it should. A drain label that a user sets on a new object is
    /// taken off by the policy.
    async fn until_in_place(&self) -> anyhow::Result<()> {
        let client = self.control_plane.client();
        let drain = SHARD_LABEL.replacen("shard", "drain", 1) + &suffix(RING);
        let drain = drain.as_str();
        for way in WAYS {
            eventually("the API server has what stands in the way", DEADLINE, || async {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("try-{}", rand::random::<u32>()), "labels": {drain: "x"}}});
                let request = http::Request::post(format!("/api/v1/namespaces/{}/configmaps?dryRun=All", way.name));
                let request =
                    request.header(http::header::CONTENT_TYPE, "application/json").body(object.to_string().into());
                let answer = client.request_text(request.map_err(|error| error.to_string())?).await;
                let answer: Value =
                    serde_json::from_str(&answer.map_err(|error| error.to_string())?).unwrap_or_default();
                let labels = &answer["metadata"]["labels"];
                let (labelled, cleaned) = (labels.to_string().contains(SHARD_LABEL), labels.get(drain).is_none());
                let expected = (way.webhook != Webhook::None, way.policy || way.webhook == Webhook::Sharder);
                if (labelled, cleaned) == expected {
                    Ok(())
                } else {
                    Err(format!("{}: {labelled} {cleaned}", way.name))
                }
            })
            .await?;
        }
        Ok(())
    }
}

fn suffix(ring: &str) -> String {
    let name = ring.parse::<RingName>().map(|ring| ring.made_for()).unwrap_or_default();
    name.trim_start_matches("sharding-clusterring-").to_owned()
}

fn selector(chosen: impl Fn(&Way) -> bool) -> Value {
    let names: Vec<_> = WAYS.iter().filter(|way| chosen(way)).map(|way| way.name).collect();
    json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}]})
}

async fn namespaces(client: &Client) -> anyhow::Result<()> {
    let names = WAYS.iter().map(|way| way.name).chain([NAMESPACE]);
    let objects: Vec<String> =
        names.map(|name| format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n")).collect();
    manifests::apply(client, &manifests::parse(&objects.join("---\n"))?).await?;
    // The API server finds the webhook as in a cluster, by its Service: so it speaks HTTP/1.1 to it, by several connections.
    for name in ["ringside-sharder", LEAST] {
        let service: Service = serde_json::from_value(json!({"metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": "localhost"}}))?;
        Api::<Service>::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &service).await?;
    }
    Ok(())
}

/// An account that may do everything.
async fn account(client: &Client) -> anyhow::Result<()> {
    let objects = [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]}),
    ];
    let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
    manifests::apply(client, &manifests::parse(&objects.join("\n---\n"))?).await
}

/// A ring with shards that are there, by their Leases.
async fn ring(client: &Client) -> anyhow::Result<()> {
    manifests::define(client, &Website::crd()).await?;
    let resources: Vec<_> = KINDS.iter().map(|kind| json!({"group": kind.group, "resource": kind.plural})).collect();
    let ring = json!({"apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing", "metadata": {"name": RING},
        "spec": {"resources": resources, "namespaceSelector": selector(|way| way.webhook == Webhook::Sharder)}});
    manifests::apply(client, &manifests::parse(&ring.to_string())?).await?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    for shard in SHARDS {
        let mut lease = held(shard, shard);
        lease.labels_mut().insert("alpha.sharding.timebertt.dev/clusterring".to_owned(), RING.to_owned());
        leases.create(&PostParams::default(), &lease).await?;
    }
    Ok(())
}

fn held(name: &str, holder: &str) -> Lease {
    let now = Some(MicroTime(Timestamp::now()));
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(HELD_SECONDS),
        acquire_time: now.clone(),
        renew_time: now,
        ..LeaseSpec::default()
    };
    let mut lease = Lease { spec: Some(spec), ..Lease::default() };
    lease.metadata.name = Some(name.to_owned());
    lease
}

fn objects(client: &Client, kind: &str) -> Api<DynamicObject> {
    let plural = format!("{}s", kind.to_lowercase()).replace("policys", "policies");
    let resource = ApiResource {
        group: "admissionregistration.k8s.io".into(),
        version: "v1".into(),
        api_version: "admissionregistration.k8s.io/v1".into(),
        kind: kind.into(),
        plural,
    };
    Api::all_with(client.clone(), &resource)
}

/// Copies what the sharder wrote for the ring, for the namespaces of each way.
async fn put_in_the_way(client: &Client, webhook_port: u16, least: &Least) -> anyhow::Result<()> {
    for kind in ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"] {
        copy(client, kind, COPY, |spec| {
            if kind == "MutatingAdmissionPolicyBinding" {
                spec["spec"]["policyName"] = json!(COPY);
            } else {
                spec["spec"]["matchConstraints"]["namespaceSelector"] = selector(|way| way.policy);
            }
        })
        .await?;
    }
    copy(client, "MutatingWebhookConfiguration", COPY, |object| {
        let webhook = &mut object["webhooks"][0];
        webhook["namespaceSelector"] = selector(|way| way.webhook == Webhook::Sharder);
        webhook["clientConfig"]["service"]["port"] = json!(webhook_port);
    })
    .await?;
    for (name, called) in [(LEAST, Webhook::Least), (BARE, Webhook::Bare)] {
        copy(client, "MutatingWebhookConfiguration", name, |object| {
            let webhook = &mut object["webhooks"][0];
            webhook["namespaceSelector"] = selector(|way| way.webhook == called);
            let service = json!({"namespace": NAMESPACE, "name": LEAST, "port": least.port()});
            webhook["clientConfig"] = json!({"service": service, "caBundle": least.authority()});
            if called == Webhook::Bare {
                webhook["matchConditions"] = json!([]);
            }
        })
        .await?;
    }
    Ok(())
}

/// Copies what the sharder wrote for the ring, as soon as it has, under this name.
async fn copy(client: &Client, kind: &str, to: &str, change: impl Fn(&mut Value)) -> anyhow::Result<()> {
    let (api, name) = (objects(client, kind), format!("sharding-clusterring-{}", suffix(RING)));
    let written = eventually("the sharder has written for the ring", DEADLINE, || async {
        api.get(&name).await.map_err(|error| error.to_string())
    })
    .await?;
    let mut copy = written.data;
    change(&mut copy);
    copy["apiVersion"] = json!("admissionregistration.k8s.io/v1");
    copy["kind"] = json!(kind);
    copy["metadata"] = json!({"name": to});
    let parameters = PatchParams::apply("bench").force();
    api.patch(to, &parameters, &Patch::Apply(copy)).await.with_context(|| format!("copy the {kind}"))?;
    Ok(())
}

/// Takes off what was copied, and lets no other sharder lead.
async fn retire(client: &Client) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let election = json!({"spec": held(ELECTION, "bench").spec});
    leases.patch(ELECTION, &PatchParams::default(), &Patch::Merge(election)).await?;
    let name = format!("sharding-clusterring-{}", suffix(RING));
    for kind in ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"] {
        objects(client, kind).delete(&name, &DeleteParams::default()).await?;
    }
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    webhooks.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}
