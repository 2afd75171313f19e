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
    let (ring, shards) = fixture.ring_with_heirs(NAME, HEIRS, OBJECTS, LEASE).await;
    // Right after a renewal: no shard is waited for longer.
    fixture.history.until_renewed(NAME).await;
    shards[0].pause();
    let since = Instant::now();
    fixture.until_owned(&ring, OBJECTS, |owners| owners.keys().all(|owner| HEIRS.contains(&&**owner))).await;
    let took = since.elapsed();
    println!("the last object had an owner {took:?} after the kill, with Leases of {LEASE:?}");
    in_time("owners after a kill", took, BOUND);
}
