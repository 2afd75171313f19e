//! What `ringside` does with one ring: says what its sharder would do, or cleans up after it.

mod cleanup;
mod plan;
mod report;

pub use self::{
    cleanup::{Cleanup, CleanupError},
    plan::{AddedShard, Forecast, Plan, PlanError},
    report::Report,
};
