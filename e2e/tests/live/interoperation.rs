//! Rings of mixed make: shards that shard themselves beside proxied ones, and proxied shards under a sharder that is not ours.
//! Both are written in Go after the thesis, and know nothing of Ringside.

use std::time::Duration;

use ringside_e2e::{
    case,
    checker::{Report, Verdict},
    live::Group,
    system::{Settings, System},
    toolchain::Need,
    workload::{Updates, Workload},
};
use ringside_ring::RingKind;

/// The cases.
pub(crate) fn group() -> Group {
    let cases = vec![
        case!("shards_that_shard_themselves_are_members_like_proxied_ones", mixed(RingKind::ClusterRing)),
        case!("a_ring_of_the_newer_kind_has_members_of_both_makes", mixed(RingKind::ControllerRing)),
        case!(proxied_shards_work_under_a_sharder_of_another_make),
    ];
    let cost = "two minutes, and programs that are not ours";
    Group::new(
        "interoperation",
        cases
            .into_iter()
            .map(|case| case.works().needs(Need::OwnShard).needs(Need::OtherSharder).costs(cost))
            .collect(),
    )
}

const OBJECTS: usize = 120;

/// Enough for a machine that runs other tests beside; what is promised is asserted from the records.
const DEADLINE: Duration = Duration::from_secs(90);

fn workload(seed: u64) -> Workload {
    Workload {
        work: Duration::from_millis(100),
        interval: Duration::from_millis(50),
        seed,
        ..Workload::idle("site", OBJECTS)
    }
}

/// The verdicts after one more change to each object.
async fn end(system: &System, updates: Updates) -> (Report, Verdict) {
    updates.stop().await.unwrap();
    system.until_all_worked_on(&workload(0), DEADLINE).await.unwrap();
    let (report, verdict) = (system.report(DEADLINE).await.unwrap(), system.judge_writes().await.unwrap());
    println!("{report:?}\nmoves that were acknowledged: {}", verdict.handovers.len());
    assert_eq!(report.objects.values().sum::<usize>(), OBJECTS);
    (report, verdict)
}

/// Shards that shard themselves and proxied ones are members of one ring.
async fn mixed(kind: RingKind) {
    let mut system = System::start(Settings { kind, controller_rings: true, ..Settings::default() }).await.unwrap();
    system.start_sharding(2).await.unwrap();
    for proxied in ["proxied-0", "proxied-1"] {
        system.add_shard(proxied).await.unwrap();
    }
    for own in ["own-0", "own-1"] {
        system.add_own_shard(own).await.unwrap();
    }
    system.share_out(&workload(0), DEADLINE).await.unwrap();
    let share = OBJECTS / 4;
    for (shard, objects) in system.monitor().picture().owned {
        assert!(objects > share / 2 && objects < share * 2, "{shard} has {objects}");
    }

    // Each newcomer is given objects by shards of both makes.
    let updates = workload(7).start_updates(&system.control_plane().client());
    system.add_own_shard("own-2").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    system.add_shard("proxied-2").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    let acknowledged = system.judge_writes().await.unwrap().handovers.len();
    let newcomers = system.monitor().picture();
    assert!(acknowledged >= newcomers.owned["proxied-2"], "{acknowledged} moves, {:?}", newcomers.owned);

    for removed in ["own-1", "proxied-1"] {
        system.remove_shard(removed).await.unwrap();
        system.until_balanced(DEADLINE).await.unwrap();
    }
    for killed in ["own-0", "proxied-0"] {
        system.kill_shard(killed).await.unwrap();
        system.until_balanced(DEADLINE).await.unwrap();
    }

    let (report, verdict) = end(&system, updates).await;
    assert!(report.is_clean(), "{report:#?}");
    assert!(verdict.is_clean() && report.second_creates == 0, "{verdict:#?}");
    let by = |make: &str| report.reconciles.iter().filter(|(instance, _)| instance.starts_with(make)).count();
    assert_eq!((by("own-"), by("proxied-")), (3, 3), "all of them worked: {:?}", report.reconciles);
}

/// It places whatever comes without a label in its webhook, so an acknowledgement names the next owner at once, and it
/// relabels children whenever it meets them.
async fn proxied_shards_work_under_a_sharder_of_another_make() {
    let mut system = System::start(Settings::default()).await.unwrap();
    system.start_other_sharding().await.unwrap();
    for shard in ["shard-0", "shard-1", "shard-2"] {
        system.add_shard(shard).await.unwrap();
    }
    system.share_out(&workload(0), DEADLINE).await.unwrap();
    let updates = workload(8).start_updates(&system.control_plane().client());
    system.add_shard("shard-3").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    let moved = system.monitor().picture().owned["shard-3"];
    system.remove_shard("shard-1").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    system.kill_shard("shard-0").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();

    let (report, verdict) = end(&system, updates).await;
    assert!(moved > 0);
    // What rests on the proxies holds; what rests on the sharder, the order of children, is not promised.
    assert!(report.is_clean(), "{report:#?}");
    let own: Vec<_> = verdict.foreign.iter().filter(|landed| landed.object.starts_with("websites")).collect();
    assert!(own.is_empty() && verdict.unknown == 0, "{own:#?}");
    assert_eq!(verdict.lost, []);
}
