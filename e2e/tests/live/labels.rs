//! Whatever somebody writes into the labels of a ring, each object belongs to exactly one live shard a moment later, and no
//! live shard loses one that it was not asked to let go of. Each way to write is tried with the webhook, with the policy in
//! the API server, with both, and with neither.

mod acknowledgement;
mod adopted;
pub(crate) mod belongings;
mod copies;
mod fixture;
mod hidden;
mod history;
mod removal;
mod status;
mod writes;

use ringside_e2e::{case, live::Group};

use crate::planes::Keeps;

use self::fixture::Fixture;

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "labels",
        vec![
            case!(acknowledgement::the_policy_tells_an_acknowledgement_from_stripped_labels),
            case!(acknowledgement::the_webhook_tells_an_acknowledgement_from_stripped_labels),
            case!(belongings::what_belongs_to_a_ring_is_restored_within_seconds).works(),
            case!(belongings::what_is_created_while_what_belongs_to_the_ring_is_gone_has_an_owner_a_moment_later)
                .works(),
            case!(labels_are_kept_with_webhook_and_policy).alone(),
            case!(labels_are_kept_without_the_webhook).alone(),
            case!(labels_are_kept_by_the_webhook_alone).alone(),
            case!(what_nobody_kept_is_assigned_again).alone(),
            case!(hidden::no_answer_shows_labels_of_the_ring).works(),
            case!(hidden::a_copy_of_labels_stays_the_same_as_its_object_moves).works(),
            case!(status::labels_are_kept_when_a_status_is_written),
            case!(copies::a_copied_child_is_with_its_owner_at_once_with_webhook_and_policy).alone(),
            case!(copies::a_copied_child_is_with_its_owner_soon_while_the_webhook_is_away).alone(),
            case!(copies::a_copied_child_is_with_its_owner_soon_where_nothing_keeps_labels).alone(),
            case!(adopted::children_made_before_their_owners_are_adopted_with_webhook_and_policy).works(),
            case!(adopted::children_made_before_their_owners_are_adopted_behind_the_api_servers_fence),
            case!(removal::removing_the_ring_takes_everything_off).works(),
            case!(removal::the_command_takes_off_what_no_sharder_saw_go).works(),
            case!(removal::the_command_takes_a_whole_ring_off_while_everything_runs).works(),
            case!(removal::the_command_leaves_what_a_selector_needs_and_names_it)
                .costs("the controller manager, built for it"),
        ],
    )
}

async fn labels_are_kept_with_webhook_and_policy() {
    let fixture = Fixture::on(Keeps::Both, "labels-kept").await;
    writes::strips_and_copies(&fixture).await;
    writes::strips_of_children(&fixture).await;
    hidden::a_put_keeps_them(&fixture).await;
    hidden::a_put_of_a_child_keeps_them(&fixture).await;
    writes::changes_of_owner(&fixture).await;
    fixture.assert_nobody_lost_anything();
    fixture.assert_all_was_in_time();
}

async fn labels_are_kept_without_the_webhook() {
    let fixture = Fixture::on(Keeps::Policy, "labels-kept").await;
    writes::strips_and_copies(&fixture).await;
    writes::strips_of_children(&fixture).await;
    hidden::a_put_keeps_them(&fixture).await;
    hidden::a_put_of_a_child_keeps_them(&fixture).await;
    writes::changes_of_owner(&fixture).await;
    fixture.assert_nobody_lost_anything();
    fixture.assert_all_was_in_time();
}

async fn labels_are_kept_by_the_webhook_alone() {
    let fixture = Fixture::on(Keeps::Webhook, "labels-kept").await;
    writes::strips_and_copies(&fixture).await;
    writes::strips_of_children(&fixture).await;
    hidden::a_put_keeps_them(&fixture).await;
    hidden::a_put_of_a_child_keeps_them(&fixture).await;
    fixture.assert_nobody_lost_anything();
    fixture.assert_all_was_in_time();
}

/// Nothing keeps the labels then: a shard loses what is stripped, and gets it back.
async fn what_nobody_kept_is_assigned_again() {
    let fixture = Fixture::on(Keeps::Nothing, "labels-kept").await;
    writes::strips_and_copies(&fixture).await;
    writes::to_nobody(&fixture).await;
    hidden::a_put_keeps_them(&fixture).await;
    fixture.assert_all_was_in_time();
}
