//! What a create costs with each of the objects that a ring puts in its way: its webhook, and the policy that keeps labels;
//! and with a webhook that does nothing but answer, which is what the API server takes for calling any, with the conditions of
//! ours and without any.
//!
//! All take turns in one run on one control plane, and differ in the namespace alone. Both are measured
//! for the cheapest object that there is, and for a custom one, as most controllers have them: what the API server itself
//! does for a call of a webhook is the same, and so it is a larger part of the cheaper create.

mod ground;
mod least;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Parser;
use futures::future::try_join_all;
use kube::Client;
use ringside_bench::Table;
use ringside_e2e::checker::percentile;
use serde_json::{Value, json};

use ground::{Ground, KINDS, Kind, WAYS, Way, Webhook};

/// Creates of each way by one connection.
const ROUNDS: usize = 1_500;
/// Those before count for nothing: connections are opened, and code is paged in.
const WARM_UP: usize = 100;
/// Connections that create at once.
const CONNECTIONS: usize = 8;
/// How long they do before it is another way's turn, and how many turns there are.
const TURN: Duration = Duration::from_secs(2);
const TURNS: usize = 8;

/// Measures what a create costs with the webhook and the label policy in its way.
#[derive(Parser)]
struct Arguments {
    /// The sharder to measure; one is built in the profile of this program without it.
    #[arg(long)]
    sharder: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let ground = Ground::start(Arguments::parse().sharder).await?;
    let columns =
        ["object", "in the way", "p50 ms", "p90 ms", "p99 ms", "p50 more", "creates/s by 8", "of the rate without"];
    let mut table = Table::new("webhook", &columns);
    for kind in KINDS {
        let mut latencies = one_by_one(&ground, kind).await?;
        let mut rates = by_many(&ground, kind).await?;
        tell(&mut table, kind, &mut latencies, &mut rates)?;
    }
    let failed = ground.failed_open().await?;
    ensure!(failed == 0, "{failed} creates went on without the webhook's answer");
    table.tell()?;
    Ok(())
}

/// How long creates take by one connection, for each way.
async fn one_by_one(ground: &Ground, kind: Kind) -> anyhow::Result<Vec<Vec<Duration>>> {
    let mut creator = Creator::connect(ground, kind, "one").await?;
    let mut latencies = vec![Vec::new(); WAYS.len()];
    for round in 0..WARM_UP + ROUNDS {
        for turn in 0..WAYS.len() {
            let way = (round + turn) % WAYS.len();
            let took = creator.create(WAYS[way]).await?;
            if round >= WARM_UP {
                latencies[way].push(took);
            }
        }
    }
    Ok(latencies)
}

/// How many creates a second there are by several connections, for each way and turn.
async fn by_many(ground: &Ground, kind: Kind) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut creators = Vec::new();
    for connection in 0..CONNECTIONS {
        creators.push(Creator::connect(ground, kind, &format!("of-many-{connection}")).await?);
    }
    let mut rates = vec![Vec::new(); WAYS.len()];
    for turn in 0..TURNS * WAYS.len() {
        // Each way comes first, second and so on equally often.
        let way = (turn + turn / WAYS.len()) % WAYS.len();
        let begun = Instant::now();
        let counts = try_join_all(creators.iter_mut().map(|creator| creator.create_until(WAYS[way], begun + TURN)));
        let created: usize = counts.await?.into_iter().sum();
        rates[way].push(created as f64 / begun.elapsed().as_secs_f64());
    }
    Ok(rates)
}

fn tell(table: &mut Table, kind: Kind, latencies: &mut [Vec<Duration>], rates: &mut [Vec<f64>]) -> anyhow::Result<()> {
    let mut without = None;
    for (way, (latencies, rates)) in WAYS.iter().zip(latencies.iter_mut().zip(rates.iter_mut())) {
        latencies.sort();
        rates.sort_by(f64::total_cmp);
        let at = |percent| Some(percentile(latencies, percent)?.as_secs_f64() * 1e3);
        let [p50, p90, p99] = [at(50), at(90), at(99)].map(|it| it.context("nothing was measured"));
        let (p50, rate) = (p50?, rates[rates.len() / 2]);
        let (base, base_rate) = *without.get_or_insert((p50, rate));
        let row = [json!(p50), json!(p90?), json!(p99?), json!(p50 - base), json!(rate), json!(rate / base_rate)];
        table.row([Value::from(kind.plural), Value::from(way.name)].into_iter().chain(row));
    }
    Ok(())
}

/// Creates objects over a connection of its own, one after the other.
struct Creator {
    client: Client,
    kind: Kind,
    name: String,
    created: usize,
}

impl Creator {
    async fn connect(ground: &Ground, kind: Kind, name: &str) -> anyhow::Result<Self> {
        Ok(Self { client: ground.client().await?, kind, name: name.to_owned(), created: 0 })
    }

    async fn create_until(&mut self, way: Way, end: Instant) -> anyhow::Result<usize> {
        let mut created = 0;
        while Instant::now() < end {
            self.create(way).await?;
            created += 1;
        }
        Ok(created)
    }

    /// Returns how long it took to be answered.
    async fn create(&mut self, way: Way) -> anyhow::Result<Duration> {
        self.created += 1;
        let Kind { api_version, kind, plural, field, .. } = self.kind;
        let object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": format!("{}-{}", self.name, self.created), "labels": {"app": "bench"}},
            field: {"content": "x".repeat(1_000)}});
        let request = http::Request::post(format!("{}/namespaces/{}/{plural}", self.kind.path, way.name))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(&object)?)?;
        let begun = Instant::now();
        let answer = self.client.request_text(request).await?;
        let took = begun.elapsed();
        ensure!(answer.contains(ground::SHARD_LABEL) == (way.webhook != Webhook::None), "{}: {answer}", way.name);
        Ok(took)
    }
}
