//! The measurement of the sharder itself, with few objects: each phase is measured, and each figure told.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ringside_bench::{
    Aims,
    sharder::{Make, Plan, Shape, join_beside_refused, measure, report},
};

#[tokio::test]
#[ignore = "left to --include-ignored: more than a minute, most of it until a shard that died is noticed"]
async fn a_small_run_measures_every_phase() {
    let plan = Plan {
        shape: Shape { objects: 50, children: 1 },
        shards: 3,
        bare: Duration::from_millis(200),
        rest: Duration::from_secs(1),
    };
    let (mut ground, measured) = measure(&Make::Ringside, plan).await.unwrap();
    assert_eq!(measured.assigned.moves.count, 50);
    for outcome in [&measured.joined, &measured.left, &measured.died] {
        assert!(outcome.moves.count > 0 && outcome.moves.writes >= 2 * outcome.moves.count, "{:?}", outcome.moves);
    }
    // What the shard that joined got, it had of others that live; what it left behind is the same.
    assert_eq!(measured.joined.moves.drained.len(), measured.joined.moves.count);
    assert_eq!((measured.left.moves.count, measured.left.moves.drained.len()), (measured.joined.moves.count, 0));
    assert!(join_beside_refused(&mut ground, 20).await.unwrap().moves.count > 0);
    let mut aims = Aims::new("small_run");
    report(&mut aims, "", &measured);
}
