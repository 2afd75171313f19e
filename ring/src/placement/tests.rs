#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    shards: Vec<String>,
    tokens_per_shard: NonZeroU32,
    owners: BTreeMap<String, String>,
}

/// Computed by an existing implementation of this ring.
const VECTORS: &str = include_str!("../../testdata/placement.json");

fn key(text: &str) -> PartitionKey {
    let mut parts = text.splitn(4, '/');
    let mut next = || parts.next().unwrap();
    PartitionKey::of(next(), next(), next(), next())
}

fn shards(count: usize) -> Vec<ShardName> {
    (0..count).map(|i| format!("shard-{i}").parse().unwrap()).collect()
}

fn keys(count: usize) -> Vec<PartitionKey> {
    (0..count)
        .map(|i| PartitionKey::of("example.com", "Website", &format!("ns-{}", i % 7), &format!("site-{i}")))
        .collect()
}

#[test]
fn every_known_placement_agrees() {
    let vectors: Vec<Vector> = serde_json::from_str(VECTORS).unwrap();
    let mut compared = 0;
    for vector in vectors {
        let ring = HashRing::new(vector.shards.iter().map(|shard| shard.parse().unwrap()), vector.tokens_per_shard);
        for (object, owner) in vector.owners {
            assert_eq!(ring.owner(&key(&object)).unwrap().as_str(), owner, "{object} among {:?}", vector.shards);
            compared += 1;
        }
    }
    assert!(compared > 200, "only {compared} placements in the vectors");
}

#[test]
fn without_shards_nobody_owns() {
    assert_eq!(HashRing::new([], DEFAULT_TOKENS_PER_SHARD).owner(&key("/ConfigMap/a/b")), None);
}

#[test]
fn a_key_past_the_last_token_belongs_to_the_first() {
    let ring = HashRing::new(shards(3), NonZeroU32::MIN);
    let (last, _) = ring.tokens.last().copied().unwrap();
    let past = keys(10_000).into_iter().find(|key| xxh64(key.as_str().as_bytes(), 0) > last).unwrap();
    assert_eq!(ring.owner(&past), ring.shards.get(ring.tokens[0].1));
}

#[test]
fn load_is_even_enough_with_the_default_number_of_tokens() {
    for count in [3, 8, 20] {
        let ring = HashRing::new(shards(count), DEFAULT_TOKENS_PER_SHARD);
        let mut load: HashMap<&ShardName, usize> = HashMap::new();
        let keys = keys(10_000);
        for key in &keys {
            *load.entry(ring.owner(key).unwrap()).or_default() += 1;
        }
        let fullest = *load.values().max().unwrap();
        assert!(fullest * count * 100 <= keys.len() * 115, "{fullest} of {} on one of {count}", keys.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Consistent hashing's whole point: membership changes touch the objects of one shard only.
    #[test]
    fn a_new_shard_only_takes_and_takes_its_share(count in 1_usize..20) {
        let before = HashRing::new(shards(count), DEFAULT_TOKENS_PER_SHARD);
        let after = HashRing::new(shards(count + 1), DEFAULT_TOKENS_PER_SHARD);
        let newcomer = &shards(count + 1)[count];
        let keys = keys(4_000);
        let moved: Vec<_> = keys.iter().filter(|key| before.owner(key) != after.owner(key)).collect();
        for key in &moved {
            prop_assert_eq!(after.owner(key), Some(newcomer));
        }
        let share = keys.len() / (count + 1);
        prop_assert!(moved.len() > share / 2 && moved.len() < share * 3 / 2, "{} moved, a fair share is {share}", moved.len());
    }

    /// The same the other way round: only the objects of the shard that left are placed anew.
    #[test]
    fn a_shard_that_leaves_gives_only_its_own(count in 2_usize..20, leaver in 0_usize..20) {
        let leaver = &shards(count)[leaver % count];
        let before = HashRing::new(shards(count), DEFAULT_TOKENS_PER_SHARD);
        let after = HashRing::new(shards(count).into_iter().filter(|s| s != leaver), DEFAULT_TOKENS_PER_SHARD);
        for key in keys(2_000) {
            if before.owner(&key) != Some(leaver) {
                prop_assert_eq!(before.owner(&key), after.owner(&key));
            } else {
                prop_assert_ne!(after.owner(&key), Some(leaver));
            }
        }
    }

    #[test]
    fn the_order_in_which_shards_are_named_is_nothing(mut names in proptest::collection::vec("[a-z]{1,8}", 1..10), seed: u64) {
        let ring = |names: &[String]| HashRing::new(names.iter().map(|n| n.parse().unwrap()), NonZeroU32::new(50).unwrap());
        let straight = ring(&names);
        let len = names.len();
        names.rotate_left(usize::try_from(seed % 10).unwrap() % len);
        names.push(names[0].clone());
        let turned = ring(&names);
        for key in keys(50) {
            prop_assert_eq!(straight.owner(&key), turned.owner(&key));
        }
    }
}
