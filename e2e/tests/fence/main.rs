//! The proxy's fence before a real API server: what a controller is shown and may write by name, before a move, during it
//! and after it. The moves are made by hand, as a sharder makes them.
#![allow(clippy::unwrap_used)]

mod children;
mod flight;
mod gaps;
mod ground;
mod names;

use std::process::ExitCode;

use ground::Ground;
use ringside_e2e::shared_ground::{self, Case};
use tokio::runtime::Runtime;

const CASES: [Case<Ground>; 9] = [
    Case::new("what_was_handed_over_is_neither_shown_nor_written", |ground| Box::pin(names::handed_over(ground))),
    Case::new("subresources_are_fenced_by_the_live_labels", |ground| Box::pin(names::subresources(ground))),
    Case::new("an_impersonated_write_is_fenced", |ground| Box::pin(names::impersonated(ground))),
    Case::new("references_between_objects_are_readable_where_the_ring_says_so", |ground| {
        Box::pin(names::read_by_all(ground))
    }),
    Case::new("nothing_is_written_under_an_owner_that_was_handed_over", |ground| Box::pin(children::under(ground))),
    Case::new("children_go_with_their_owner", |ground| Box::pin(children::by_name(ground))),
    Case::new("a_write_under_way_holds_the_acknowledgement", |ground| Box::pin(flight::slow_write(ground))),
    Case::new("after_a_restart_what_is_written_is_verified", |ground| Box::pin(gaps::restart(ground))),
    Case::new("after_a_gap_in_the_lease_what_is_written_is_verified", |ground| Box::pin(gaps::lease(ground))),
];

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    shared_ground::run(&runtime, None, &CASES, Ground::start)
}
