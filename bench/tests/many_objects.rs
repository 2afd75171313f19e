//! A ring with many objects: the sharder's memory stays small, whatever it has to do with them, and each object ends where
//! the ring says.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout, reason = "what was measured is part of the result")]

use std::time::Duration;

use ringside_bench::sharder::{Ground, Make, Shape};

const SHARDS: usize = 10;
const FEW: usize = 1_000;
const MANY: usize = 10_000;

/// Of its own memory, without the pages of the executable. All of what these objects look like would be more.
const MOST: u64 = 40_000_000;
/// How many times as much for many as for few, at most.
const GROWTH: f64 = 1.15;

#[tokio::test]
#[ignore = "left to --include-ignored: minutes, with 10,000 objects"]
async fn ten_times_the_objects_find_their_shards_in_the_same_little_memory() {
    let (few, many) = (peak(FEW).await, peak(MANY).await);
    let growth = many as f64 / few as f64;
    println!(
        "{:.1} MB for {FEW} objects, {:.1} MB for {MANY}: {growth:.3} times that",
        megabytes(few),
        megabytes(many)
    );
    assert!(growth <= GROWTH, "{growth:.3} times the memory for {MANY} objects");
}

/// What it has at most, whatever happens to so many objects.
async fn peak(objects: usize) -> u64 {
    let shape = Shape { objects, children: 0 };
    let mut ground = Ground::start(&Make::Ringside, shape, SHARDS, Duration::from_secs(1)).await.unwrap();
    let mut most = 0;
    // Each phase looks in the end where all of them are.
    for (phase, outcome) in [
        ("assigned from nothing", ground.assign().await.unwrap()),
        ("a shard joins", ground.join().await.unwrap()),
        ("a shard leaves", ground.leave().await.unwrap()),
        ("a shard dies", ground.die().await.unwrap()),
    ] {
        let (moves, own) = (outcome.moves, outcome.spent.own);
        println!("{phase}: {} objects, {} writes, {:.1} MB", moves.count, moves.writes, megabytes(own));
        assert!(own <= MOST, "{own} bytes");
        assert!(moves.count > 0 && moves.writes < 4 * moves.count, "{} writes", moves.writes);
        most = most.max(outcome.spent.resident);
    }
    most
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
