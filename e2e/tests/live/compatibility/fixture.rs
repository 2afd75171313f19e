//! What all cases stand on: one control plane, objects of several owners, and two proxies, whose ways to the API server
//! differ.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use http::{Method, StatusCode};
use kube::CustomResourceExt as _;
use ringside_e2e::{
    control_plane::{ControlPlane, Options},
    eventually::eventually,
    manifests,
    relay::{Offer, Relay, Script},
    website::Website,
};
use ringside_ring::labels::RingLabels;
use serde_json::{Value, json};

use super::{
    client::{Ask, Endpoint, Http},
    objects,
    shard::{Member, Shard},
};

/// The ring of all cases.
const RING: &str = "compatibility";
/// What it shards.
const SHARDED: [&str; 3] = ["/apis/web.example.com/v1/websites", "/api/v1/configmaps", "/apis/apps/v1/deployments"];
/// A loaded machine takes its time.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Where the proxies' Pods are.
pub(crate) const NAMESPACE: &str = "default";

/// What is there before the first case.
const MANIFESTS: &str = include_str!("fixture.yaml");

/// The fixture.
pub(crate) struct Fixture {
    /// By HTTP/2 to the API server, as usual.
    pub(crate) main: Arc<Shard>,
    /// By HTTP/1.1, as through a load balancer.
    pub(crate) plain: Arc<Shard>,
    /// Answers for the group `echo.example.com`.
    pub(crate) aggregated: Relay,
    /// Before the first object of the cases.
    pub(crate) begin: String,
    /// After the last of them.
    pub(crate) end: String,
    admin: Endpoint,
    pub(crate) control_plane: ControlPlane,
}

impl Fixture {
    pub(crate) async fn start() -> Result<Self> {
        let control_plane = ControlPlane::start(Options::default()).await?;
        let client = control_plane.client();
        let deploy = |file: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file);
        manifests::define(&client, &Website::crd()).await?;
        manifests::apply(&client, &manifests::read(&deploy("kustomize/base/crd/clusterring.yaml"))?).await?;
        manifests::served(&client, "clusterrings.sharding.timebertt.dev").await?;
        manifests::apply(&client, &manifests::parse(MANIFESTS)?).await?;

        let aggregated = aggregate(&control_plane).await?;
        let dawn = objects::early(&client).await?;

        let member = |name, owns, offer| Member { ring: RING, name, owns, offer };
        let (main, plain) = tokio::try_join!(
            Shard::start(&control_plane, member("shard-0", objects::OWNERS[0], Offer::Both)),
            Shard::start(&control_plane, member("shard-1", objects::OWNERS[1], Offer::Http1)),
        )?;
        tokio::try_join!(main.serves(&SHARDED), plain.serves(&SHARDED))?;
        // Watches of the cases begin behind what the proxies learned their ring by: from before, they are told to list again.
        let (begin, end) =
            objects::create(&client, &RingLabels::of(&RING.parse()?), [main.identity.pod(), plain.identity.pod()])
                .await?;
        // All that cases ask for is younger. API servers forget with etcd, some time later.
        control_plane.forget_before(&dawn).await?;
        let admin = Endpoint::new(control_plane.address(), &control_plane.ca_path(), control_plane.admin_token())?;
        let fixture = Self { main, plain, aggregated, begin, end, admin, control_plane };
        eventually("the aggregated group is served", DEADLINE, || async {
            let group = fixture.admin(&Ask::get("/apis/echo.example.com/v1")).await;
            group.map_err(|error| format!("{error:#}"))
        })
        .await?;
        Ok(fixture)
    }

    /// Compares what the proxies asked of themselves with the list.
    pub(crate) fn note_own_requests(&self) -> Result<()> {
        self.main.note_own_requests()?;
        self.plain.note_own_requests()
    }

    /// The way by which a proxy talks to the API server.
    pub(crate) fn by(&self, upstream: Http) -> &Arc<Shard> {
        match upstream {
            Http::One => &self.plain,
            Http::Two => &self.main,
        }
    }

    /// Starts a proxy of a case's own, in a ring of its own that shards these resources.
    pub(crate) async fn alone(&self, ring: &str, offer: Offer, resources: &Value) -> Result<Arc<Shard>> {
        self.shards(ring, resources).await?;
        let name = &format!("shard-{ring}");
        Shard::start(&self.control_plane, Member { ring, name, owns: objects::OWNERS[0], offer }).await
    }

    /// Says what a ring shards from now on.
    pub(crate) async fn shards(&self, ring: &str, resources: &Value) -> Result<()> {
        let ring = json!({
            "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing", "metadata": {"name": ring},
            "spec": {"resources": resources},
        });
        manifests::apply(&self.control_plane.client(), &manifests::parse(&ring.to_string())?).await
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

    /// Makes an object as it was before all writes, and answers its resourceVersion.
    pub(crate) async fn anew(&self, collection: &str, object: &Value) -> Result<String> {
        self.gone(collection, object["metadata"]["name"].as_str().context("a name")?).await?;
        let create = Ask::new(Method::POST, collection).body("application/json", object.to_string());
        let made = self.admin(&create).await?;
        Ok(made["metadata"]["resourceVersion"].as_str().context("a resourceVersion")?.to_owned())
    }

    /// Sees to it that there is no such object.
    pub(crate) async fn gone(&self, collection: &str, name: &str) -> Result<()> {
        let gone = Ask::new(Method::DELETE, format!("{collection}/{name}"));
        self.admin.exchange(Http::Two, &gone, "admin").await.map(drop)
    }
}

/// Puts a group into the API server that something else answers for, as an APIService does.
async fn aggregate(control_plane: &ControlPlane) -> Result<Relay> {
    let relay = Relay::start(control_plane, Offer::Both).await?;
    let resources = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "echo.example.com/v1",
        "resources": [{"name": "echoes", "singularName": "echo", "kind": "Echo", "namespaced": true, "verbs": ["get"]}],
    });
    relay.answer_others(Script::new(StatusCode::OK).json(&resources));
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.echo.example.com"},
        "spec": {
            "group": "echo.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": NAMESPACE, "name": "echo", "port": relay.address().port()},
        },
    });
    manifests::apply(&control_plane.client(), &manifests::parse(&service.to_string())?).await?;
    Ok(relay)
}
