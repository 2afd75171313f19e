//! One process of a shard, or both, that stand still or are killed.

use anyhow::{Result, ensure};

use crate::chaos::{run::Run, schedule::Kind};

/// The controller first: what it sends then is answered, or waits.
pub(super) fn pause(run: &mut Run, shard: &str) -> Result<()> {
    let shard = run.system.shard(shard)?;
    shard.operator().pause()?;
    if let Err(error) = shard.proxy().pause() {
        shard.operator().resume()?;
        return Err(error.into());
    }
    Ok(())
}

/// Returns how many stood still: a process that had ended meanwhile can't go on.
pub(super) fn resume(run: &mut Run, shard: &str) -> Result<usize> {
    let shard = run.system.shard(shard)?;
    let resumed = [shard.proxy().resume(), shard.operator().resume()];
    Ok(resumed.iter().filter(|resumed| resumed.is_ok()).count())
}

/// The controller alone.
pub(super) fn pause_controller(run: &mut Run, shard: &str) -> Result<()> {
    Ok(run.system.shard(shard)?.operator().pause()?)
}

/// Returns whether it stood still: one that had ended meanwhile can't go on.
pub(super) fn resume_controller(run: &mut Run, shard: &str) -> Result<usize> {
    Ok(usize::from(run.system.shard(shard)?.operator().resume().is_ok()))
}

/// Kills one of both, which is started again.
pub(super) async fn kill(run: &mut Run, kind: Kind, shard: &str) -> Result<usize> {
    let ids = |run: &Run| run.system.shard(shard).map(|shard| (shard.proxy().id(), shard.operator().id()));
    let before = ids(run)?;
    match kind {
        Kind::KillProxy => run.system.kill_proxy(shard).await?,
        _ => run.system.kill_operator(shard).await?,
    }
    let after = ids(run)?;
    ensure!(before != after, "the process is the same as before");
    Ok(1)
}
