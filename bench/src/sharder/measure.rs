//! All phases of one make's run.

use std::time::Duration;

use super::{
    bare::Bare,
    ground::{Ground, Outcome},
    meter::Spent,
    objects::Shape,
    running::Make,
};

/// What proxies promise by default.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The objects.
    pub shape: Shape,
    /// Shards at the beginning.
    pub shards: usize,
    /// For how long R is measured.
    pub bare: Duration,
    /// For how long the sharder is looked at when nothing happens.
    pub rest: Duration,
}

/// What was measured of one make.
#[derive(Debug)]
pub struct Measured {
    /// The objects.
    pub shape: Shape,
    /// Shards at the beginning.
    pub shards: usize,
    /// R, and what a bare patch costs.
    pub bare: Bare,
    /// All objects get an owner.
    pub assigned: Outcome,
    /// A shard joins.
    pub joined: Outcome,
    /// It leaves in order.
    pub left: Outcome,
    /// One joins while the others promise a grace; none where upstream is measured.
    pub joined_with_grace: Option<Outcome>,
    /// Another dies.
    pub died: Outcome,
    /// Nothing happens, and how often the sharder listed.
    pub rested: (Spent, usize),
}

/// Runs all phases. The ground is as they left it: with one shard fewer than at the beginning.
///
/// # Errors
/// When one can't be measured.
pub async fn measure(make: &Make, plan: Plan) -> anyhow::Result<(Ground, Measured)> {
    let mut ground = Ground::start(make, plan.shape, plan.shards, plan.bare).await?;
    let measured = Measured {
        shape: plan.shape,
        shards: plan.shards,
        bare: ground.bare,
        assigned: ground.assign().await?,
        joined: ground.join().await?,
        left: ground.leave().await?,
        joined_with_grace: match make {
            Make::Ringside => Some(ground.join_with_grace(GRACE).await?),
            Make::Upstream(_) => None,
        },
        died: ground.die().await?,
        rested: ground.rest(plan.rest).await?,
    };
    Ok((ground, measured))
}
