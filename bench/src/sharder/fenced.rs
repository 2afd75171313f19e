//! A shard behind a proxy that leaves in order, in a ring that the API server fences.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use ringside_e2e::{
    audit::Requests,
    system::{SHARDER_USER, Settings, System},
    workload::Workload,
};
use ringside_ring::cluster_ring::Fence;

use crate::say;

const SHARDS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(180);
/// What the API server writes down, it writes a moment after it has answered.
const WRITTEN: Duration = Duration::from_secs(1);

/// One of three shards, with about so many objects of two children each, ends in order. Returns how long each object was
/// without owner: from the release of the Lease to the sharder's last write, in order.
///
/// # Errors
/// When it can't be measured.
pub async fn leave_fenced(objects: usize) -> anyhow::Result<Vec<Duration>> {
    say(format_args!("{objects} x (1 + 2) leave in order, with three proxies and the API server's fence"));
    let settings = Settings { fence: Fence::ApiServer, audit_requests: true, ..Settings::with_short_leases() };
    let mut system = System::start(settings).await?;
    system.start_sharding(1).await?;
    let names: Vec<_> = (0..SHARDS).map(|number| format!("shard-{number}")).collect();
    for name in &names {
        system.add_shard(name).await?;
    }
    system.until_fenced(DEADLINE).await?;
    system.share_out(&Workload::idle("site", SHARDS * objects), DEADLINE).await?;
    let log = system.control_plane().audit_log();
    let mut of_sharder = Requests::of(log.clone(), SHARDER_USER);
    let mut of_shards = Requests::of(log, &system.shards_user());
    of_sharder.since()?;
    of_shards.since()?;
    let leaving = names.last().context("no shard")?;
    system.remove_shard(leaving).await?;
    system.until_balanced(DEADLINE).await?;
    system.until_settled(DEADLINE).await?;
    tokio::time::sleep(WRITTEN).await;
    let of_shards = of_shards.since()?;
    let lease = of_shards.iter().filter(|one| one.resource == "leases" && one.name == *leaving && one.code < 300);
    let released = lease.filter(|one| ["patch", "update"].contains(&&*one.verb)).map(|one| one.answered).max();
    let released = released.context("the shard did not release its Lease")?;
    let mut owned = BTreeMap::new();
    for write in of_sharder.since()? {
        if write.verb == "patch" && write.resource == "websites" && write.code < 300 {
            owned.insert(write.name, write.answered);
        }
    }
    ensure!(!owned.is_empty(), "nothing moved");
    let mut times: Vec<_> = owned.into_values().map(|at| at.duration_since(released)).collect();
    times.sort_unstable();
    Ok(times.into_iter().map(|time| Duration::try_from(time).unwrap_or_default()).collect())
}
