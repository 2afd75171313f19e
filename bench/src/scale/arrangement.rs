//! A controller at work: one leader, or several that share the objects.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::{ResourceExt as _, api::ListParams};
use ringside_e2e::{
    system::{RING, Settings, System},
    workload::Workload,
};
use ringside_ring::RingLabels;

use super::{
    capacity::Climb,
    load::{Load, Wanted},
    usage::Moment,
};
use crate::say;

/// All objects have their owners, and were worked on: this long, and for each of them.
const DEADLINE: Duration = Duration::from_secs(300);
const DEADLINE_OF_ONE: Duration = Duration::from_millis(20);

/// Replicas that begin nothing for so long have nothing to do.
const REST: Duration = Duration::from_secs(2);
/// How long a controller must have been silent about an object before it moves, by default.
pub const GRACE: Duration = Duration::from_secs(2);

/// What is worked on, and how.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Objects, each with two children.
    pub objects: usize,
    /// What a reconcile waits for, beside its writes.
    pub work: Duration,
    /// Reconciles at once in a replica.
    pub workers: usize,
    /// How long each rate is kept.
    pub window: Duration,
    /// Which rates are tried.
    pub climb: Climb,
}

/// How the replicas share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// One leads, and does all of it.
    Leader,
    /// Ringside's proxy beside each.
    Proxy,
    /// Each is a shard by itself, with Ringside's sharder.
    Itself,
}

/// A running system, with its objects.
pub struct Running {
    pub(super) system: System,
    pub(super) workload: Workload,
    pub(super) shape: Shape,
    by: By,
    /// Replicas that were started: no name comes back.
    started: usize,
    /// Resident memory of a replica before there were objects.
    idle: f64,
}

impl Running {
    /// One leader, without Ringside.
    ///
    /// # Errors
    /// When it does not start, or does not work.
    pub async fn leader(shape: Shape) -> anyhow::Result<Self> {
        Self::start(By::Leader, 1, shape).await
    }

    /// So many replicas with a proxy each.
    ///
    /// # Errors
    /// When they do not start, or do not work.
    pub async fn proxied(replicas: usize, shape: Shape) -> anyhow::Result<Self> {
        Self::start(By::Proxy, replicas, shape).await
    }

    /// So many replicas that are shards by themselves.
    ///
    /// # Errors
    /// When they do not start, or do not work.
    pub async fn native(replicas: usize, shape: Shape) -> anyhow::Result<Self> {
        Self::start(By::Itself, replicas, shape).await
    }

    async fn start(by: By, replicas: usize, shape: Shape) -> anyhow::Result<Self> {
        let settings = Settings {
            concurrency: shape.workers,
            // What proxies and sharders do where nothing else is said.
            lease_duration: Duration::from_secs(15),
            drain_grace: GRACE,
            log_filter: "warn".to_owned(),
            ..Settings::default()
        };
        let mut system = System::start(settings).await?;
        if by != By::Leader {
            system.start_sharding(1).await?;
        }
        let workload = Workload::idle("site", shape.objects);
        let mut running = Self { system, workload, shape, by, started: 0, idle: 0.0 };
        for _ in 0..replicas {
            running.add().await?;
        }
        running.create().await?;
        Ok(running)
    }

    /// The objects come, each of which is worked on once. Before them one alone: then the caches are filled, and a leader leads.
    async fn create(&mut self) -> anyhow::Result<()> {
        say(format_args!("{}: {} objects are made", self.name(), self.shape.objects));
        let client = self.system.control_plane().client();
        if self.by != By::Leader {
            self.counted().await?;
        }
        let first = Workload::idle("first", 1);
        first.create(&client).await.context("create an object")?;
        self.system.until_all_worked_on(&first, self.deadline()).await?;
        self.idle = Moment::of(&self.system)?.replica_memory();
        if self.by == By::Leader {
            self.workload.create(&client).await.context("create the objects")?;
            self.rest().await?;
            let (done, objects) = (self.reconciles(), self.shape.objects);
            ensure!(done > objects, "{done} reconciles of {objects} objects");
            return Ok(());
        }
        self.system.share_out(&self.workload, self.deadline()).await?;
        self.settle().await
    }

    /// Starts replicas until there are so many, and waits until each has its share.
    ///
    /// # Errors
    /// When that does not come about.
    pub async fn grow(&mut self, replicas: usize) -> anyhow::Result<()> {
        while self.replicas() < replicas {
            self.add().await?;
        }
        self.owned().await?;
        self.settle().await
    }

    /// Starts one more.
    pub(super) async fn add(&mut self) -> anyhow::Result<()> {
        let name = format!("shard-{}", self.started);
        self.started += 1;
        match self.by {
            By::Leader => self.system.add_unsharded(&name).await?,
            By::Proxy => self.system.add_shard(&name).await?,
            By::Itself => self.system.add_own_shard(&name).await?,
        }
        Ok(())
    }

    /// Ends the oldest in order, as a Pod with the hooks of `ringside inject` ends.
    pub(super) async fn remove_oldest(&mut self) -> anyhow::Result<()> {
        let oldest = self.oldest()?;
        if let Some(why) = self.system.retire_shard(&oldest).await? {
            say(format_args!("{oldest}: {why}"));
        }
        Ok(())
    }

    /// Kills the oldest.
    pub(super) async fn kill_oldest(&mut self) -> anyhow::Result<()> {
        let oldest = self.oldest()?;
        Ok(self.system.kill_shard(&oldest).await?)
    }

    fn oldest(&self) -> anyhow::Result<String> {
        Ok(self.system.shards().next().context("no replica with a proxy runs")?.name().to_owned())
    }

    /// Waits until the sharder counts all of them.
    pub(super) async fn counted(&self) -> anyhow::Result<()> {
        Ok(self.system.until_counted(self.deadline()).await?)
    }

    /// Waits until each object is with a replica, and each replica has some.
    pub(super) async fn owned(&self) -> anyhow::Result<()> {
        Ok(self.system.until_balanced(self.deadline()).await?)
    }

    /// Waits until all is done that was changed, and the replicas rest: what they write has them work once more.
    pub(super) async fn settle(&self) -> anyhow::Result<()> {
        self.system.until_settled(self.deadline()).await?;
        self.rest().await
    }

    /// Waits until no replica begins anything any more.
    pub(super) async fn rest(&self) -> anyhow::Result<()> {
        let mut before = self.reconciles();
        loop {
            tokio::time::sleep(REST).await;
            let now = self.reconciles();
            if now == before {
                return Ok(());
            }
            before = now;
        }
    }

    /// How often an object was worked on so far.
    pub(super) fn reconciles(&self) -> usize {
        self.system.monitor().judge(|checker| checker.reconciles().values().sum())
    }

    fn deadline(&self) -> Duration {
        DEADLINE + DEADLINE_OF_ONE * u32::try_from(self.shape.objects).unwrap_or(u32::MAX)
    }

    /// Starts the sharder, and creates the ring: from then on, what is added has a proxy.
    pub(super) async fn share(&mut self) -> anyhow::Result<()> {
        self.system.start_sharding(1).await?;
        self.by = By::Proxy;
        Ok(())
    }

    /// Starts so many changes a second.
    pub(super) async fn load(&self, per_second: f64) -> anyhow::Result<Load> {
        let api = self.workload.api(&self.system.control_plane().client());
        let shard = RingLabels::of(&RING.parse()?).shard;
        let objects = api.list_metadata(&ListParams::default()).await.context("list the objects")?;
        let mut names: Vec<_> = objects.iter().map(|it| (it.labels().get(&shard).cloned(), it.name_any())).collect();
        names.sort_unstable();
        let names = names.into_iter().map(|(_, name)| name).collect();
        let wanted = Wanted { api, names, work: self.shape.work, per_second };
        Ok(Load::start(wanted, self.system.monitor().clone()))
    }

    pub(super) fn replicas(&self) -> usize {
        self.system.operators().count()
    }

    /// The fullest replica's part of the objects, to the mean.
    pub(super) fn fullest(&self) -> f64 {
        let owned = self.system.monitor().picture().owned;
        let most = owned.values().max().copied().unwrap_or(0) as f64;
        if owned.is_empty() { 1.0 } else { most * owned.len() as f64 / owned.values().sum::<usize>() as f64 }
    }

    pub(super) fn idle(&self) -> f64 {
        self.idle
    }

    /// As the table calls it.
    pub(super) fn name(&self) -> String {
        match (self.by, self.replicas()) {
            (By::Leader, _) => "one leader, without Ringside".to_owned(),
            (By::Proxy, 1) => "1 replica with Ringside".to_owned(),
            (By::Proxy, replicas) => format!("{replicas} replicas with Ringside"),
            (By::Itself, replicas) => format!("{replicas} native shards, with Ringside's sharder"),
        }
    }

    pub(super) fn has_proxies(&self) -> bool {
        self.by == By::Proxy
    }
}
