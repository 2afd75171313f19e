//! What a hash ring costs in time and memory, with more or fewer tokens a shard.

use std::{
    io,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use rand::{SeedableRng as _, rngs::StdRng};
use ringside_bench::{
    Table,
    names::{keys, pods},
};
use ringside_e2e::process::memory;
use ringside_ring::HashRing;
use serde_json::json;

const OBJECTS: usize = 10_000;
/// Rings that are built for one line, and kept, so that their memory can be seen.
const BUILT: usize = 10;
const SHARDS: [usize; 4] = [5, 20, 100, 1_000];
/// That of the thesis first.
const TOKENS: [u32; 5] = [100, 1_000, 2_000, 4_000, 8_000];

fn main() -> anyhow::Result<()> {
    Ok(cost()?.tell()?)
}

fn resident() -> io::Result<u64> {
    memory(std::process::id(), "VmRSS")
}

fn cost() -> anyhow::Result<Table> {
    let columns = ["shards", "tokens", "build ms", "KiB a ring", "look-up ns"];
    let mut table = Table::new("ring-cost", &columns);
    let keys = keys(0, OBJECTS);
    for count in SHARDS {
        let shards = pods(&mut StdRng::seed_from_u64(0), count)?;
        for tokens in TOKENS.into_iter().filter_map(NonZeroU32::new) {
            let before = resident()?;
            let began = Instant::now();
            let rings: Vec<_> = (0..BUILT).map(|_| HashRing::new(shards.iter().cloned(), tokens)).collect();
            let built = began.elapsed();
            let kept = resident()?.saturating_sub(before) / 1024 / BUILT as u64;
            let began = Instant::now();
            let found = rings.iter().flat_map(|ring| keys.iter().filter_map(|key| ring.owner(key))).count();
            let looked_up = began.elapsed();
            let each = |all: Duration, count: usize| all.as_secs_f64() / count as f64;
            let (build, look_up) = (each(built, BUILT) * 1e3, each(looked_up, found) * 1e9);
            table.row([json!(count), json!(tokens.to_string()), json!(build), json!(kept), json!(look_up)]);
        }
    }
    Ok(table)
}
