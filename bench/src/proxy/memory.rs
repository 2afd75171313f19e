//! What a process has resident at rest, and with many watches that nothing comes on.

use std::time::Duration;

use ringside_e2e::process::memory;

use super::{
    loads::{Encoding, Watches},
    started::Target,
    upstream::QUIET,
};

/// Watches on one connection: haproxy allows no more.
const ON_ONE: usize = 100;
/// What was needed to begin is given back by then.
const RESTS: Duration = Duration::from_secs(2);

/// Bytes that are resident.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resident {
    pub(super) idle: u64,
    pub(super) watching: u64,
}

/// Both, of a process that has done nothing before.
pub(super) async fn resident(target: &Target, process: u32, watches: usize) -> anyhow::Result<Resident> {
    tokio::time::sleep(RESTS).await;
    let idle = memory(process, "VmRSS")?;
    let mut open = Vec::new();
    for begin in (0..watches).step_by(ON_ONE) {
        let mut some = Watches::open(target, QUIET, Encoding::Json, ON_ONE.min(watches - begin)).await?;
        some.begun().await?;
        open.push(some);
    }
    tokio::time::sleep(RESTS).await;
    Ok(Resident { idle, watching: memory(process, "VmRSS")? })
}
