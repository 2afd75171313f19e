//! API servers of two minor versions on one etcd, as while a cluster is upgraded: shards reach now this one, now that one.

use std::time::Duration;

use ringside_e2e::{
    system::{Settings, System},
    workload::Workload,
};

/// A dead shard has some, and none has too many for a machine of two cores.
const OBJECTS: usize = 60;

/// Enough for a machine that runs other tests beside; what is promised is asserted from the records.
const DEADLINE: Duration = Duration::from_secs(120);

/// An object that waits for longer is not about to be found: the slowest machine is done with it by then.
const FORGOTTEN: Duration = Duration::from_mins(6);

fn workload(seed: u64) -> Workload {
    Workload {
        work: Duration::from_millis(100),
        interval: Duration::from_millis(200),
        seed,
        ..Workload::idle("site", OBJECTS)
    }
}

/// Leads every second shard to one server, and the others to the other one.
fn deal(system: &System, [one, other]: [std::net::SocketAddr; 2]) {
    for (number, shard) in system.shards().enumerate() {
        let line = shard.line().expect("a line");
        line.lead_to(if number % 2 == 0 { one } else { other });
    }
}

pub(crate) async fn beside_an_api_server_of_the_version_before_objects_move_and_are_taken_over() {
    let settings = Settings { chain: true, lines: true, drain_grace: Duration::from_secs(2), ..Settings::default() };
    let mut system = System::start(settings).await.unwrap();
    system.start_sharding(2).await.unwrap();
    for shard in ["shard-0", "shard-1", "shard-2"] {
        system.add_shard(shard).await.unwrap();
    }
    system.share_out(&workload(0), DEADLINE).await.unwrap();
    let before = system.control_plane().start_neighbouring_api_server().await.unwrap();
    let servers = [system.control_plane().address(), before.address()];
    let updates = workload(3).start_updates(&system.control_plane().client());

    // A move, to a shard that reaches the other server than those before it.
    deal(&system, servers);
    system.add_shard("shard-3").await.unwrap();
    deal(&system, servers);
    system.until_balanced(DEADLINE).await.unwrap();

    // A takeover, with all shards led from one server to the other in the middle of it.
    system.kill_shard("shard-0").await.unwrap();
    deal(&system, [servers[1], servers[0]]);
    system.until_balanced(DEADLINE).await.unwrap();

    // A rollout.
    for (old, new) in [("shard-1", "shard-4"), ("shard-2", "shard-5"), ("shard-3", "shard-6")] {
        system.add_shard(new).await.unwrap();
        deal(&system, servers);
        system.remove_shard(old).await.unwrap();
    }
    system.until_balanced(DEADLINE).await.unwrap();
    updates.stop().await.unwrap();
    system.until_all_worked_on(&workload(0), DEADLINE).await.unwrap();

    let report = system.report(FORGOTTEN).await.unwrap();
    let verdict = system.judge_writes().await.unwrap();
    assert!(report.is_clean() && report.second_creates == 0, "{report:#?}");
    assert_eq!(report.objects.values().sum::<usize>(), OBJECTS);
    assert!(verdict.is_clean(), "{verdict:#?}");
}
