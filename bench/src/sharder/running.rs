//! A control plane with a sharder: ours, or the one that the thesis's author keeps.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Namespace,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use ringside_e2e::{
    control_plane::ControlPlane,
    plain_shard::PlainShard,
    process::Process,
    system::{NAMESPACE, RING, SHARDER_USER, Settings, System},
};
use ringside_ring::{ClusterRing, RingLabels, ShardName};
use serde_json::{Value, json};

use super::upstream::{self, Upstream};

/// The contract's own.
const LEASE: Duration = Duration::from_secs(15);
/// The label of the namespaces that are in the ring.
pub(super) const IN_RING: &str = "ringside.example/bench";

/// Whose sharder is measured.
#[derive(Clone, Debug)]
pub enum Make {
    /// Ours.
    Ringside,
    /// Upstream's, from a checkout of its repository.
    Upstream(Upstream),
}

impl Make {
    /// As the table calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ringside => "ringside",
            Self::Upstream(_) => "upstream",
        }
    }
}

/// A control plane, and a sharder of one make.
pub(super) enum Running {
    Ringside(Box<System>),
    Upstream(Box<upstream::Running>),
}

impl Running {
    /// Starts a control plane without sharder.
    pub(super) async fn start(make: &Make) -> anyhow::Result<Self> {
        let running = match make {
            Make::Ringside => {
                let settings = Settings { audit_requests: true, ..Settings::with_short_leases() };
                Self::Ringside(Box::new(System::start(settings).await?))
            }
            Make::Upstream(upstream) => Self::Upstream(Box::new(upstream.start().await?)),
        };
        join_namespace(&running.client(), NAMESPACE).await?;
        Ok(running)
    }

    pub(super) async fn start_sharder(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Ringside(system) => Ok(system.start_sharders(1).await?),
            Self::Upstream(running) => running.start_sharder().await,
        }
    }

    pub(super) fn sharder(&self) -> anyhow::Result<&Process> {
        match self {
            Self::Ringside(system) => system.sharders().next().map(ringside_e2e::system::Sharder::process),
            Self::Upstream(running) => running.sharder(),
        }
        .context("no sharder runs")
    }

    pub(super) fn control_plane(&self) -> &ControlPlane {
        match self {
            Self::Ringside(system) => system.control_plane(),
            Self::Upstream(running) => running.control_plane(),
        }
    }

    pub(super) fn client(&self) -> Client {
        self.control_plane().client()
    }

    /// What the API server calls the sharder.
    pub(super) fn user(&self) -> &'static str {
        match self {
            Self::Ringside(_) => SHARDER_USER,
            Self::Upstream(_) => upstream::USER,
        }
    }

    pub(super) fn labels(&self) -> anyhow::Result<RingLabels> {
        Ok(match self {
            Self::Ringside(_) => RingLabels::of(&RING.parse()?),
            Self::Upstream(_) => upstream::labels(),
        })
    }

    /// Creates the ring of Secrets with ConfigMaps.
    pub(super) async fn create_ring(&self) -> anyhow::Result<()> {
        match self {
            Self::Ringside(_) => {
                let ring = ClusterRing::new(RING, serde_json::from_value(ring_spec())?);
                Api::<ClusterRing>::all(self.client()).create(&PostParams::default(), &ring).await?;
            }
            Self::Upstream(running) => running.create_ring(ring_spec()).await?,
        }
        Ok(())
    }

    /// A shard takes its Lease.
    pub(super) async fn join(&self, shard: &ShardName) -> anyhow::Result<PlainShard> {
        let client = self.client();
        if let Self::Ringside(_) = self {
            return Ok(PlainShard::join(&client, NAMESPACE, &RING.parse()?, shard, LEASE).await?);
        }
        // A Lease without holder, with the other label.
        let (key, ring) = upstream::LEASE_LABEL;
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(shard.to_string()),
                labels: Some([(key.to_owned(), ring.to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                acquire_time: Some(MicroTime(Timestamp::now())),
                lease_duration_seconds: Some(i32::try_from(LEASE.as_secs())?),
                ..LeaseSpec::default()
            }),
        };
        Api::<Lease>::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &lease).await?;
        Ok(PlainShard::rejoin(&client, NAMESPACE, shard, LEASE).await?)
    }
}

/// Of either make.
fn ring_spec() -> Value {
    json!({
        "resources": [{
            "group": "", "resource": "secrets", "controlledResources": [{"group": "", "resource": "configmaps"}],
        }],
        "namespaceSelector": {"matchLabels": {IN_RING: "yes"}},
    })
}

/// A namespace comes into the ring.
pub(super) async fn join_namespace(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"labels": {IN_RING: "yes"}}}));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.patch(namespace, &PatchParams::default(), &patch).await?;
    Ok(())
}
