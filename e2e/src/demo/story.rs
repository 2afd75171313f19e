//! What happens in the demo, in its order.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};

use super::{Arguments, Screen};
use crate::{
    chaos::schedule::shard,
    checker::{Report, Verdict},
    eventually::eventually,
    system::{Settings, System, SystemError},
    workload::{Updates, Workload},
};

/// How long a reconcile works. Well below the grace time: effects of a longer silence are not covered by a drain.
const WORK: Duration = Duration::from_millis(50);

/// A chapter in which nothing happens, to be looked at.
const PAUSE: Duration = Duration::from_secs(5);

/// A step that takes longer than this has failed.
const STEP_DEADLINE: Duration = Duration::from_secs(60);

/// The sharder replicas.
const SHARDERS: usize = 2;

/// The replicas without Ringside, and how many objects they get: enough to see who works.
const UNSHARDED: usize = 3;
const UNSHARDED_OBJECTS: usize = 30;

/// Reconciles by replica, without Ringside.
pub(super) type Contrast = BTreeMap<String, usize>;

pub(super) struct Story<'a> {
    arguments: &'a Arguments,
    screen: &'a Screen,
}

impl<'a> Story<'a> {
    pub(super) fn new(arguments: &'a Arguments, screen: &'a Screen) -> Self {
        Self { arguments, screen }
    }

    /// Tells all of it. The contrast first, then the verdicts on the rest.
    pub(super) async fn tell(&mut self, system: &mut System) -> Result<(Contrast, Report, Verdict)> {
        let contrast = self.without_ringside(system).await?;
        self.begin(system).await?;
        let client = system.control_plane().client();
        let updates = self.workload("site", self.arguments.objects()).start_updates(&client);
        self.screen.chapter(&format!("{} shards share the work, objects change steadily", self.arguments.shards));
        tokio::time::sleep(PAUSE).await;
        self.changes(system).await?;
        let (report, writes) = self.end(system, updates).await?;
        Ok((contrast, report, writes))
    }

    async fn without_ringside(&self, system: &mut System) -> Result<Contrast> {
        let chapter = match self.arguments.operator.elects() {
            true => "elect one leader",
            false => "elect no leader: each works on all objects",
        };
        self.screen.chapter(&format!("without Ringside: {UNSHARDED} replicas of an ordinary controller {chapter}"));
        let client = system.control_plane().client();
        let names: Vec<_> = (0..UNSHARDED).map(|index| format!("replica-{index}")).collect();
        for name in &names {
            system.add_unsharded(name).await?;
        }
        let workload = self.workload("plain", UNSHARDED_OBJECTS);
        workload.create(&client).await.context("create objects")?;
        let updates = workload.start_updates(&client);
        tokio::time::sleep(PAUSE).await;
        // Some take longer to start than that.
        let worked = || system.monitor().judge(|checker| checker.reconciles().clone());
        eventually("a replica works", STEP_DEADLINE, || async {
            if worked().is_empty() { Err("none does".to_owned()) } else { Ok(()) }
        })
        .await?;
        updates.stop().await.context("change objects")?;
        let worked = worked();
        // Finalizers are its to remove.
        workload.delete(&client).await.context("delete objects")?;
        system.remove_unsharded().await?;
        workload.delete_children(&client).await.context("delete their children")?;
        system.monitor().reset();
        let contrast = names.into_iter().map(|name| {
            let count = worked.get(&name).copied().unwrap_or_default();
            (name, count)
        });
        Ok(contrast.collect())
    }

    /// The sharder, the shards, the objects.
    async fn begin(&self, system: &mut System) -> Result<()> {
        let (objects, shards) = (self.arguments.objects(), self.arguments.shards);
        self.screen
            .chapter(&format!("with Ringside: {SHARDERS} sharder replicas, {shards} shards, {objects} new objects"));
        system.start_sharding(SHARDERS).await?;
        for index in 0..shards {
            system.add_shard(&shard(index)).await?;
        }
        Ok(system.share_out(&self.workload("site", objects), STEP_DEADLINE).await?)
    }

    /// A shard joins, one restarts, one is killed.
    async fn changes(&self, system: &mut System) -> Result<()> {
        let joining = shard(self.arguments.shards);
        self.screen.chapter(&format!("{joining} joins: it gets its share from the others, which release it first"));
        system.add_shard(&joining).await?;
        rest(system).await?;

        let restarted = shard(0);
        self.screen
            .chapter(&format!("{restarted} leaves gracefully: it releases its Lease, the others take over at once"));
        system.remove_shard(&restarted).await?;
        rest(system).await?;
        self.screen.chapter(&format!("{restarted} comes back: it gets the same share, which the others release first"));
        system.add_shard(&restarted).await?;
        rest(system).await?;

        let killed = shard(1);
        self.screen
            .chapter(&format!("{killed} gets SIGKILL: its Lease runs out, the sharder takes it, the others take over"));
        system.kill_shard(&killed).await?;
        rest(system).await
    }

    async fn end(&self, system: &mut System, updates: Updates) -> Result<(Report, Verdict)> {
        self.screen.chapter("one last change of each object: everybody works on all that is his");
        updates.stop().await.context("change objects")?;
        let workload = self.workload("site", self.arguments.objects());
        match system.until_all_worked_on(&workload, bound()).await {
            // Not settled in time is a verdict too: the report names what was forgotten.
            Err(SystemError::TimedOut(error)) => self.screen.say(&error.to_string()),
            outcome => outcome?,
        }
        Ok((system.report(bound()).await?, system.judge_writes().await?))
    }

    fn workload(&self, prefix: &'static str, objects: usize) -> Workload {
        let seed = self.arguments.seed;
        let interval = self.arguments.update_interval();
        Workload { work: WORK, interval, seed, ..Workload::idle(prefix, objects) }
    }
}

/// For how long an object may wait: a killed shard's Lease has to run out twice before others may take over
/// (CONTRACT, "Shard Lease"), and 5 s for the takeover itself; then it still has to be worked on, in a queue.
fn bound() -> Duration {
    2 * Settings::with_short_leases().lease_duration + Duration::from_secs(5) + Duration::from_secs(5)
}

/// Waits until all have their share, and lets people look at it.
async fn rest(system: &System) -> Result<()> {
    system.until_balanced(STEP_DEADLINE).await?;
    tokio::time::sleep(PAUSE).await;
    Ok(())
}
