//! What one ring of many objects costs the sharder: all objects assigned from nothing, then a shard that joins, one that
//! leaves and one that dies, on a real control plane. Few objects and many are run one after the other: time grows with
//! them, memory must not.
//!
//! It fails where that is not so: where ours has more resident than is promised, or grows with the objects.
//!
//! An alternative is run beside: a sharder in Go that writes to one object after another, as far as its objects are told.
//!
//! The shards are nothing but Leases, and let go at once, so that what limits the rate is the sharder or the API server.

use std::collections::BTreeMap;

use anyhow::ensure;
use clap::Parser;
use ringside_bench::{
    Table,
    sharder::{Cost, Ground, Make},
};
use serde_json::{Value, json};

const MEGABYTE: f64 = 1_000_000.0;

/// What ours may have resident at most, in bytes, whatever it does: what is promised, of an optimized build.
const MOST: u64 = 40_000_000;
/// How many times as much as with the fewest objects at most.
const GROWTH: f64 = 1.15;

/// Measures what one ring of many objects costs the sharder.
#[derive(Parser)]
struct Arguments {
    /// How many objects; may be repeated.
    #[arg(long, default_values_t = [1_000, 10_000, 100_000])]
    objects: Vec<usize>,
    /// How many objects the alternative is given, in the same run; may be repeated, and 0 is none.
    #[arg(long, default_values_t = [10_000])]
    beside: Vec<usize>,
    /// How many shards there are at the beginning.
    #[arg(long, default_value_t = 10)]
    shards: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.shards > 1, "one shard leaves: at least 2 are needed");
    let columns = [
        "sharder",
        "objects",
        "phase",
        "given",
        "s",
        "given/s",
        "ours to it",
        "sharder CPU s",
        "API server CPU s",
        "etcd CPU s",
        "busy",
        "requests",
        "sent MB",
        "received MB",
        "resident MB",
    ];
    let (mut table, mut rates) = (Table::new("sharder", &columns), BTreeMap::new());
    let mut peaks = BTreeMap::<usize, u64>::new();
    let own = arguments.objects.into_iter().map(|objects| (Make::Ringside, objects));
    let beside = arguments.beside.into_iter().filter(|objects| *objects > 0).map(|objects| (Make::Thesis, objects));
    for (make, objects) in own.chain(beside) {
        let mut ground = Ground::start(make, objects, arguments.shards).await?;
        let empty = ground.rest().await?;
        row(&mut table, (make, objects), "empty", (0, 0.0, None), &empty);
        let mut peak = empty.resident;
        for (phase, (given, cost)) in [
            ("assigned from nothing", ground.assign().await?),
            ("a shard joins", ground.join().await?),
            ("a shard leaves", ground.leave().await?),
            ("a shard dies", ground.die().await?),
        ] {
            let rate = given as f64 / cost.took.as_secs_f64();
            let ours = rates.get(&(objects, phase)).copied();
            if make == Make::Ringside {
                rates.insert((objects, phase), rate);
            }
            row(&mut table, (make, objects), phase, (given, rate, ours.map(|ours| ours / rate)), &cost);
            peak = peak.max(cost.resident);
        }
        if make == Make::Ringside {
            let known = peaks.entry(objects).or_default();
            *known = peak.max(*known);
        }
    }
    table.tell()?;
    judge(&peaks)
}

/// Prints how much ours had resident at most, by the number of objects, and fails where that is more than is promised.
#[allow(clippy::print_stdout, reason = "what was measured is what the program is for")]
fn judge(peaks: &BTreeMap<usize, u64>) -> anyhow::Result<()> {
    let Some((fewest, least)) = peaks.first_key_value() else { return Ok(()) };
    let growth = |peak: u64| peak as f64 / *least as f64;
    for (objects, &peak) in peaks {
        println!(
            "{objects} objects: {:.1} MB resident at most, {:.3} times that with {fewest}",
            peak as f64 / MEGABYTE,
            growth(peak)
        );
    }
    for (objects, &peak) in peaks {
        let has = format!("with {objects} objects the sharder had {:.1} MB resident", peak as f64 / MEGABYTE);
        ensure!(peak <= MOST, "{has}; {:.1} MB are promised at most", MOST as f64 / MEGABYTE);
        ensure!(growth(peak) <= GROWTH, "{has}, {:.3} times that with {fewest}; {GROWTH} at most", growth(peak));
    }
    Ok(())
}

fn row(
    table: &mut Table,
    (make, objects): (Make, usize),
    phase: &str,
    (given, rate, ratio): (usize, f64, Option<f64>),
    cost: &Cost,
) {
    let row = [
        json!(cost.took.as_secs_f64()),
        json!(rate),
        ratio.map_or(Value::Null, Value::from),
        json!(cost.sharder.as_secs_f64()),
        json!(cost.api_server.as_secs_f64()),
        json!(cost.etcd.as_secs_f64()),
        json!(cost.busy),
        json!(cost.requests),
        json!(cost.sent as f64 / MEGABYTE),
        json!(cost.received as f64 / MEGABYTE),
        json!(cost.resident as f64 / MEGABYTE),
    ];
    table.row([json!(make.name()), json!(objects), Value::from(phase), json!(given)].into_iter().chain(row));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(peaks: &[(usize, u64)]) -> String {
        judge(&peaks.iter().copied().collect()).map_or_else(|fault| fault.to_string(), |()| String::new())
    }

    #[test]
    fn memory_that_is_too_much_or_grows_with_the_objects_is_a_fault() {
        assert_eq!(fault(&[]), "");
        assert_eq!(fault(&[(1_000, 30_000_000), (100_000, 34_500_000)]), "");
        assert!(fault(&[(1_000, 40_000_001)]).contains("40.0 MB are promised at most"));
        assert!(fault(&[(100_000, 34_600_000), (1_000, 30_000_000)]).ends_with("that with 1000; 1.15 at most"));
    }
}
