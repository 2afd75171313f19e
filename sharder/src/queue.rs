//! What the sharder writes next, and how much of it at once.

pub(crate) mod limiter;
pub(crate) mod moves;
