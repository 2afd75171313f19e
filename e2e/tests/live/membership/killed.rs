//! How long the objects of a shard that was killed are without an owner.

use std::time::{Duration, Instant};

use ringside_e2e::eventually::in_time;

use super::fixture::Fixture;

const NAME: &str = "killed";
const HEIRS: [&str; 2] = ["killed-heir-0", "killed-heir-1"];
const OBJECTS: usize = 100;

/// How long the Leases last, and what is promised: twice that, and no third time.
const LEASE: Duration = Duration::from_secs(8);
const BOUND: Duration = Duration::from_secs(20);

pub(crate) async fn bound(fixture: &Fixture) {
    let ring = fixture.ring(NAME).await;
    let mut shards = Vec::new();
    for name in [NAME, HEIRS[0], HEIRS[1]] {
        shards.push(fixture.plain(&ring, name, LEASE).await);
    }
    fixture.until_counted(&ring, 3).await;
    fixture.create(&ring, OBJECTS).await;
    fixture.until_owned(&ring, OBJECTS, |owners| owners.contains_key(NAME)).await;
    // Right after a renewal: nobody is waited for longer.
    fixture.history.until_renewed(NAME).await;
    shards[0].pause();
    let killed = Instant::now();
    fixture.until_owned(&ring, OBJECTS, |owners| owners.keys().all(|owner| HEIRS.contains(&&**owner))).await;
    let took = killed.elapsed();
    println!("the last object had an owner {took:?} after the kill, with Leases of {LEASE:?}");
    in_time("owners after a kill", took, BOUND);
}
