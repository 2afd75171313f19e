//! Whatever somebody writes into the labels of a ring, each object belongs to exactly one live shard a moment later, and no
//! live shard loses one that it was not asked to let go of. Each way to write is tried with the webhook, with the policy in
//! the API server, with both, and with neither.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stderr, reason = "what was measured")]

mod acknowledgement;
mod belongings;
mod copies;
mod ground;
mod history;
mod removal;
mod status;
mod writes;

use std::process::ExitCode;

use ringside_e2e::{
    shared_ground::{self, Case},
    system::Settings,
};
use tokio::runtime::Runtime;

use self::ground::Ground;

/// Each has a system of its own, and mostly waits.
const AT_ONCE: usize = 4;

const CASES: [Case<()>; 15] = [
    Case::new("the_policy_tells_an_acknowledgement_from_stripped_labels", |()| {
        Box::pin(acknowledgement::the_policy_tells_an_acknowledgement_from_stripped_labels())
    }),
    Case::new("the_webhook_tells_an_acknowledgement_from_stripped_labels", |()| {
        Box::pin(acknowledgement::the_webhook_tells_an_acknowledgement_from_stripped_labels())
    }),
    Case::new("what_belongs_to_a_ring_is_restored_within_seconds", |()| {
        Box::pin(belongings::what_belongs_to_a_ring_is_restored_within_seconds())
    }),
    Case::new("what_is_created_while_what_belongs_to_the_ring_is_gone_has_an_owner_a_moment_later", |()| {
        Box::pin(belongings::what_is_created_while_what_belongs_to_the_ring_is_gone_has_an_owner_a_moment_later())
    }),
    Case::new("labels_are_kept_with_webhook_and_policy", |()| Box::pin(labels_are_kept_with_webhook_and_policy())),
    Case::new("labels_are_kept_without_the_webhook", |()| Box::pin(labels_are_kept_without_the_webhook())),
    Case::new("labels_are_kept_by_the_webhook_alone", |()| Box::pin(labels_are_kept_by_the_webhook_alone())),
    Case::new("what_nobody_kept_is_assigned_again", |()| Box::pin(what_nobody_kept_is_assigned_again())),
    Case::new("labels_are_kept_when_a_status_is_written", |()| {
        Box::pin(status::labels_are_kept_when_a_status_is_written())
    }),
    Case::new("a_copied_child_is_with_its_owner_at_once_with_webhook_and_policy", |()| {
        Box::pin(copies::a_copied_child_is_with_its_owner_at_once_with_webhook_and_policy())
    }),
    Case::new("a_copied_child_is_with_its_owner_soon_while_the_webhook_is_away", |()| {
        Box::pin(copies::a_copied_child_is_with_its_owner_soon_while_the_webhook_is_away())
    }),
    Case::new("a_copied_child_is_with_its_owner_after_a_period_where_nothing_keeps_labels", |()| {
        Box::pin(copies::a_copied_child_is_with_its_owner_after_a_period_where_nothing_keeps_labels())
    }),
    Case::new("removing_the_ring_takes_everything_off", |()| {
        Box::pin(removal::removing_the_ring_takes_everything_off())
    }),
    Case::new("the_command_takes_off_what_no_sharder_saw_go", |()| {
        Box::pin(removal::the_command_takes_off_what_no_sharder_saw_go())
    }),
    Case::new("the_command_takes_a_whole_ring_off_while_everything_runs", |()| {
        Box::pin(removal::the_command_takes_a_whole_ring_off_while_everything_runs())
    }),
];

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    shared_ground::run(&runtime, Some(AT_ONCE), &CASES, || async {})
}

async fn labels_are_kept_with_webhook_and_policy() {
    let ground = Ground::start(Settings::default(), true).await;
    writes::strips_and_copies(&ground).await;
    writes::strips_of_children(&ground).await;
    writes::changes_of_owner(&ground).await;
    ground.assert_nobody_lost_anything();
    ground.assert_all_was_in_time();
}

async fn labels_are_kept_without_the_webhook() {
    let ground = Ground::start(Settings { webhook: false, ..Settings::default() }, true).await;
    writes::strips_and_copies(&ground).await;
    writes::strips_of_children(&ground).await;
    writes::changes_of_owner(&ground).await;
    ground.assert_nobody_lost_anything();
    ground.assert_all_was_in_time();
}

async fn labels_are_kept_by_the_webhook_alone() {
    let ground = Ground::start(Settings::without_label_policies(), false).await;
    writes::strips_and_copies(&ground).await;
    writes::strips_of_children(&ground).await;
    ground.assert_nobody_lost_anything();
    ground.assert_all_was_in_time();
}

/// Nothing keeps the labels then: a shard loses what is stripped, and gets it back.
async fn what_nobody_kept_is_assigned_again() {
    let ground = Ground::start(Settings { webhook: false, ..Settings::without_label_policies() }, false).await;
    writes::strips_and_copies(&ground).await;
    writes::to_nobody(&ground).await;
    ground.assert_all_was_in_time();
}
