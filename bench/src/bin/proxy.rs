//! What the proxy takes of processor, time and memory, beside nginx, haproxy and a bare relay: `cargo bench-proxy`. All of
//! them stand before one API server that answers at once what it made before, and take turns in one run.
//!
//! It fails only where something can't be measured.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use ringside_bench::{
    load,
    proxy::{Certificates, Plan, Protocol, Shape, machine, measure, relay, report, upstream},
    say,
};

/// Measures what the proxy costs.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// How often all take turns; the sizes are those of all rounds together.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Requests of each kind from many connections, and a quarter from one.
    #[arg(long, default_value_t = 100_000)]
    requests: usize,
    /// Megabytes that are listed.
    #[arg(long, default_value_t = 1_000)]
    list: usize,
    /// Events of each encoding.
    #[arg(long, default_value_t = 1_000_000)]
    events: usize,
    /// Watches for the memory.
    #[arg(long, default_value_t = 500)]
    watches: usize,
    /// Measures only loads with this in their names, such as `events`.
    #[arg(long, default_value = "")]
    only: String,
    /// The proxy to measure; one is built in the profile of this program without it.
    #[arg(long)]
    proxy: Option<PathBuf>,
    /// Shows whether the program works: its figures say little.
    #[arg(long)]
    quick: bool,
}

/// What a process of a run is, beside the one that measures.
#[derive(Subcommand)]
enum Role {
    /// The API server that is none.
    #[command(hide = true)]
    Upstream {
        #[command(flatten)]
        place: Place,
        #[arg(long)]
        list: usize,
        #[arg(long)]
        rate: u32,
    },
    /// The bare relay.
    #[command(hide = true)]
    Relay {
        #[command(flatten)]
        place: Place,
        #[arg(long)]
        api: SocketAddr,
        #[arg(long)]
        http2: bool,
    },
}

#[derive(Args)]
struct Place {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    folder: PathBuf,
}

/// Bytes of a list, and events a second on each watch.
const SHAPE: Shape = Shape { list: 10_000_000, rate: 1_000 };

/// One thread: what is measured has processes of its own, and a client on two would not wait where the others do.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match arguments.role {
        None => run(&arguments).await,
        Some(Role::Upstream { place, list, rate }) => {
            upstream(place.listen, &Certificates::of(place.folder), Shape { list, rate }).await
        }
        Some(Role::Relay { place, api, http2 }) => {
            let protocol = if http2 { Protocol::Http2 } else { Protocol::Http1 };
            relay((place.listen, api), protocol, &Certificates::of(place.folder)).await
        }
    }
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let before = load();
    say(format_args!("the machine's load is {before}: above 1 the figures say less"));
    let Arguments { rounds, requests, list, events, watches, .. } = *arguments;
    let sizes = if arguments.quick { (1, 8_000, 100, 20_000) } else { (rounds, requests, list, events) };
    let (rounds, requests, list, events) = sizes;
    let only = arguments.only.clone();
    let plan = Plan { only, rounds, requests, list: list * 1_000_000, events, watches, shape: SHAPE };
    let measured = measure(&plan, arguments.proxy.clone()).await?;
    machine(&before).tell()?;
    let (tables, aims) = report(&measured);
    for table in tables {
        table.tell()?;
    }
    aims.tell()
}
