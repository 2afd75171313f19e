//! What it costs to share the objects of a controller that has many of them already.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use ringside_e2e::{system::NAMESPACE, website::Website};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::{
    Running, Shape,
    latency::Times,
    usage::{Moment, Usage},
};
use crate::say;

/// The replicas that share the objects in the end.
const REPLICAS: usize = 3;
/// How long the neighbour is looked at before anything happens.
const BEFORE: Duration = Duration::from_secs(5);
/// How often the neighbour writes.
const APART: Duration = Duration::from_millis(100);

/// What a part of it took.
#[derive(Clone, Debug)]
pub struct Part {
    /// What happened in it.
    pub what: &'static str,
    /// How long it took.
    pub took: Duration,
    /// What the processes took.
    pub usage: Usage,
    /// Writes that etcd took, Leases and Events with them.
    pub writes: u64,
    /// By how much the file of etcd grew, in bytes.
    pub grown: u64,
    /// How often an object was worked on.
    pub reconciles: usize,
    /// What writes of a neighbour waited for, which has nothing to do with the ring.
    pub neighbour: Times,
}

/// Shares the objects of a leader that has worked on all of them among three replicas.
///
/// # Errors
/// When the system fails.
pub async fn adopt(shape: Shape) -> anyhow::Result<Vec<Part>> {
    let mut running = Running::leader(shape).await?;
    let mut parts = Vec::new();
    let start = Start::of(&running).await?;
    tokio::time::sleep(BEFORE).await;
    parts.push(start.end("before", &running).await?);
    say(format_args!("the ring is created"));
    let start = Start::of(&running).await?;
    running.share().await?;
    running.rest().await?;
    parts.push(start.end("the ring is created", &running).await?);
    say(format_args!("{REPLICAS} replicas take the leader's place"));
    let start = Start::of(&running).await?;
    for _ in 0..REPLICAS {
        running.add().await?;
    }
    running.system.remove_unsharded().await?;
    running.owned().await?;
    parts.push(start.end("replicas take the leader's place, until all objects have one", &running).await?);
    let start = Start::of(&running).await?;
    running.settle().await?;
    parts.push(start.end("until they rest", &running).await?);
    Ok(parts)
}

/// How things were when a part began.
struct Start {
    at: Instant,
    moment: Moment,
    revision: u64,
    file: u64,
    reconciles: usize,
    neighbour: Neighbour,
}

impl Start {
    async fn of(running: &Running) -> anyhow::Result<Self> {
        let client = running.system.control_plane().client();
        Ok(Self {
            at: Instant::now(),
            moment: Moment::of(&running.system)?,
            revision: revision(&client).await?,
            file: file(running)?,
            reconciles: running.reconciles(),
            neighbour: Neighbour::start(client).await?,
        })
    }

    async fn end(self, what: &'static str, running: &Running) -> anyhow::Result<Part> {
        let took = self.at.elapsed();
        let usage = Moment::of(&running.system)?.since(&self.moment);
        let neighbour = self.neighbour.stop().await?;
        // Its writes are not the ring's.
        let revision = revision(&running.system.control_plane().client()).await?;
        let writes = revision.saturating_sub(self.revision).saturating_sub(neighbour.count as u64);
        let grown = file(running)?.saturating_sub(self.file);
        let reconciles = running.reconciles() - self.reconciles;
        Ok(Part { what, took, usage, writes, grown, reconciles, neighbour })
    }
}

/// What etcd counts its writes by.
async fn revision(client: &Client) -> anyhow::Result<u64> {
    let websites = Api::<Website>::all(client.clone());
    let list = websites.list_metadata(&ListParams::default().limit(1)).await.context("ask for the newest version")?;
    list.metadata.resource_version.unwrap_or_default().parse().context("a version that is no number")
}

fn file(running: &Running) -> anyhow::Result<u64> {
    let file = running.system.control_plane().dir().join("etcd/member/snap/db");
    Ok(fs::metadata(&file).with_context(|| format!("look at {}", file.display()))?.len())
}

/// Writes to an object of its own, again and again.
struct Neighbour {
    stop: oneshot::Sender<()>,
    writing: AbortOnDropHandle<anyhow::Result<Vec<Duration>>>,
}

impl Neighbour {
    async fn start(client: Client) -> anyhow::Result<Self> {
        let api = Api::<ConfigMap>::namespaced(client, NAMESPACE);
        let mut own = ConfigMap::default();
        own.metadata.generate_name = Some("neighbour-".to_owned());
        let name = api.create(&PostParams::default(), &own).await?.metadata.name.context("an object without name")?;
        let (stop, mut stopped) = oneshot::channel();
        let writing = async move {
            let mut tick = tokio::time::interval(APART);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut took = Vec::new();
            for number in 0_u64.. {
                tokio::select! {
                    biased;
                    _ = &mut stopped => break,
                    _ = tick.tick() => {}
                }
                let (began, patch) = (Instant::now(), Patch::Merge(json!({"data": {"number": number.to_string()}})));
                api.patch(&name, &PatchParams::default(), &patch).await.context("write as a neighbour")?;
                took.push(began.elapsed());
            }
            Ok(took)
        };
        Ok(Self { stop, writing: AbortOnDropHandle::new(tokio::spawn(writing)) })
    }

    async fn stop(self) -> anyhow::Result<Times> {
        // Where it has ended already, it says why.
        let _ended = self.stop.send(());
        Ok(Times::of(self.writing.await??))
    }
}
