//! Names of shards and keys of objects, as a cluster has them.

use rand::{Rng, RngExt as _};
use ringside_ring::{PartitionKey, ShardName, name::InvalidName};

/// So many, named as a ReplicaSet names its Pods: letters and digits that mean nothing.
///
/// # Errors
/// Never: it makes names that Pods have.
pub fn pods(random: &mut impl Rng, count: usize) -> Result<Vec<ShardName>, InvalidName> {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut letter = || char::from(LETTERS[random.random_range(0..LETTERS.len())]);
    let mut suffix = || (0..5).map(|_| letter()).collect::<String>();
    (0..count).map(|_| format!("website-operator-6f7c9d5b8-{}", suffix()).parse()).collect()
}

/// The keys of so many objects; another `set` has other ones.
pub fn keys(set: u64, objects: usize) -> Vec<PartitionKey> {
    let key =
        |i: usize| PartitionKey::of("example.com", "Website", &format!("team-{}", i % 40), &format!("site-{set}-{i}"));
    (0..objects).map(key).collect()
}
