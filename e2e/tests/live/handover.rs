//! When a proxy lets go of what is drained, and when not: on a real API server, with the views that controllers have.
//!
//! Not the way of a whole move, which `sharing.rs` shows, but what may hold one up or must.

mod acknowledgement;
mod fixture;
mod lists;
mod missed;
mod watches;

use fixture::World;
use std::sync::Arc;

use ringside_e2e::{
    case,
    live::{Group, Shared},
};

/// Each has a shard of its own.
/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "handover",
        vec![
            case!(
                "a_client_is_told_once_what_moved_while_it_did_not_watch",
                missed::a_client_is_told_once_what_moved_while_it_did_not_watch(&*fixture().await)
            ),
            case!(
                "a_list_in_pages_and_a_move_do_not_miss_each_other",
                lists::a_list_in_pages_and_a_move_do_not_miss_each_other(&*fixture().await)
            ),
            case!(
                "no_watch_holds_for_long_what_it_never_showed",
                watches::no_watch_holds_for_long_what_it_never_showed(&*fixture().await)
            ),
            case!(
                "only_what_is_still_drained_by_that_very_move_is_let_go",
                acknowledgement::only_what_is_still_drained_by_that_very_move_is_let_go(&*fixture().await)
            ),
            case!(
                "who_ends_lets_go_of_what_is_drained_before_its_lease_is_released",
                acknowledgement::who_ends_lets_go_of_what_is_drained_before_its_lease_is_released(&*fixture().await)
            ),
            case!(
                "a_controller_that_goes_on_beside_a_proxy_that_ends_holds_what_it_has_seen",
                acknowledgement::a_controller_that_goes_on_beside_a_proxy_that_ends_holds_what_it_has_seen(
                    &*fixture().await
                )
            ),
            case!(
                "a_drain_past_its_deadline_is_an_event_on_the_ring",
                acknowledgement::a_drain_past_its_deadline_is_an_event_on_the_ring(&*fixture().await)
            ),
        ],
    )
    .strict()
    .ends(|| FIXTURE.end())
}

static FIXTURE: Shared<World> = Shared::new();

async fn fixture() -> Arc<World> {
    FIXTURE.get(async || World::start().await).await
}
