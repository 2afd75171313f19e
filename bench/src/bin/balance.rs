//! How evenly objects fall on shards with more or fewer tokens, beside a die that falls for each object alone, which is the
//! best that a placement by names can do. It fails where the tokens that a ring has by default miss what is promised of them.

use std::{collections::HashMap, num::NonZeroU32};

use anyhow::ensure;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use ringside_bench::{
    Table,
    names::{keys, pods},
};
use ringside_ring::{HashRing, PartitionKey, ShardName, placement::DEFAULT_TOKENS_PER_SHARD};
use serde_json::json;

const OBJECTS: usize = 10_000;
/// So many sets of shards, each with its own objects, for each line: one alone is as good as its luck.
const SETS: u64 = 100;
const SHARDS: [usize; 15] = [3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 30, 50, 100];
/// That of the thesis first.
const TOKENS: [u32; 5] = [100, 1_000, 2_000, 4_000, 8_000];
/// What is promised of up to so many shards: the fullest has no more than this many times the mean.
const FEW: (usize, f64) = (20, 1.10);
/// And of more shards: no more than this many times what the die gives.
const MANY: f64 = 1.05;

fn main() -> anyhow::Result<()> {
    let (table, missed) = evenness()?;
    table.tell()?;
    ensure!(missed.is_empty(), "the promised balance is missed: {missed:?}");
    Ok(())
}

/// The fullest against the mean.
fn ratio(loads: impl IntoIterator<Item = usize>, shards: usize) -> f64 {
    let fullest = loads.into_iter().max().unwrap_or_default();
    (fullest * shards) as f64 / OBJECTS as f64
}

fn placed(keys: &[PartitionKey], shards: &[ShardName], tokens: NonZeroU32) -> f64 {
    let ring = HashRing::new(shards.iter().cloned(), tokens);
    let mut loads: HashMap<&ShardName, usize> = HashMap::new();
    for owner in keys.iter().filter_map(|key| ring.owner(key)) {
        *loads.entry(owner).or_default() += 1;
    }
    ratio(loads.into_values(), shards.len())
}

fn thrown(random: &mut StdRng, shards: usize) -> f64 {
    let mut loads = vec![0; shards];
    (0..OBJECTS).for_each(|_| loads[random.random_range(0..shards)] += 1);
    ratio(loads, shards)
}

fn mean_and_95th(mut ratios: Vec<f64>) -> (f64, f64) {
    ratios.sort_by(f64::total_cmp);
    (ratios.iter().sum::<f64>() / ratios.len() as f64, ratios[ratios.len() * 95 / 100])
}

/// The figures, and what is not as promised.
fn evenness() -> anyhow::Result<(Table, Vec<String>)> {
    let columns = ["shards", "tokens", "max/mean", "95th", "die", "die 95th", "max/mean to die"];
    let (mut table, mut missed) = (Table::new("balance", &columns), Vec::new());
    for shards in SHARDS {
        let mut random = StdRng::seed_from_u64(shards as u64);
        let sets = (0..SETS)
            .map(|set| Ok((pods(&mut random, shards)?, keys(set, OBJECTS))))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let (die, die_95th) = mean_and_95th(sets.iter().map(|_| thrown(&mut random, shards)).collect());
        for tokens in TOKENS.into_iter().filter_map(NonZeroU32::new) {
            let ratios = sets.iter().map(|(shards, keys)| placed(keys, shards, tokens)).collect();
            let (mean, late) = mean_and_95th(ratios);
            let is_default = tokens == DEFAULT_TOKENS_PER_SHARD;
            let most = if shards <= FEW.0 { FEW.1 } else { MANY * die };
            if is_default && mean > most {
                missed.push(format!("{mean:.3} of {shards} shards, at most {most:.3}"));
            }
            let name = tokens.to_string() + if is_default { " *" } else { "" };
            table.row([
                json!(shards),
                json!(name),
                json!(mean),
                json!(late),
                json!(die),
                json!(die_95th),
                json!(mean / die),
            ]);
        }
    }
    Ok((table, missed))
}
