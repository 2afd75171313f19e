//! What all else rests on, on a real control plane with unmodified operators: no object is worked on twice at once, no
//! write of a former owner lands after the new one has started, no child is made twice, nothing is forgotten.
//!
//! The judge is the API server's audit log, beside what the operators report.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout, reason = "what was measured is part of the result")]

mod forced;
mod membership;
mod pauses;
mod request;
mod rest;
