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

use std::process::ExitCode;

use ringside_e2e::shared_ground::{self, Case};
use tokio::runtime::Runtime;

/// One that works, and beside it one that mostly waits for who stands still: the longest come first.
const AT_ONCE: usize = 2;

const CASES: [Case<()>; 5] = [
    Case::new("membership::twenty_changes_at_random_break_no_promise", |()| {
        Box::pin(membership::twenty_changes_at_random_break_no_promise())
    }),
    Case::new("pauses::of_a_proxy_that_stood_still_only_what_it_had_admitted_before_lands", |()| {
        Box::pin(pauses::of_a_proxy_that_stood_still_only_what_it_had_admitted_before_lands())
    }),
    Case::new("pauses::behind_the_api_servers_fence_nothing_of_a_proxy_that_stood_still_lands", |()| {
        Box::pin(pauses::behind_the_api_servers_fence_nothing_of_a_proxy_that_stood_still_lands())
    }),
    Case::new(
        "membership::in_a_ring_that_the_api_server_fences_changes_break_no_promise_and_no_owner_is_refused",
        |()| {
            Box::pin(membership::in_a_ring_that_the_api_server_fences_changes_break_no_promise_and_no_owner_is_refused())
        },
    ),
    Case::new("forced::what_a_standing_proxy_does_not_let_go_of_is_taken_and_nothing_that_it_had_sent_lands", |()| {
        Box::pin(forced::what_a_standing_proxy_does_not_let_go_of_is_taken_and_nothing_that_it_had_sent_lands())
    }),
];

fn main() -> ExitCode {
    shared_ground::run(&Runtime::new().unwrap(), Some(AT_ONCE), &CASES, || async {})
}
