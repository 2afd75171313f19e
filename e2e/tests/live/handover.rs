//! When a proxy releases what is drained, and when not: on a real API server, with the views that controllers have.
//!
//! Not the way of a whole move, which `sharing.rs` shows, but what may hold one up or must.

mod acknowledgement;
mod arriving;
mod fixture;
mod missed;
mod watches;

use std::sync::Arc;

use ringside_e2e::{
    case,
    live::{Ability, Group, Shared},
};

use crate::proxies::Proxies;

/// A case with shards of its own.
macro_rules! shared {
    ($run:path) => {
        case!(stringify!($run), $run(&*fixture().await))
    };
}

/// The cases.
pub(crate) fn group() -> Group {
    let cases = vec![
        shared!(missed::a_client_is_told_once_what_moved_while_it_did_not_watch).asks_for(Ability::StreamingLists),
        shared!(missed::a_client_of_any_format_is_told_once_what_moved)
            .asks_for(Ability::StreamingTables)
            .costs("repeats it in seven more formats"),
        shared!(watches::no_watch_holds_for_long_what_it_never_showed).asks_for(Ability::StreamingTables),
        shared!(arriving::an_object_comes_after_its_children),
        shared!(acknowledgement::a_list_in_pages_ends_when_its_object_moves),
        shared!(acknowledgement::only_what_is_still_drained_by_that_very_move_is_released)
            .asks_for(Ability::StreamingLists),
        shared!(acknowledgement::who_ends_lets_go_of_what_is_drained_before_its_lease_is_released),
        shared!(acknowledgement::a_controller_that_goes_on_beside_a_proxy_that_ends_holds_what_it_has_seen),
        shared!(acknowledgement::a_drain_past_its_deadline_is_an_event_on_the_ring),
    ];
    Group::new("handover", cases).strict().ends(|| FIXTURE.end())
}

static FIXTURE: Shared<Proxies> = Shared::new();

async fn fixture() -> Arc<Proxies> {
    FIXTURE.get(async || fixture::start().await).await
}
