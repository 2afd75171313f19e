//! The command `status`: how rings are, and the replicas of one.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::ListParams,
    core::DynamicObject,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, Store},
        watcher,
    },
};
use ringside_ring::{Ring, RingKind, RingLabels, RingName};
use ringside_runtime::discovery;
use tokio::time::sleep;

use crate::{
    cluster::Global,
    output::{Said, render},
    rings,
};

mod moves;
mod report;
mod text;

use self::report::{Report, of_ring};

/// The pause between two looks of `-w`.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// The arguments of `status`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The ring whose replicas are shown as well; all rings without it.
    ring: Option<RingName>,
    /// Shows it again with each change, until it is interrupted.
    #[arg(long, short)]
    watch: bool,
    /// Shows the moves under way as well, each with what it waits for, as the sharder's leader says.
    #[arg(long, conflicts_with = "watch")]
    moves: bool,
    /// The port of the sharder's admin server.
    #[arg(long, value_name = "PORT", default_value_t = 8080, requires = "moves")]
    admin_port: u16,
}

/// Shows how rings are.
///
/// # Errors
/// When they can't be read.
pub async fn run(global: &Global, arguments: Arguments) -> anyhow::Result<Said> {
    let Arguments { ring, watch, moves, admin_port } = arguments;
    let cluster = global.connect().await?;
    if watch {
        if let Some(name) = &ring {
            rings::read(&cluster.client, name).await?;
        }
        return follow(global, &cluster.client, ring).await;
    }
    let (rings, leases) = match &ring {
        Some(name) => (vec![rings::read(&cluster.client, name).await?], rings::leases(&cluster.client, name).await?),
        None => (rings::read_all(&cluster.client).await?.into_values().flatten().collect(), Vec::new()),
    };
    let mut report = look(&cluster.client, &rings, ring.is_some(), &leases).await;
    if moves {
        report.moves = Some(moves::ask(&cluster.client, admin_port).await?);
    }
    let text = render(global.output, &report, text::table)?;
    Ok(if report.is_healthy() { Said::good(text) } else { Said::unhealthy(text) })
}

async fn look(client: &Client, rings: &[Ring], with_replicas: bool, leases: &[Lease]) -> Report {
    let mut reports = Vec::new();
    for ring in rings {
        let moving = if with_replicas { moving(client, ring).await } else { None };
        reports.push(of_ring(ring, with_replicas.then_some(leases), moving.as_ref(), Timestamp::now()));
    }
    Report { rings: reports, moves: None }
}

/// How many objects each replica is asked to release; none where the user may not list them.
async fn moving(client: &Client, ring: &Ring) -> Option<BTreeMap<String, usize>> {
    let counts = ring.status.as_ref()?.objects.as_ref()?;
    let mut moving = BTreeMap::new();
    if counts.draining == 0 {
        return Some(moving);
    }
    let labels = RingLabels::of(&ring.name().ok()?);
    for resource in ring.spec.families().keys() {
        let api = discovery::resource(client, resource).await.ok()?.api;
        let drained = ListParams::default().labels(&labels.drain);
        let found = Api::<DynamicObject>::all_with(client.clone(), &api).list_metadata(&drained).await.ok()?;
        for object in found.items {
            let shard = labels.ownership(object.metadata.labels.as_ref()).shard.map(str::to_owned);
            *moving.entry(shard.unwrap_or_default()).or_default() += 1;
        }
    }
    Some(moving)
}

/// Shows it again whenever the API server tells of a change that shows.
async fn follow(global: &Global, client: &Client, ring: Option<RingName>) -> anyhow::Result<Said> {
    // Shorter than a request may take.
    let seconds = u32::try_from(global.timeout.as_secs() * 4 / 5).unwrap_or(u32::MAX).clamp(1, 290);
    let config = watcher::Config::default().timeout(seconds);
    let kinds: Vec<RingKind> = match &ring {
        Some(name) => vec![name.kind()],
        None => rings::read_all(client).await?.into_keys().collect(),
    };
    let (mut rings, mut leases, mut changes) = (Vec::new(), Vec::new(), stream::SelectAll::new());
    for kind in kinds {
        let (of_one, of_ring) = match &ring {
            Some(name) => {
                let one = config.clone().fields(&format!("metadata.name={}", name.name()));
                (one, config.clone().labels(&name.lease_selector()))
            }
            None => (config.clone(), config.clone().labels(kind.names().lease_label)),
        };
        let (rings_writer, leases_writer) = (reflector::store::Writer::new(kind), reflector::store::Writer::default());
        rings.push(rings_writer.as_reader());
        leases.push(leases_writer.as_reader());
        let of_rings = watcher(Api::<Ring>::all_with(client.clone(), &kind), of_one).default_backoff();
        let of_leases = watcher(Api::<Lease>::all(client.clone()), of_ring).default_backoff();
        changes.push(reflector::reflector(rings_writer, of_rings).map_ok(drop).boxed());
        changes.push(reflector::reflector(leases_writer, of_leases).map_ok(drop).boxed());
    }
    let mut shown = String::new();
    while let Some(change) = changes.next().await {
        if let Err(error) = change {
            rings::go_on(&error)?;
            continue;
        }
        let rings_now: Vec<_> = rings.iter().flat_map(Store::state).collect();
        let leases_now: Vec<_> = leases.iter().flat_map(Store::state).collect();
        if rings_now.is_empty() {
            continue;
        }
        let rings_now: Vec<Ring> = rings_now.iter().map(|ring| (**ring).clone()).collect();
        let leases_now: Vec<Lease> = leases_now.iter().map(|lease| (**lease).clone()).collect();
        let report = look(client, &rings_now, ring.is_some(), &leases_now).await;
        let text = render(global.output, &report, text::table)?;
        if text != shown {
            show(&text);
            shown = text;
        }
        // Each renewal of a Lease is a change, and a look may list objects: the changes of a while are shown together.
        sleep(BETWEEN_LOOKS).await;
    }
    Ok(Said::good(""))
}

/// Redraws a terminal; anything else gets one text after the other.
#[allow(clippy::print_stdout, reason = "what a command says")]
fn show(text: &str) {
    use std::io::IsTerminal as _;
    let clear = if std::io::stdout().is_terminal() { "\u{1b}[2J\u{1b}[H" } else { "" };
    println!("{clear}{}", text.trim_end_matches('\n'));
}
