//! Sharders and proxies of two versions beside each other: back to the version before and forward again, each time in the
//! middle of moves and of a takeover, under load.

use std::{path::PathBuf, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use ringside_e2e::{
    eventually::{enough, eventually},
    system::{NAMESPACE, Settings, System},
    toolchain::{built, ringside, ringside_before},
    workload::Workload,
};
use ringside_ring::lease::{SHARDER_HOLDER, holder};

/// Enough for a dead shard's to be many, and for a machine of two cores.
const OBJECTS: usize = 150;

/// Enough for a machine that runs other tests beside; what is promised is asserted from the records.
const DEADLINE: Duration = Duration::from_secs(120);

/// An object that waits for longer is not about to be found: the slowest machine is done with it by then.
const FORGOTTEN: Duration = Duration::from_mins(6);

fn workload(seed: u64) -> Workload {
    Workload {
        // Far below the grace; some objects are being worked on at any moment.
        work: Duration::from_millis(200),
        interval: Duration::from_millis(200),
        seed,
        ..Workload::idle("site", OBJECTS)
    }
}

/// Proxy and sharder.
type Programs = (PathBuf, PathBuf);

pub(crate) async fn rolled_back_and_forth_amid_moves_and_a_takeover_nothing_is_worked_on_twice_or_forgotten() {
    let (now, before) = (built(ringside).await.unwrap(), built(ringside_before).await.unwrap());
    let (now, before) = ((now.proxy, now.sharder), (before.proxy, before.sharder));
    let settings = Settings {
        chain: true,
        lease_duration: Duration::from_secs(10),
        drain_grace: Duration::from_secs(2),
        ..Settings::default()
    };
    let mut system = System::start(settings).await.unwrap();
    system.start_sharding(2).await.unwrap();
    for shard in ["shard-0", "shard-1", "shard-2"] {
        system.add_shard(shard).await.unwrap();
    }
    system.share_out(&workload(0), DEADLINE).await.unwrap();
    let updates = workload(3).start_updates(&system.control_plane().client());
    roll(&mut system, &before, ["shard-0", "shard-1", "shard-2"], ["shard-3", "shard-4", "shard-5"]).await;
    roll(&mut system, &now, ["shard-3", "shard-4", "shard-5"], ["shard-6", "shard-7", "shard-8"]).await;
    system.until_balanced(DEADLINE).await.unwrap();
    updates.stop().await.unwrap();
    system.until_all_worked_on(&workload(0), DEADLINE).await.unwrap();

    let report = system.report(FORGOTTEN).await.unwrap();
    let verdict = system.judge_writes().await.unwrap();
    enough("acknowledged moves", verdict.handovers.len(), OBJECTS / 2);
    assert!(report.is_clean() && report.second_creates == 0, "{report:#?}");
    assert_eq!(report.objects.values().sum::<usize>(), OBJECTS);
    assert!(verdict.is_clean(), "{verdict:#?}");
}

/// Sharders first, in the middle of moves, then proxies, one Pod for another, of which the first is gone without a word. In the
/// middle of its takeover the sharders are replaced once more.
async fn roll(system: &mut System, (proxy, sharder): &Programs, [dead, second, third]: [&str; 3], new: [&str; 3]) {
    system.start_from(proxy, sharder);
    system.add_shard(new[0]).await.unwrap();
    until(system, "objects move", |system| !system.monitor().picture().draining.is_empty()).await;
    system.roll_sharders(DEADLINE).await.unwrap();

    system.kill_shard(dead).await.unwrap();
    system.add_shard(new[1]).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(system.control_plane().client(), NAMESPACE);
    eventually("the sharder takes over", DEADLINE, || async {
        let lease = leases.get(dead).await.map_err(|error| error.to_string())?;
        match holder(lease.spec.as_ref()) {
            Some(SHARDER_HOLDER) => Ok(()),
            other => Err(format!("{other:?} holds the Lease")),
        }
    })
    .await
    .unwrap();
    system.roll_sharders(DEADLINE).await.unwrap();

    system.remove_shard(second).await.unwrap();
    system.add_shard(new[2]).await.unwrap();
    system.remove_shard(third).await.unwrap();
    let owned = |system: &System| !system.monitor().picture().owned.contains_key(dead);
    until(system, "the dead shard has no objects", owned).await;
}

async fn until(system: &System, what: &str, reached: impl Fn(&System) -> bool) {
    eventually(what, DEADLINE, || async {
        if reached(system) { Ok(()) } else { Err(format!("{:?}", system.monitor().picture())) }
    })
    .await
    .unwrap();
}
