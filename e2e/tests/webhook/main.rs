//! The webhook on a real control plane: its certificates, its replicas, and what happens without it.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout, reason = "what was measured is part of the result")]

mod certificates;
mod ground;
mod injected;
mod missed;
mod outage;
mod trust;
