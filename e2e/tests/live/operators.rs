//! Ordinary controllers in several languages, unmodified but for what they report: each shares its objects through proxies, and
//! goes on where another has stopped.

mod kopf;
mod scenario;

use ringside_e2e::{
    case,
    checker::Report,
    live::{Case, Group},
    system::{Settings, System},
    toolchain::{Need, Operator},
    workload::Workload,
};
use std::time::Duration;

use crate::planes::{Keeps, plane};

/// The cases. The Go operator is that of all other groups.
pub(crate) fn group() -> Group {
    let python = Need::from(Operator::Python);
    let mut cases = vec![
        case!(kopf::ends_timers_and_daemons_of_what_left).needs(python).costs("a minute of beats, by kopf"),
        case!("go_and_python_replicas_share_one_ring", scenario::mixed())
            .needs(python)
            .costs("two minutes, by operators of two languages"),
        case!("children_of_java_in_the_ring_are_created_once", scenario::of(Operator::Java, true))
            .needs(Operator::Java.into())
            .costs("two minutes of JVMs that come and go"),
    ];
    for (operator, short, long) in [
        (Operator::Python, "python_shares", "python_shards_join_leave_and_die"),
        (Operator::Java, "java_shares", "java_shards_join_leave_and_die"),
        (Operator::Rust, "rust_shares", "rust_shards_join_leave_and_die"),
        (Operator::Node, "node_shares", "node_shards_join_leave_and_die"),
    ] {
        let scenario = case!(long, scenario::of(operator, operator.marks_controllers()));
        let of_operator = [case!(short, shares(operator)), scenario.costs("two minutes of joins, kills and changes")];
        cases.extend(of_operator.map(|case| case.needs(operator.into())));
    }
    Group::new("operators", cases.into_iter().map(Case::works).collect())
}

/// Enough for a machine that runs other tests beside; what is promised is asserted from the records.
const DEADLINE: Duration = Duration::from_secs(90);

/// An object that waits for longer is not about to be found.
const FORGOTTEN: Duration = Duration::from_mins(6);

/// Nothing to complain of.
fn assert_clean(report: &Report) {
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!(report.second_creates, 0, "a child was to be created that was there");
}

/// Two shards share objects, and one takes over all of them.
async fn shares(operator: Operator) {
    const OBJECTS: usize = 10;
    let namespace = format!("operator-{operator:?}").to_lowercase();
    let settings = Settings {
        operator,
        children_in_ring: operator.marks_controllers(),
        // No shard dies here.
        lease_duration: Duration::from_secs(30),
        ..Keeps::Both.settings()
    };
    let mut system = System::on(&plane(Keeps::Both).await, &namespace, settings).await.unwrap();
    system.start_ring().await.unwrap();
    for shard in ["shard-0", "shard-1"] {
        system.add_shard(shard).await.unwrap();
    }
    let workload = Workload { work: Duration::from_millis(50), ..Workload::idle("site", OBJECTS).within(&namespace) };
    system.share_out(&workload, DEADLINE).await.unwrap();
    system.remove_shard("shard-0").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    system.until_all_worked_on(&workload, DEADLINE).await.unwrap();
    let (report, writes) = (system.report(FORGOTTEN).await.unwrap(), system.judge_writes().await.unwrap());
    assert_clean(&report);
    assert_eq!(writes.lost, []);
    assert_eq!((report.objects.len(), report.reconciles.len()), (1, 2), "{report:?}");
}
