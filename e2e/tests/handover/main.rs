//! When a proxy lets go of what is drained, and when not: on a real API server, with the views that controllers have.
//!
//! Not the way of a whole move, which `sharing.rs` shows, but what may hold one up or must.
#![allow(clippy::unwrap_used)]

mod acknowledgement;
mod ground;
mod lists;
mod missed;
mod watches;

use std::process::ExitCode;

use ground::World;
use ringside_e2e::shared_ground::{self, Case};
use tokio::runtime::Runtime;

/// Each has a shard of its own.
const CASES: [Case<World>; 7] = [
    Case::new("a_client_is_told_once_what_moved_while_it_did_not_watch", |world| {
        Box::pin(missed::a_client_is_told_once_what_moved_while_it_did_not_watch(world))
    }),
    Case::new("a_list_in_pages_and_a_move_do_not_miss_each_other", |world| {
        Box::pin(lists::a_list_in_pages_and_a_move_do_not_miss_each_other(world))
    }),
    Case::new("no_watch_holds_for_long_what_it_never_showed", |world| {
        Box::pin(watches::no_watch_holds_for_long_what_it_never_showed(world))
    }),
    Case::new("only_what_is_still_drained_by_that_very_move_is_let_go", |world| {
        Box::pin(acknowledgement::only_what_is_still_drained_by_that_very_move_is_let_go(world))
    }),
    Case::new("who_ends_lets_go_of_what_is_drained_before_its_lease_is_released", |world| {
        Box::pin(acknowledgement::who_ends_lets_go_of_what_is_drained_before_its_lease_is_released(world))
    }),
    Case::new("a_controller_that_goes_on_beside_a_proxy_that_ends_holds_what_it_has_seen", |world| {
        Box::pin(acknowledgement::a_controller_that_goes_on_beside_a_proxy_that_ends_holds_what_it_has_seen(world))
    }),
    Case::new("a_drain_past_its_deadline_is_an_event_on_the_ring", |world| {
        Box::pin(acknowledgement::a_drain_past_its_deadline_is_an_event_on_the_ring(world))
    }),
];

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    // They mostly wait.
    shared_ground::run(&runtime, Some(CASES.len()), &CASES, World::start)
}
