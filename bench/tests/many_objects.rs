//! A ring with many objects: the sharder's memory stays small, whatever it has to do with them, and each object ends where
//! the ring says.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout, reason = "what was measured is part of the result")]

use ringside_bench::sharder::{Cost, Ground, Make};

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
    let mut ground = Ground::start(Make::Ringside, objects, SHARDS).await.unwrap();
    let empty = ground.rest().await.unwrap();
    println!("{objects} objects, empty: {:.1} MB", megabytes(empty.own));
    let mut most = empty.resident;
    // Each phase looks in the end where all of them are.
    for (phase, (given, Cost { own, resident, requests, .. })) in [
        ("assigned from nothing", ground.assign().await.unwrap()),
        ("a shard joins", ground.join().await.unwrap()),
        ("a shard leaves", ground.leave().await.unwrap()),
        ("a shard dies", ground.die().await.unwrap()),
    ] {
        println!("{phase}: {given} objects, {requests} requests, {:.1} MB", megabytes(own));
        assert!(own <= MOST, "{own} bytes");
        assert!(given > 0 && requests < 4 * given, "{requests} requests for {given} objects");
        most = most.max(resident);
    }
    most
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
