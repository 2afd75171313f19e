//! Whose sharder is measured.

use std::num::NonZeroU32;

use ringside_e2e::{process::Process, system::System};
use ringside_ring::placement::DEFAULT_TOKENS_PER_SHARD;

/// A make of sharder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// Ours.
    Ringside,
    /// The small one of the tests, in Go after the thesis: it writes to one object after another.
    Thesis,
}

impl Make {
    /// As the table calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ringside => "ringside",
            Self::Thesis => "thesis",
        }
    }

    /// As its placement has them (`e2e/operator/sharder/placement.go`).
    pub fn tokens(self) -> NonZeroU32 {
        match self {
            Self::Ringside => DEFAULT_TOKENS_PER_SHARD,
            Self::Thesis => const { NonZeroU32::new(100).expect("not zero") },
        }
    }

    /// Starts one replica, for a ring that comes later.
    pub async fn start(self, system: &mut System, ring: &str) -> anyhow::Result<()> {
        match self {
            Self::Ringside => system.start_sharders(1).await?,
            Self::Thesis => system.start_other_sharder(ring).await?,
        }
        Ok(())
    }

    /// Its process, once it has started.
    pub fn process(self, system: &System) -> Option<&Process> {
        match self {
            Self::Ringside => Some(system.sharders().next()?.process()),
            Self::Thesis => Some(system.other_sharder()?.process()),
        }
    }
}
