//! What all else rests on, on a real control plane with unmodified operators: no object is worked on twice at once, no
//! write of a former owner lands after the new one has started, no child is made twice, nothing is forgotten.
//!
//! The judge is the API server's audit log, beside what the operators report.

mod forced;
mod membership;
mod pauses;
mod request;
mod rest;
mod upgrade;
mod versions;

use ringside_e2e::{case, live::Group, toolchain::Need};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "promises",
        vec![
            case!(membership::twenty_changes_at_random_break_no_promise)
                .alone()
                .costs("two minutes: 500 objects, twenty changes"),
            case!(pauses::of_a_proxy_that_stood_still_only_what_it_had_admitted_before_lands).works(),
            case!(membership::in_a_ring_that_the_api_server_fences_changes_break_no_promise_and_no_owner_is_refused)
                .works(),
            case!(forced::what_a_standing_proxy_does_not_let_go_of_is_taken_and_nothing_that_it_had_sent_lands)
                .works()
                .costs("two minutes: by a whole system, what `api_server_fence` shows by hand"),
            case!(versions::rolled_back_and_forth_amid_moves_and_a_takeover_nothing_is_worked_on_twice_or_forgotten)
                .alone()
                .needs(Need::Before)
                .costs("a build of the version before, and four minutes"),
            case!(upgrade::beside_an_api_server_of_the_version_before_objects_move_and_are_taken_over)
                .alone()
                .needs(Need::NeighbouringApiServer)
                .costs("a build of another API server, and two minutes"),
        ],
    )
    .strict()
}
