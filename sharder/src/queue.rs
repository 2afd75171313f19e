//! What the sharder writes next, and how much of it at once.

#[allow(dead_code, reason = "the loop that works on keys is to come")]
mod backoff;
pub(crate) mod limiter;
pub(crate) mod moves;
#[allow(dead_code, reason = "the loop that works on keys is to come")]
pub(crate) mod work;
