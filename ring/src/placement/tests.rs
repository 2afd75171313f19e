#![allow(clippy::unwrap_used)]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

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
fn shards_fit_until_their_number_or_their_tokens_are_too_many() {
    let fit =
        |weight: &str, count, tokens| fitting(vec![weight.parse().unwrap(); count], NonZeroU32::new(tokens).unwrap());
    assert_eq!((fit("1", 2_000, 4_000), fit("1", 2_000, 100)), (1_000, 1_000));
    assert_eq!((fit("10", 2_000, 4_000), fit("10", 100, 4_000)), (100, 100));
    assert_eq!(fit("0", 2_000, 8_000), 500, "where all have none, each counts as one of weight 1");
    assert_eq!(fit("10", 2, 1_000_000), 1, "a ring has one shard in any case");
    assert_eq!(size_of::<Token>(), 12, "48 MB are the most");
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
fn without_shards_no_object_has_an_owner() {
    assert_eq!(HashRing::new([], DEFAULT_TOKENS_PER_SHARD).owner(&key("/ConfigMap/a/b")), None);
}

#[test]
fn a_key_past_the_last_token_belongs_to_the_first() {
    let ring = HashRing::new(shards(3), NonZeroU32::MIN);
    let last = ring.tokens.last().unwrap().hash();
    let past = keys(10_000).into_iter().find(|key| xxh64(key.as_str().as_bytes(), 0) > last).unwrap();
    assert_eq!(ring.owner(&past), ring.shards.get(ring.tokens[0].shard as usize));
}

/// As a ReplicaSet names its Pods.
fn pods(set: usize, count: usize) -> Vec<ShardName> {
    (0..count)
        .map(|i| format!("website-operator-6f7c9d5b8-{:05x}", xxh64(&[i as u8], set as u64) >> 44).parse().unwrap())
        .collect()
}

/// How many of 10,000 objects each shard gets.
fn loads(ring: &HashRing) -> HashMap<ShardName, usize> {
    let mut loads: HashMap<_, usize> = ring.shards().iter().map(|shard| (shard.clone(), 0)).collect();
    for key in keys(10_000) {
        *loads.entry(ring.owner(&key).unwrap().clone()).or_default() += 1;
    }
    loads
}

/// The fullest shard against the mean, on the average of some sets of shards: one set alone is as good as its luck, with
/// any placement that knows nothing but names. `bench/` has the distribution over many.
fn max_over_mean(shards: usize, load_of: impl Fn(&[ShardName]) -> Vec<usize>) -> f64 {
    const SETS: usize = 4;
    let ratio = |set| {
        let loads = load_of(&pods(set, shards));
        let fullest = loads.iter().copied().max().unwrap();
        (fullest * shards) as f64 / loads.iter().sum::<usize>() as f64
    };
    (0..SETS).map(ratio).sum::<f64>() / SETS as f64
}

fn placed(shards: &[ShardName]) -> Vec<usize> {
    loads(&HashRing::new(shards.iter().cloned(), DEFAULT_TOKENS_PER_SHARD)).into_values().collect()
}

/// Each object where a die falls.
fn ideal(shards: &[ShardName]) -> Vec<usize> {
    let mut loads = vec![0; shards.len()];
    for key in keys(10_000) {
        // Another seed than the ring's, and one of the set.
        let die = xxh64(key.as_str().as_bytes(), xxh64(shards[0].as_str().as_bytes(), 1));
        loads[usize::try_from(die % shards.len() as u64).unwrap()] += 1;
    }
    loads
}

#[test]
fn up_to_twenty_shards_the_fullest_is_within_a_tenth_of_the_mean() {
    for shards in 3..=20 {
        let ratio = max_over_mean(shards, placed);
        assert!(ratio <= 1.10, "{ratio:.3} with {shards} shards");
    }
}

#[test]
fn with_more_shards_it_is_as_good_as_a_die_but_for_a_twentieth() {
    for shards in [30, 50, 100] {
        let (ratio, best) = (max_over_mean(shards, placed), max_over_mean(shards, ideal));
        assert!(ratio <= 1.05 * best, "{ratio:.3} with {shards} shards, a die makes {best:.3}");
    }
}

fn weights(weights: &[&str]) -> Vec<(ShardName, Weight)> {
    shards(weights.len()).into_iter().zip(weights.iter().map(|weight| weight.parse().unwrap())).collect()
}

#[test]
fn a_shard_gets_objects_as_its_weight_says() {
    let loads = loads(&HashRing::weighted(weights(&["1", "2", "0.5", "0", "1"]), DEFAULT_TOKENS_PER_SHARD));
    let share = |index: usize| loads[&shards(5)[index]] as f64 / 10_000.0 * 4.5;
    for (index, weight) in [1.0, 2.0, 0.5, 0.0, 1.0].into_iter().enumerate() {
        assert!((share(index) - weight).abs() < 0.1, "{:.2} for weight {weight}", share(index));
    }
}

#[test]
fn where_all_weights_are_zero_objects_have_owners_all_the_same() {
    let idle = HashRing::weighted(weights(&["0", "0"]), DEFAULT_TOKENS_PER_SHARD);
    let plain = HashRing::new(shards(2), DEFAULT_TOKENS_PER_SHARD);
    assert!(idle.places_like(&plain));
    assert!(keys(100).iter().all(|key| idle.owner(key) == plain.owner(key)));
}

#[test]
fn a_ring_is_another_one_when_a_weight_is() {
    let few = NonZeroU32::new(50).unwrap();
    let before = HashRing::weighted(weights(&["1", "1"]), few);
    let after = HashRing::weighted(weights(&["1", "2"]), few);
    assert!(before.is_of(weights(&["1", "1"]), few) && !before.is_of(weights(&["1", "2"]), few));
    assert!(!after.places_like(&before));
}

fn weighted(hundredths: &[u16]) -> Vec<(ShardName, Weight)> {
    let weight = |hundredths: &u16| format!("{}.{:02}", hundredths / 100, hundredths % 100).parse().unwrap();
    shards(hundredths.len()).into_iter().zip(hundredths.iter().map(weight)).collect()
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

    /// The same the other way round: only the objects of the shard that left are placed again.
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

    /// Adding a shard moves objects to it alone, removing one moves only its own, whatever the weights of all.
    #[test]
    fn a_shard_that_comes_or_goes_touches_no_other(
        hundredths in proptest::collection::vec(0_u16..=1000, 2..8),
        tokens in 1_u32..300,
    ) {
        let tokens = NonZeroU32::new(tokens).unwrap();
        let weights: Vec<(ShardName, Weight)> = weighted(&hundredths);
        let (last, others) = weights.split_last().unwrap();
        // Where the others are all of weight 0, they count only until one comes that is not.
        prop_assume!(others.iter().any(|(_, weight)| *weight > Weight::ZERO));
        let without = HashRing::weighted(others.to_vec(), tokens);
        let with = HashRing::weighted(weights.clone(), tokens);
        for key in keys(300) {
            let (before, after) = (without.owner(&key), with.owner(&key));
            prop_assert!(before == after || after == Some(&last.0), "{before:?} to {after:?}");
        }
    }

    /// A weight that grows brings objects to its shard from others, one that shrinks takes some from it alone.
    #[test]
    fn a_changed_weight_moves_objects_from_or_to_its_shard_alone(
        hundredths in proptest::collection::vec(1_u16..=1000, 2..8),
        other in 0_u16..=1000,
        tokens in 1_u32..300,
    ) {
        let tokens = NonZeroU32::new(tokens).unwrap();
        let before = weighted(&hundredths);
        let mut after = before.clone();
        after[0].1 = weighted(&[other])[0].1;
        let (was, is) = (before[0].1, after[0].1);
        let changed = &before[0].0;
        let (before, after) = (HashRing::weighted(before.clone(), tokens), HashRing::weighted(after.clone(), tokens));
        for key in keys(300) {
            let (from, to) = (before.owner(&key).unwrap(), after.owner(&key).unwrap());
            let natural = if is > was { to == changed } else { from == changed };
            prop_assert!(from == to || natural, "{from} to {to}, weight {was} to {is}");
        }
    }

    /// What goes past some shards goes where it would go if these were not there, so it stays there when they are gone.
    #[test]
    fn who_is_passed_over_is_as_good_as_gone(count in 1_usize..8, passed in proptest::collection::vec(any::<bool>(), 8)) {
        let all = shards(count);
        let ring = HashRing::new(all.clone(), NonZeroU32::new(50).unwrap());
        let is_admitted = |shard: &ShardName| !passed[all.iter().position(|one| one == shard).unwrap()];
        let rest = HashRing::new(all.iter().filter(|shard| is_admitted(shard)).cloned(), NonZeroU32::new(50).unwrap());
        for key in keys(200) {
            prop_assert_eq!(ring.owner_among(&key, is_admitted), rest.owner(&key));
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
