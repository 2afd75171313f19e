//! A ring with many objects, and what happens to it.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use kube::{Client, api::ApiResource};
use parking_lot::Mutex;
use ringside_e2e::{
    plain_shard::{Acknowledger, PlainShard},
    system::NAMESPACE,
};
use ringside_ring::{Grace, HashRing, PartitionKey, RingLabels, ShardName, placement::DEFAULT_TOKENS_PER_SHARD};

use super::{
    bare::Bare,
    meter::{Meter, Spent},
    moves::{Log, Moves, Seen},
    objects::{self, Placement, Shape},
    running::{Make, Running},
};
use crate::say;

/// Of a phase; 100,000 objects take minutes.
const DEADLINE: Duration = Duration::from_secs(1_800);
/// How often the API server's log is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// A phase may be over when nothing was written for so long: only then each object is looked at, which costs the API server
/// as much as some moves.
const QUIET: Duration = Duration::from_secs(3);
/// So long after a change something was written, or there is nothing to write.
const BEGINS: Duration = Duration::from_secs(60);

/// The names of shards.
type Living = Arc<Mutex<BTreeSet<String>>>;

/// What a phase was, and what it cost until its last write.
#[derive(Debug)]
pub struct Outcome {
    /// What was moved.
    pub moves: Moves,
    /// What it cost.
    pub spent: Spent,
    /// The fullest shard against the mean, afterwards.
    pub max_to_mean: f64,
}

/// A ring, its shards, and its objects. The shards are nothing but Leases, and acknowledge at once, or after the grace that they promise.
pub struct Ground {
    // Dropped in this order.
    shards: Vec<PlainShard>,
    /// Those of them that acknowledge.
    living: Living,
    _acknowledger: Acknowledger,
    meter: Meter,
    log: Log,
    shape: Shape,
    /// Shards that have joined: no name comes back.
    joined: usize,
    labels: RingLabels,
    placement: Placement,
    running: Running,
    /// R, before there was a sharder.
    pub bare: Bare,
}

impl Ground {
    /// With objects without owner, a sharder and so many shards, but without the ring. R is measured for the time `bare`.
    pub async fn start(make: &Make, shape: Shape, shards: usize, bare: Duration) -> anyhow::Result<Self> {
        ensure!(shards > 2, "one shard leaves and one dies: at least 3 are needed");
        ensure!(shape.objects >= super::CONNECTIONS, "each connection writes to an object of its own");
        say(format_args!("{}: a control plane, {} x (1 + {})", make.name(), shape.objects, shape.children));
        let mut running = Running::start(make).await?;
        let (client, labels) = (running.client(), running.labels()?);
        objects::create(&client, shape).await.context("create the objects")?;
        let bare = Bare::measure(running.control_plane(), shape.objects, bare).await.context("measure R")?;
        say(format_args!("{}: R = {:.0} patches a second", make.name(), bare.per_second));
        running.start_sharder().await?;
        let meter = Meter::of(running.sharder()?.id(), running.control_plane())?;
        let log = Log::of(running.control_plane().audit_log(), running.user());
        let living = Living::default();
        let among = Arc::clone(&living);
        let releases = move |shard: &str| among.lock().contains(shard);
        let acknowledger = Acknowledger::start(&client, &labels, &ApiResource::erase::<Secret>(&()), releases);
        let placement = Placement::read(&client, &labels).await?;
        let mut ground = Self {
            shards: Vec::new(),
            living,
            _acknowledger: acknowledger,
            meter,
            log,
            shape,
            joined: 0,
            labels,
            placement,
            running,
            bare,
        };
        for _ in 0..shards {
            ground.add().await?;
        }
        Ok(ground)
    }

    /// The ring comes, and every object gets an owner.
    pub async fn assign(&mut self) -> anyhow::Result<Outcome> {
        let began = self.begin()?;
        self.running.create_ring().await?;
        self.end("assigned from nothing", began, None).await
    }

    /// One shard more.
    pub async fn join(&mut self) -> anyhow::Result<Outcome> {
        self.begin()?;
        let shard = self.add().await?;
        self.end("a shard joins", Timestamp::now(), Some(&shard)).await
    }

    /// The same, while the others promise to wait for so long before they release an object; it leaves again. Upstream's knows no promise.
    pub async fn join_with_grace(&mut self, grace: Duration) -> anyhow::Result<Outcome> {
        self.promise(Grace::of(grace)).await?;
        let joined = self.join().await?;
        self.promise(None).await?;
        self.leave().await?;
        Ok(joined)
    }

    async fn promise(&self, grace: Option<Grace>) -> anyhow::Result<()> {
        for shard in &self.shards {
            shard.promise(grace).await.context("promise a grace")?;
        }
        Ok(())
    }

    /// One shard releases its Lease.
    pub async fn leave(&mut self) -> anyhow::Result<Outcome> {
        let shard = self.take_last()?;
        self.begin()?;
        shard.release().await?;
        self.end("a shard leaves", Timestamp::now(), None).await
    }

    /// One stops renewing its Lease.
    pub async fn die(&mut self) -> anyhow::Result<Outcome> {
        let shard = self.take_last()?;
        let began = self.begin()?;
        drop(shard);
        self.end("a shard dies", began, None).await
    }

    /// Nothing happens for a time. Returns what that cost, and how often the sharder listed.
    pub async fn rest(&mut self, time: Duration) -> anyhow::Result<(Spent, usize)> {
        self.begin()?;
        tokio::time::sleep(time).await;
        let spent = self.meter.spent(Timestamp::now())?;
        let (moves, _) = Moves::of(&self.log.since()?, &BTreeSet::new(), Timestamp::now());
        Ok((spent, moves.lists))
    }

    /// A client with all rights.
    pub(super) fn client(&self) -> Client {
        self.running.client()
    }

    /// The shard whose Lease is held when this returns acknowledges from then on.
    async fn add(&mut self) -> anyhow::Result<ShardName> {
        let name: ShardName = format!("shard-{}", self.joined).parse()?;
        self.joined += 1;
        self.living.lock().insert(name.to_string());
        self.shards.push(self.running.join(&name).await.with_context(|| format!("let {name} join"))?);
        Ok(name)
    }

    /// What runs.
    pub(super) fn running(&mut self) -> &mut Running {
        &mut self.running
    }

    /// The shard that goes, which acknowledges nothing any more.
    pub(super) fn take_last(&mut self) -> anyhow::Result<PlainShard> {
        let shard = self.shards.pop().context("no shard")?;
        self.living.lock().remove(shard.name().as_str());
        Ok(shard)
    }

    /// A phase begins now.
    fn begin(&mut self) -> anyhow::Result<Timestamp> {
        self.log.since()?;
        self.meter.begin();
        Ok(Timestamp::now())
    }

    /// A phase ends when each object is where it belongs, with its children.
    async fn end(&mut self, phase: &str, began: Timestamp, joined: Option<&ShardName>) -> anyhow::Result<Outcome> {
        let mut seen = Seen::default();
        let later = self.until_settled(&mut seen, joined).await.with_context(|| phase.to_owned())?;
        let (moves, last) = Moves::of(&seen, &self.placement.moved(&later), began);
        let spent = self.meter.spent(last)?;
        let max_to_mean = later.max_to_mean();
        self.placement = later;
        say(format_args!("{phase}: {} moves in {:.1} s", moves.count, moves.took().as_secs_f64()));
        Ok(Outcome { moves, spent, max_to_mean })
    }

    async fn until_settled(&mut self, seen: &mut Seen, joined: Option<&ShardName>) -> anyhow::Result<Placement> {
        let (begin, mut quiet_since) = (Instant::now(), None::<Instant>);
        loop {
            tokio::time::sleep(LOOK).await;
            self.running.sharder()?.check_running()?;
            let more = self.log.since()?;
            if more.writes() {
                quiet_since = Some(Instant::now());
            }
            seen.extend(more);
            if quiet_since.map_or(begin.elapsed() < BEGINS, |since| since.elapsed() < QUIET) {
                continue;
            }
            let placement = Placement::read(&self.client(), &self.labels).await?;
            let Some(left) = self.left(&placement, joined) else { return Ok(placement) };
            ensure!(begin.elapsed() < DEADLINE, "not within {DEADLINE:?}: {left}");
            say(format_args!("nothing is written any more, but {left}"));
            quiet_since = Some(Instant::now());
        }
    }

    /// What is still to be done. Where an object belongs is known of our sharder alone.
    fn left(&self, placement: &Placement, joined: Option<&ShardName>) -> Option<String> {
        let names: Vec<_> = self.shards.iter().map(|shard| shard.name().clone()).collect();
        let ring = match self.running {
            Running::Ringside(_) => Some(HashRing::new(names.iter().cloned(), DEFAULT_TOKENS_PER_SHARD)),
            Running::Upstream(_) => None,
        };
        let left = placement.left(self.shape, |object, shard| match &ring {
            Some(ring) => {
                let key = PartitionKey::of("", "Secret", NAMESPACE, object);
                ring.owner(&key).map(ShardName::as_str) == shard
            }
            None => names.iter().any(|name| Some(name.as_str()) == shard),
        });
        left.or_else(|| {
            let joined = joined?;
            (!placement.has(joined)).then(|| format!("{joined} has nothing"))
        })
    }
}
