//! Replicas of the sharder that end.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::Instant;

use crate::{chaos::run::Run, system::Return};

/// Longer than the Lease of a leader that is gone.
const LED_WITHIN: Duration = Duration::from_secs(60);

/// How often is looked whether another leads.
const LOOK: Duration = Duration::from_millis(250);

/// The leader dies with its node: another Pod comes. Returns how many were killed.
pub(super) async fn kill_leader(run: &mut Run) -> Result<usize> {
    let replicas = run.system.sharders().count();
    let leader = leader(run).await?;
    run.system.kill_sharder(&leader).await?;
    run.system.start_sharders(replicas).await?;
    Ok(1)
}

/// The replica that leads. After one was killed its Lease names it for a while.
async fn leader(run: &mut Run) -> Result<String> {
    let until = Instant::now() + LED_WITHIN;
    loop {
        let leader = run.system.leading_sharder(LED_WITHIN).await?;
        if run.system.sharders().any(|sharder| sharder.name() == leader) {
            return Ok(leader);
        }
        ensure!(Instant::now() < until, "{leader} does not run, and leads");
        run.pass(Instant::now() + LOOK).await?;
    }
}

/// All die, and come back in the same Pods. Returns how many were killed.
pub(super) async fn kill_all(run: &mut Run, lasts: Duration) -> Result<usize> {
    let replicas = run.system.sharders().count();
    run.system.kill_sharders().await?;
    run.without_sharders = true;
    let passed = run.pass(Instant::now() + lasts).await;
    run.without_sharders = false;
    passed?;
    run.system.return_sharders(Return::SamePod).await?;
    run.system.start_sharders(replicas).await?;
    Ok(replicas)
}
