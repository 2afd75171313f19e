//! A whole system with the fence: proxies and operators notice nothing of it, and a paused proxy does no harm.

use std::time::Duration;

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use ringside_e2e::{
    eventually::eventually,
    system::{Settings, System},
    workload::Workload,
};
use ringside_ring::ClusterRing;
use serde_json::json;

use crate::ground::DEADLINE;

const OBJECTS: usize = 60;

fn workload(seed: u64) -> Workload {
    Workload {
        work: Duration::from_millis(100),
        interval: Duration::from_millis(50),
        seed,
        ..Workload::idle("site", OBJECTS)
    }
}

async fn fenced() -> System {
    let mut system = System::start(Settings::default()).await.unwrap();
    let ring = system.start_sharding(1).await.unwrap();
    let client = system.control_plane().client();
    let rings: Api<ClusterRing> = Api::all(client.clone());
    let fence = Patch::Merge(json!({"spec": {"fence": "APIServer"}}));
    rings.patch(ring.as_str(), &PatchParams::default(), &fence).await.unwrap();
    for shard in ["shard-0", "shard-1", "shard-2"] {
        system.add_shard(shard).await.unwrap();
    }
    eventually("the fence is in place", DEADLINE, || async {
        let ring = rings.get(ring.as_str()).await.map_err(|error| error.to_string())?;
        let conditions = ring.status.unwrap_or_default().conditions;
        let fenced = conditions.iter().find(|one| one.type_ == "Fenced").ok_or("no condition")?;
        if fenced.status == "True" { Ok(()) } else { Err(format!("{fenced:?}")) }
    })
    .await
    .unwrap();
    system.share_out(&workload(0), DEADLINE).await.unwrap();
    system
}

#[tokio::test]
async fn moves_and_a_paused_proxy_in_a_fenced_ring() {
    let mut system = fenced().await;
    let updates = workload(1).start_updates(&system.control_plane().client());
    system.add_shard("shard-3").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    let writes = system.judge_writes().await.unwrap();
    assert!(writes.is_clean() && !writes.handovers.is_empty() && writes.by_shards > OBJECTS, "{writes:#?}");

    // Its operator goes on meanwhile, and what it sends waits in the proxy's sockets.
    let paused = system.shards().find(|shard| shard.name() == "shard-0").unwrap();
    paused.proxy().pause().unwrap();
    eventually("its objects are given to others", DEADLINE, || async {
        let owned = system.monitor().picture().owned;
        owned.get("shard-0").map_or(Ok(()), |objects| Err(format!("{objects} are its own")))
    })
    .await
    .unwrap();
    system.shards().find(|shard| shard.name() == "shard-0").unwrap().proxy().resume().unwrap();
    updates.stop().await.unwrap();
    let writes = system.judge_writes().await.unwrap();
    assert!(writes.foreign.is_empty(), "{:#?}", writes.foreign);
}
