//! Shards of different weights, said by the shard itself or by a person who annotates its Lease.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{coordination::v1::Lease, events::v1::Event};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use ringside_e2e::{case, live::Group};
use ringside_e2e::{
    eventually::eventually,
    system::{NAMESPACE, Settings, System},
    workload::Workload,
};
use ringside_ring::{ClusterRing, labels::LEASE_WEIGHT};
use serde_json::json;

/// The cases.
pub(crate) fn group() -> Group {
    Group::new("weights", vec![case!(a_weight_changes_what_a_shard_gets_and_touches_nobody_else).works()])
}

const OBJECTS: usize = 240;
const DEADLINE: Duration = Duration::from_secs(90);

fn workload(seed: u64) -> Workload {
    Workload {
        work: Duration::from_millis(20),
        interval: Duration::from_millis(100),
        seed,
        ..Workload::idle("site", OBJECTS)
    }
}

/// As `kubectl annotate lease SHARD ringside.dev/weight=…` does; without a weight it takes the annotation off.
async fn annotate(system: &System, shard: &str, weight: Option<&str>) {
    let leases: Api<Lease> = Api::namespaced(system.control_plane().client(), NAMESPACE);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {LEASE_WEIGHT: weight}}}));
    leases.patch(shard, &PatchParams::default(), &patch).await.unwrap();
    println!("{shard} weighs {weight:?}");
}

/// The number of objects by shard, once nothing moves and they are in these proportions, as far as so few objects can be.
async fn until_shared(system: &System, weights: &[(&str, f64)]) -> BTreeMap<String, usize> {
    let whole: f64 = weights.iter().map(|(_, weight)| weight).sum();
    let owned = eventually("the objects are shared as the weights say", DEADLINE, || async {
        system.check().map_err(|error| error.to_string())?;
        let picture = system.monitor().picture();
        let fits = weights.iter().all(|(shard, weight)| {
            let share = OBJECTS as f64 * weight / whole;
            let has = picture.owned.get(*shard).copied().unwrap_or_default() as f64;
            (has - share).abs() <= (share / 2.0).min(OBJECTS as f64 / whole / 4.0)
        });
        let still = picture.draining.is_empty() && picture.unassigned == 0;
        if fits && still { Ok(picture.owned.clone()) } else { Err(format!("{picture:?}")) }
    });
    let owned = owned.await.unwrap();
    println!("{owned:?}");
    owned
}

/// Waits until the ring's status counts what each shard has like this.
async fn until_counted(system: &System, owned: &BTreeMap<String, usize>) {
    let rings: Api<ClusterRing> = Api::all(system.control_plane().client());
    eventually("the status counts what each shard has", DEADLINE, || async {
        let ring = rings.get("websites").await.map_err(|error| error.to_string())?;
        let counts = ring.status.and_then(|status| status.objects).ok_or("nothing was counted")?;
        let some = counts.shards.iter().filter(|shard| shard.objects > 0);
        let counted: BTreeMap<_, _> =
            some.map(|shard| (shard.name.clone(), usize::try_from(shard.objects).unwrap_or_default())).collect();
        if counted == *owned { Ok(()) } else { Err(format!("{counted:?}")) }
    })
    .await
    .unwrap();
}

/// Waits until the ring, which is no less ready, and an Event on it name the shard whose weight is `much`; so does the log.
async fn until_told(system: &System, shard: &str) {
    let rings: Api<ClusterRing> = Api::all(system.control_plane().client());
    let names_it = |text: &str| text.contains(&format!("'{shard}'")) && text.contains("'much' is not a weight");
    let told = eventually("the ring tells of it", DEADLINE, || async {
        let ring = rings.get("websites").await.map_err(|error| error.to_string())?;
        let conditions = ring.status.unwrap_or_default().conditions;
        let of = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
        let ready = of("Ready").is_some_and(|ready| ready.status == "True");
        let told = of("WeightsValid").filter(|told| ready && told.status == "False" && names_it(&told.message));
        told.map(|told| told.message.clone()).ok_or_else(|| format!("{conditions:?}"))
    });
    println!("{}", told.await.unwrap());
    let events: Api<Event> = Api::all(system.control_plane().client());
    eventually("an Event tells of it", DEADLINE, || async {
        let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let about = |event: &&Event| event.reason.as_deref() == Some("InvalidWeight");
        let notes: Vec<_> = all.iter().filter(about).filter_map(|event| event.note.as_deref()).collect();
        if notes.iter().any(|note| names_it(note)) { Ok(()) } else { Err(format!("{notes:?}")) }
    })
    .await
    .unwrap();
    let log = std::fs::read_to_string(system.sharders().next().unwrap().process().log()).unwrap();
    let said = |line: &str| line.contains("its weight can't be read") && line.contains(shard);
    assert!(log.lines().any(said), "{log}");
}

async fn a_weight_changes_what_a_shard_gets_and_touches_nobody_else() {
    let mut system = System::start(Settings::default()).await.unwrap();
    system.start_sharding(1).await.unwrap();
    for shard in ["shard-0", "shard-1"] {
        system.add_shard(shard).await.unwrap();
    }
    // It says so itself.
    system.add_weighted_shard("shard-2", "2").await.unwrap();
    system.until_counted(DEADLINE).await.unwrap();
    workload(0).create(&system.control_plane().client()).await.unwrap();
    until_shared(&system, &[("shard-0", 1.0), ("shard-1", 1.0), ("shard-2", 2.0)]).await;
    system.until_settled(DEADLINE).await.unwrap();
    let updates = workload(3).start_updates(&system.control_plane().client());

    // A person empties one: it stays a member.
    annotate(&system, "shard-1", Some("0")).await;
    let without = until_shared(&system, &[("shard-0", 1.0), ("shard-1", 0.0), ("shard-2", 2.0)]).await;
    assert_eq!(without.get("shard-1"), None);
    until_counted(&system, &without).await;
    system.until_counted_are(3, DEADLINE).await.unwrap();

    // A canary: little at first.
    annotate(&system, "shard-1", Some("0.25")).await;
    until_shared(&system, &[("shard-0", 1.0), ("shard-1", 0.25), ("shard-2", 2.0)]).await;

    // What is no number counts as 1, and the ring says so.
    annotate(&system, "shard-1", Some("much")).await;
    until_shared(&system, &[("shard-0", 1.0), ("shard-1", 1.0), ("shard-2", 2.0)]).await;
    until_told(&system, "shard-1").await;
    annotate(&system, "shard-1", None).await;
    until_shared(&system, &[("shard-0", 1.0), ("shard-1", 1.0), ("shard-2", 2.0)]).await;

    updates.stop().await.unwrap();
    system.until_all_worked_on(&workload(0), DEADLINE).await.unwrap();
    let (report, writes) = (system.report(DEADLINE).await.unwrap(), system.judge_writes().await.unwrap());
    assert!(report.is_clean(), "{report:#?}");
    assert!(writes.is_clean() && report.second_creates == 0, "{writes:#?}");
    println!("{} moves", writes.handovers.len());
}
