//! Shards that come and go.

use anyhow::Result;

use crate::{
    chaos::{run::Run, schedule::Kind},
    churn::Change,
};

/// A change of one shard. The harness waits for the end of what ends, and for what begins to be ready.
pub(super) async fn change(run: &mut Run, kind: Kind, shard: &str) -> Result<usize> {
    let shard = shard.to_owned();
    let change = match kind {
        Kind::Join => Change::Join(shard),
        Kind::Leave => Change::Leave(shard),
        Kind::Restart => Change::Restart(shard),
        _ => Change::Kill(shard),
    };
    change.carry_out(&mut run.system).await?;
    Ok(1)
}
