//! What all cases stand on: one control plane, objects of several owners, and two proxies, whose ways to the API server
//! differ.

use std::{collections::BTreeMap, path::Path, process::Command, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use http::{Method, StatusCode};
use kube::CustomResourceExt as _;
use ringside_e2e::{
    control_plane::{ControlPlane, Options},
    eventually::eventually,
    manifests,
    ports::free_port,
    process::Process,
    relay::{Offer, Relay, Script},
    shard_identity::ShardIdentity,
    toolchain::{self, Environment},
    website::Website,
};
use ringside_ring::{RingName, ShardName, labels::RingLabels};
use serde_json::{Value, json};

use super::{
    client::{Ask, Endpoint, Http},
    objects,
};

/// The ring of all cases.
const RING: &str = "compatibility";
/// A loaded machine takes its time.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Where the proxies' Pods are.
pub(crate) const NAMESPACE: &str = "default";

/// What is there before the first case.
const MANIFESTS: &str = include_str!("ground.yaml");

/// A proxy, the relay between it and the API server, and the way past both.
pub(crate) struct Shard {
    /// Through the proxy.
    pub(crate) proxied: Endpoint,
    /// As the same Pod, straight to the API server.
    pub(crate) direct: Endpoint,
    /// As the same Pod, to the relay: for answers by script.
    pub(crate) scripted: Endpoint,
    pub(crate) relay: Relay,
    /// What the relay speaks with the proxy.
    pub(crate) upstream: Http,
    pub(crate) process: Process,
    pub(crate) identity: ShardIdentity,
    /// What selects the shard's objects.
    pub(crate) selector: String,
    /// How their names begin.
    pub(crate) owns: &'static str,
}

/// The ground.
pub(crate) struct Ground {
    /// By HTTP/2 to the API server, as usual.
    pub(crate) main: Shard,
    /// By HTTP/1.1, as through a load balancer.
    pub(crate) plain: Shard,
    /// Answers for the group `echo.example.com`.
    pub(crate) aggregated: Relay,
    /// Before the proxies knew their ring, with an object after it.
    pub(crate) dawn: String,
    /// Before the first object of the cases.
    pub(crate) begin: String,
    /// After the last of them.
    pub(crate) end: String,
    admin: Endpoint,
    labels: RingLabels,
    pub(crate) control_plane: ControlPlane,
}

impl Ground {
    pub(crate) async fn start() -> Result<Arc<Self>> {
        let control_plane = ControlPlane::start(Options { controller_manager: false, ..Options::default() }).await?;
        let client = control_plane.client();
        let deploy = |file: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file);
        manifests::define(&client, &Website::crd()).await?;
        manifests::apply(&client, &manifests::read(&deploy("clusterring-crd.yaml"))?).await?;
        manifests::served(&client, "clusterrings.sharding.timebertt.dev").await?;
        manifests::apply(&client, &manifests::read(&deploy("proxy-roles.yaml"))?).await?;
        manifests::apply(&client, &manifests::parse(MANIFESTS)?).await?;

        let aggregated = aggregate(&control_plane).await?;
        let dawn = objects::early(&client).await?;

        let ring: RingName = RING.parse()?;
        let labels = RingLabels::of(&ring);
        let (main, plain) = tokio::try_join!(
            Shard::start(&control_plane, &labels, ("shard-0", objects::OWNERS[0]), Offer::Both),
            Shard::start(&control_plane, &labels, ("shard-1", objects::OWNERS[1]), Offer::Http1),
        )?;
        // A watch from before a proxy knew its ring is told to list again; these begin behind that.
        let (begin, end) = objects::create(&client, &labels, [main.identity.pod(), plain.identity.pod()]).await?;
        // All that cases ask for is younger.
        control_plane.forget_before(&begin).await?;
        let api_server = control_plane.url().trim_start_matches("https://").parse()?;
        let admin = Endpoint::new(api_server, &control_plane.ca_path(), control_plane.admin_token())?;
        let ground = Self { main, plain, aggregated, dawn, begin, end, admin, labels, control_plane };
        eventually("the aggregated group is served", DEADLINE, || async {
            let group = ground.admin(&Ask::get("/apis/echo.example.com/v1")).await;
            group.map_err(|error| format!("{error:#}"))
        })
        .await?;
        Ok(Arc::new(ground))
    }

    /// The way by which a proxy talks to the API server.
    pub(crate) fn by(&self, upstream: Http) -> &Shard {
        match upstream {
            Http::One => &self.plain,
            Http::Two => &self.main,
        }
    }

    /// Labels of an object that belongs to `shard`.
    pub(crate) fn owned_by(&self, shard: &Shard) -> BTreeMap<String, String> {
        BTreeMap::from([(self.labels.shard.clone(), shard.identity.pod().to_owned())])
    }

    /// Makes a namespace of a case's own.
    pub(crate) async fn namespace(&self, name: &str) -> Result<()> {
        objects::namespace(&self.control_plane.client(), name).await
    }

    /// Asks the API server as its administrator, and expects that it does as it is told.
    pub(crate) async fn admin(&self, ask: &Ask) -> Result<Value> {
        let answer = self.admin.exchange(Http::Two, ask, "admin").await?;
        let told = || format!("{} {}: {}: {}", ask.method, ask.target, answer.status, answer.text());
        anyhow::ensure!(answer.status.is_success(), "{}", told());
        serde_json::from_slice(&answer.body).with_context(told)
    }

    /// Makes an object as it was before all writes.
    pub(crate) async fn anew(&self, collection: &str, object: &Value) -> Result<()> {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        let gone = Ask::new(Method::DELETE, format!("{collection}/{name}"));
        self.admin.exchange(Http::Two, &gone, "admin").await?;
        let create = Ask::new(Method::POST, collection).body("application/json", object.to_string());
        self.admin(&create).await.map(drop)
    }
}

/// Puts a group into the API server that something else answers for, as an APIService does.
async fn aggregate(control_plane: &ControlPlane) -> Result<Relay> {
    let relay = Relay::start(control_plane, Offer::Both).await?;
    let resources = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "echo.example.com/v1",
        "resources": [{"name": "echoes", "singularName": "echo", "kind": "Echo", "namespaced": true, "verbs": ["get"]}],
    });
    let script = Script::new(StatusCode::OK).header("content-type", "application/json");
    relay.answer_others(script.bytes(resources.to_string()));
    let port = relay.address().port();
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.echo.example.com"},
        "spec": {
            "group": "echo.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
            "insecureSkipTLSVerify": true, "service": {"namespace": NAMESPACE, "name": "echo", "port": port},
        },
    });
    manifests::apply(&control_plane.client(), &manifests::parse(&service.to_string())?).await?;
    Ok(relay)
}

impl Shard {
    async fn start(
        control_plane: &ControlPlane,
        labels: &RingLabels,
        (name, owns): (&str, &'static str),
        offer: Offer,
    ) -> Result<Self> {
        let dir = control_plane.dir();
        let relay = Relay::start(control_plane, offer).await?;
        let identity = ShardIdentity::create(control_plane, NAMESPACE, "controller", name, dir).await?;
        let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(identity.kubeconfig())?)?;
        kubeconfig["clusters"][0]["cluster"]["server"] = relay.url().into();
        let token = kubeconfig["users"][0]["user"]["token"].as_str().context("a token")?.to_owned();
        let through_relay = dir.join(format!("{name}.relay.kubeconfig"));
        std::fs::write(&through_relay, kubeconfig.to_string())?;

        let access = dir.join(format!("{name}.access"));
        let address = ([127, 0, 0, 1], free_port()?).into();
        let built = tokio::task::spawn_blocking(|| toolchain::ringside(&Environment::of_process()));
        let mut command = Command::new(built.await??.proxy);
        command.args(["--ring", RING, "--kubeconfig"]).arg(&through_relay).arg("--access-dir").arg(&access).args([
            "--listen",
            &format!("{address}"),
            "--admin-listen",
            &format!("127.0.0.1:{}", free_port()?),
        ]);
        let process = Process::spawn(name, &command, &dir.join(format!("{name}.log")))?;

        let api_server = control_plane.url().trim_start_matches("https://").parse()?;
        let ca = control_plane.ca_path();
        let shard: ShardName = name.parse()?;
        let proxied = eventually("the proxy answers for each resource", DEADLINE, || async {
            process.check_running().map_err(|error| error.to_string())?;
            answers(&access, address).await.map_err(|error| format!("{error:#}"))
        });
        Ok(Self {
            proxied: proxied.await?,
            direct: Endpoint::new(api_server, &ca, &token)?,
            scripted: Endpoint::new(relay.address(), &ca, &token)?,
            relay,
            upstream: if offer == Offer::Http1 { Http::One } else { Http::Two },
            process,
            identity,
            selector: labels.owned_by(&shard),
            owns,
        })
    }
}

/// Lists each resource of the ring once, which is when the proxy looks how old a watch may be.
async fn answers(access: &Path, address: std::net::SocketAddr) -> Result<Endpoint> {
    let token = std::fs::read_to_string(access.join("token"))?;
    let endpoint = Endpoint::new(address, &access.join("ca.crt"), &token)?;
    for resource in ["/apis/web.example.com/v1/websites", "/api/v1/configmaps", "/apis/apps/v1/deployments"] {
        let answer = endpoint.exchange(Http::Two, &Ask::get(format!("{resource}?limit=1")), "warm-up").await?;
        anyhow::ensure!(answer.status == StatusCode::OK, "{resource}: {}", answer.text());
    }
    Ok(endpoint)
}
