//! The command `plan`: says what a ring's sharder would do with its objects, and writes nothing.

use std::num::NonZeroU32;

use ringside_ring::{RingName, ShardName, placement::DEFAULT_TOKENS_PER_SHARD};
use ringside_sharder::{AddedShard, Forecast, Plan, parse_tokens};

use crate::{
    cluster::Global,
    exit::Exit,
    output::{Said, render},
};

/// The arguments of `plan`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The ring.
    ring: RingName,
    /// Says what would be with so many replicas.
    #[arg(long, value_name = "NUMBER")]
    replicas: Option<usize>,
    /// Says what would be if there were this replica as well, or this one had that weight; may be repeated.
    #[arg(long = "add-shard", value_name = "NAME[=WEIGHT]")]
    add: Vec<AddedShard>,
    /// Says what would be if there were no such replica; may be repeated.
    #[arg(long = "remove-shard", value_name = "NAME")]
    remove: Vec<ShardName>,
    /// Tokens that a replica has on the hash ring: what the sharder has.
    #[arg(long, env = "RINGSIDE_TOKENS_PER_SHARD", value_name = "NUMBER", default_value_t = DEFAULT_TOKENS_PER_SHARD, value_parser = parse_tokens)]
    tokens_per_shard: NonZeroU32,
    /// Ends with 2 when something would be written.
    #[arg(long)]
    exit_code: bool,
}

/// Looks at every object of the ring once.
///
/// # Errors
/// When it is not known what the ring is.
pub async fn run(global: &Global, arguments: Arguments) -> anyhow::Result<Said> {
    let Arguments { ring, replicas, add, remove, tokens_per_shard, exit_code } = arguments;
    let cluster = global.connect().await?;
    let forecast = Plan { ring, tokens_per_shard, replicas, add, remove }.run(&cluster.client).await?;
    let table = |_: &_| if replicas.is_some() { forecast.summary() } else { forecast.to_string() };
    let text = render(global.output, &forecast.json(), table)?;
    Ok(Said { text, exit: exit(&forecast, exit_code) })
}

/// A plan that is not of everything is none.
fn exit(forecast: &Forecast, exit_code: bool) -> Exit {
    match (forecast.is_complete(), forecast.has_changes() && exit_code) {
        (false, _) => Exit::Failed,
        (true, true) => Exit::Unhealthy,
        (true, false) => Exit::Good,
    }
}
