//! What the sharder writes next, and how much of it at once.

mod backoff;
pub(crate) mod limiter;
pub(crate) mod moves;
pub(crate) mod work;
