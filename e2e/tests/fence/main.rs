//! The proxy's fence before a real API server: what a controller is shown and may write by name, before a move, during it
//! and after it. The moves are made by hand, as a sharder makes them.
#![allow(clippy::unwrap_used)]

mod children;
mod flight;
mod gaps;
mod ground;
mod names;

use std::{
    process::ExitCode,
    sync::{Arc, OnceLock},
};

use futures::future::BoxFuture;
use ground::Ground;
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::Runtime;

type Case = fn(&Ground) -> BoxFuture<'_, ()>;

const CASES: [(&str, Case); 9] = [
    ("what_was_handed_over_is_neither_shown_nor_written", |ground| Box::pin(names::handed_over(ground))),
    ("subresources_are_fenced_by_the_live_labels", |ground| Box::pin(names::subresources(ground))),
    ("an_impersonated_write_is_fenced", |ground| Box::pin(names::impersonated(ground))),
    ("references_between_objects_are_readable_where_the_ring_says_so", |ground| Box::pin(names::read_by_all(ground))),
    ("nothing_is_written_under_an_owner_that_was_handed_over", |ground| Box::pin(children::under(ground))),
    ("children_go_with_their_owner", |ground| Box::pin(children::by_name(ground))),
    ("a_write_under_way_holds_the_acknowledgement", |ground| Box::pin(flight::slow_write(ground))),
    ("after_a_restart_what_is_written_is_verified", |ground| Box::pin(gaps::restart(ground))),
    ("after_a_gap_in_the_lease_what_is_written_is_verified", |ground| Box::pin(gaps::lease(ground))),
];

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    // Started by the first case that runs: some only list the cases.
    let ground: Arc<OnceLock<Ground>> = Arc::default();
    let trial = |&(name, case): &(&'static str, Case)| {
        let (ground, handle) = (ground.clone(), runtime.handle().clone());
        Trial::test(name, move || {
            let ground = ground.get_or_init(|| handle.block_on(Ground::start()));
            handle.block_on(case(ground));
            Ok(())
        })
    };
    let conclusion = libtest_mimic::run(&Arguments::from_args(), CASES.iter().map(trial).collect());
    // A ground that goes with a panic leaves its logs.
    assert!(!conclusion.has_failed(), "the ground of these cases goes now");
    conclusion.exit_code()
}
