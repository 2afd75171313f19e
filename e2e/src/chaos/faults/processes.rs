//! One process of a shard, or both, that stand still or are killed.

use anyhow::{Result, ensure};

use crate::{
    chaos::{run::Run, schedule::Kind},
    process::Process,
    system::Shard,
};

/// What stands still: the controller first, as what it sends then is answered, or waits.
fn concerned<'a>(run: &'a Run, kind: Kind, shard: &str) -> Result<Vec<&'a Process>> {
    let shard = run.system.shard(shard)?;
    let proxy = (kind == Kind::Pause).then(|| shard.proxy());
    Ok([shard.operator()].into_iter().chain(proxy).collect())
}

/// Either all of them stand still, or none.
pub(super) fn pause(run: &Run, kind: Kind, shard: &str) -> Result<()> {
    let concerned = concerned(run, kind, shard)?;
    for (index, process) in concerned.iter().enumerate() {
        if let Err(error) = process.pause() {
            concerned[..index].iter().try_for_each(|process| process.resume())?;
            return Err(error.into());
        }
    }
    Ok(())
}

/// Returns how many stood still: a process that had ended meanwhile can't go on.
pub(super) fn resume(run: &Run, kind: Kind, shard: &str) -> Result<usize> {
    Ok(concerned(run, kind, shard)?.into_iter().rev().filter(|process| process.resume().is_ok()).count())
}

/// Kills one of both, which is started again.
pub(super) async fn kill(run: &mut Run, kind: Kind, shard: &str) -> Result<usize> {
    let which = if kind == Kind::KillProxy { Shard::proxy } else { Shard::operator };
    let before = which(run.system.shard(shard)?).id();
    run.system.kill_one(shard, which).await?;
    ensure!(before != which(run.system.shard(shard)?).id(), "the process is the same as before");
    Ok(1)
}
