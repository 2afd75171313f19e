//! When a proxy lets go of what is drained, and when not: on a real API server, with the views that controllers have.
//!
//! Not the way of a whole move, which `sharing.rs` shows, but what may hold one up or must.
#![allow(clippy::unwrap_used)]

mod acknowledgement;
mod ground;
mod lists;
mod missed;
mod watches;

use ground::Ground;

#[tokio::test(flavor = "multi_thread")]
async fn what_views_hold_a_drain_and_what_it_does_to_the_object() {
    let ground = Ground::start().await;
    missed::a_client_is_told_once_what_moved_while_it_did_not_watch(&ground).await;
    lists::a_list_in_pages_and_a_move_do_not_miss_each_other(&ground).await;
    watches::no_watch_holds_for_long_what_it_never_showed(&ground).await;
    acknowledgement::only_what_is_still_drained_by_that_very_move_is_let_go(&ground).await;
    acknowledgement::a_drain_past_its_deadline_is_an_event_on_the_ring(&ground).await;
}
