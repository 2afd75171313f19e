//! A ring with many objects: the sharder's memory stays small, whatever it has to do with them, and each object ends where
//! the ring says.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout, reason = "what was measured is part of the result")]

use ringside_bench::sharder::{Cost, Ground, Make};

const SHARDS: usize = 10;
const OBJECTS: usize = 10_000;

/// Of its own memory, without the pages of the executable. All of what these objects look like would be more.
const MOST: u64 = 40_000_000;

#[tokio::test]
async fn ten_thousand_objects_find_their_shards_in_little_memory() {
    let mut ground = Ground::start(Make::Ringside, OBJECTS, SHARDS).await.unwrap();
    println!("empty: {:.1} MB", megabytes(ground.rest().await.unwrap().own));
    // Each phase looks in the end where all of them are.
    for (phase, (given, Cost { own, requests, .. })) in [
        ("assigned from nothing", ground.assign().await.unwrap()),
        ("a shard joins", ground.join().await.unwrap()),
        ("a shard leaves", ground.leave().await.unwrap()),
        ("a shard dies", ground.die().await.unwrap()),
    ] {
        println!("{phase}: {given} objects, {requests} requests, {:.1} MB", megabytes(own));
        assert!(own <= MOST, "{own} bytes");
        assert!(given > 0 && requests < 4 * given, "{requests} requests for {given} objects");
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
