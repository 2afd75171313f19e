//! What one ring of many objects costs the sharder: all objects assigned from nothing, then a shard that joins, one that
//! leaves and one that dies, on a real control plane. Few objects and many are run one after the other: time grows with
//! them, memory must not.
//!
//! The shards are nothing but Leases, and let go at once, so that what limits the rate is the sharder or the API server.

mod ground;
mod meter;

use anyhow::ensure;
use clap::Parser;
use ringside_bench::Table;
use serde_json::{Value, json};

use ground::Ground;
use meter::Cost;

const MEGABYTE: f64 = 1_000_000.0;

/// Measures what one ring of many objects costs the sharder.
#[derive(Parser)]
struct Arguments {
    /// How many objects; may be repeated.
    #[arg(long, default_values_t = [1_000, 100_000])]
    objects: Vec<usize>,
    /// How many shards there are at the beginning.
    #[arg(long, default_value_t = 10)]
    shards: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.shards > 1, "one shard leaves: at least 2 are needed");
    let columns = [
        "objects",
        "phase",
        "given",
        "s",
        "given/s",
        "sharder CPU s",
        "API server CPU s",
        "etcd CPU s",
        "busy",
        "requests",
        "sent MB",
        "received MB",
        "resident MB",
    ];
    let mut table = Table::new("sharder", &columns);
    for objects in arguments.objects {
        let mut ground = Ground::start(objects, arguments.shards).await?;
        row(&mut table, objects, "empty", 0, &ground.rest().await?);
        for (phase, (given, cost)) in [
            ("assigned from nothing", ground.assign().await?),
            ("a shard joins", ground.join().await?),
            ("a shard leaves", ground.leave().await?),
            ("a shard dies", ground.die().await?),
        ] {
            row(&mut table, objects, phase, given, &cost);
        }
    }
    Ok(table.tell()?)
}

fn row(table: &mut Table, objects: usize, phase: &str, given: usize, cost: &Cost) {
    let seconds = cost.took.as_secs_f64();
    let row = [
        json!(seconds),
        json!(given as f64 / seconds),
        json!(cost.sharder.as_secs_f64()),
        json!(cost.api_server.as_secs_f64()),
        json!(cost.etcd.as_secs_f64()),
        json!(cost.busy),
        json!(cost.requests),
        json!(cost.sent as f64 / MEGABYTE),
        json!(cost.received as f64 / MEGABYTE),
        json!(cost.resident as f64 / MEGABYTE),
    ];
    table.row([json!(objects), Value::from(phase), json!(given)].into_iter().chain(row));
}
