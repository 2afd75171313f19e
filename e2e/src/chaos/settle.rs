//! Whether all comes to rest after the last fault.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use anyhow::{Result, ensure};
use kube::{Api, ResourceExt as _, api::ListParams};
use ringside_ring::ClusterRing;
use tokio::time::{Instant, sleep};

use super::run::Run;
use crate::{checker::Checker, system::Shard, website::Homes};

/// How often is looked.
const LOOK: Duration = Duration::from_secs(1);

/// What is in the way of rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unrest {
    /// What was seen last.
    pub why: String,
    /// The objects concerned, by namespace and name.
    pub objects: BTreeSet<String>,
}

/// Waits until the sharder counts the shards that run, each object is with the shard that the ring says, no shard is asked to
/// release anything, and all changes were worked on; then changes each object once more, and waits for that. Returns
/// what is in the way when that takes longer than `within`.
pub(super) async fn settle(run: &mut Run, within: Duration) -> Result<Option<Unrest>> {
    let until = Instant::now() + within;
    if let Some(fault) = settled(run, until).await? {
        return Ok(Some(fault));
    }
    for website in run.workload.change_all(&run.client).await? {
        run.system.monitor().wrote(&website);
    }
    settled(run, until).await
}

/// A run that can't go on, and what waits meanwhile.
pub(super) fn broken_off(run: &Run, error: &anyhow::Error) -> Unrest {
    Unrest { why: format!("it could not go on: {error:#}"), objects: run.system.monitor().judge(Checker::waiting) }
}

async fn settled(run: &mut Run, until: Instant) -> Result<Option<Unrest>> {
    loop {
        run.revive().await?;
        // What could not be looked at is in the way as well.
        let seen = look(run).await.unwrap_or_else(|error| Some(Unrest::of(error.to_string())));
        if seen.is_none() || Instant::now() >= until {
            return Ok(seen);
        }
        sleep(LOOK).await;
    }
}

async fn look(run: &Run) -> Result<Option<Unrest>> {
    let picture = run.system.monitor().picture();
    let waiting = run.system.monitor().judge(Checker::waiting);
    if !picture.draining.is_empty() || picture.unassigned > 0 || !waiting.is_empty() {
        return Ok(Some(Unrest { why: format!("{picture:?}, {} wait", waiting.len()), objects: waiting }));
    }
    let rings: Api<ClusterRing> = Api::all(run.client.clone());
    let status = rings.get(run.ring.name()).await?.status.unwrap_or_default();
    let running = run.system.shards().count();
    if usize::try_from(status.available_shards) != Ok(running) {
        return Ok(Some(Unrest::of(format!("{} of {running} shards are counted", status.available_shards))));
    }
    let unstable = status.conditions.iter().find(|it| it.type_ == "ShardsStable" && it.status == "False");
    let unstable = unstable.map(|condition| condition.message.as_str()).unwrap_or_default();
    let misplaced = misplaced(run, unstable).await?;
    let why = format!("not where they belong: {misplaced:?}");
    Ok((!misplaced.is_empty()).then(|| Unrest { why, objects: misplaced.into_keys().collect() }))
}

/// The objects that are not with the shard that the ring says, with the shard that they are with. To shards that came and went,
/// which `unstable` names, nothing is moved for up to ten minutes.
async fn misplaced(run: &Run, unstable: &str) -> Result<BTreeMap<String, Option<String>>> {
    let homes = Homes::among(run.system.shards().map(Shard::name))?;
    let all = run.workload.api(&run.client).list_metadata(&ListParams::default()).await?.items;
    ensure!(all.len() == run.workload.objects, "{} of {} objects are there", all.len(), run.workload.objects);
    let elsewhere = all.iter().filter_map(|object| {
        let (namespace, name) = (object.namespace()?, object.name_any());
        let ownership = run.labels.ownership(object.metadata.labels.as_ref());
        let with = ownership.shard.map(str::to_owned);
        let home = homes.of(&namespace, &name);
        let stays = home.is_some_and(|home| unstable.contains(&format!("'{home}'")));
        let is_home = (stays || home == ownership.shard) && ownership.drain.is_none();
        (!is_home).then(|| (format!("{namespace}/{name}"), with))
    });
    Ok(elsewhere.collect())
}

impl Unrest {
    fn of(why: String) -> Self {
        Self { why, objects: BTreeSet::new() }
    }
}

impl fmt::Display for Unrest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}
