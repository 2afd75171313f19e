//! The API server's fence, alone: shards with real pod-bound tokens write to the API server itself, with no proxy between
//! that would refuse anything.
#![allow(clippy::unwrap_used)]

mod forced;
mod ground;
mod joins;
mod kept;
mod others;
mod tricks;
mod unseen;
mod writes;

use std::process::ExitCode;

use ringside_e2e::shared_ground::{self, Case};
use tokio::runtime::Runtime;

/// Each has a control plane of its own, and mostly waits.
const AT_ONCE: usize = 5;

const CASES: [Case<()>; 26] = [
    Case::new("a_fenced_shard_that_does_not_let_go_loses_the_object_after_its_children", |()| {
        Box::pin(forced::a_fenced_shard_that_does_not_let_go_loses_the_object_after_its_children())
    }),
    Case::new("a_shard_without_the_fence_keeps_what_it_does_not_let_go_of_and_that_is_told", |()| {
        Box::pin(forced::a_shard_without_the_fence_keeps_what_it_does_not_let_go_of_and_that_is_told())
    }),
    Case::new("a_shard_that_the_fence_does_not_know_keeps_its_objects_although_the_others_lose_theirs", |()| {
        Box::pin(forced::a_shard_that_the_fence_does_not_know_keeps_its_objects_although_the_others_lose_theirs())
    }),
    Case::new("where_policies_are_turned_off_nothing_is_forced_and_that_is_told", |()| {
        Box::pin(forced::where_policies_are_turned_off_nothing_is_forced_and_that_is_told())
    }),
    Case::new("a_namespace_that_joins_a_fenced_ring_waits_for_the_fence_as_well", |()| {
        Box::pin(joins::a_namespace_that_joins_a_fenced_ring_waits_for_the_fence_as_well())
    }),
    Case::new("what_joins_a_fenced_ring_is_given_to_nobody_before_the_fence_is_around_it", |()| {
        Box::pin(joins::what_joins_a_fenced_ring_is_given_to_nobody_before_the_fence_is_around_it())
    }),
    Case::new("what_somebody_does_to_the_policy_is_undone_and_the_fence_is_not_in_place_meanwhile", |()| {
        Box::pin(kept::what_somebody_does_to_the_policy_is_undone_and_the_fence_is_not_in_place_meanwhile())
    }),
    Case::new("the_policy_goes_when_the_ring_does_not_ask_for_it_and_with_the_ring", |()| {
        Box::pin(kept::the_policy_goes_when_the_ring_does_not_ask_for_it_and_with_the_ring())
    }),
    Case::new("nothing_new_is_given_to_anybody_before_the_fence_is_around_it", |()| {
        Box::pin(kept::nothing_new_is_given_to_anybody_before_the_fence_is_around_it())
    }),
    Case::new("a_shard_that_the_fence_does_not_hold_is_named", |()| {
        Box::pin(kept::a_shard_that_the_fence_does_not_hold_is_named())
    }),
    Case::new("a_missing_permission_is_told_with_its_remedy_and_work_goes_on", |()| {
        Box::pin(kept::a_missing_permission_is_told_with_its_remedy_and_work_goes_on())
    }),
    Case::new("users_other_controllers_and_the_garbage_collector_are_not_concerned", |()| {
        Box::pin(others::users_other_controllers_and_the_garbage_collector_are_not_concerned())
    }),
    Case::new("a_namespace_ends_with_what_shards_own_in_it", |()| {
        Box::pin(others::a_namespace_ends_with_what_shards_own_in_it())
    }),
    Case::new("a_shard_acknowledges_and_changes_no_label_otherwise", |()| {
        Box::pin(tricks::a_shard_acknowledges_and_changes_no_label_otherwise())
    }),
    Case::new("nor_does_a_shard_of_objects_without_children", |()| {
        Box::pin(tricks::nor_does_a_shard_of_objects_without_children())
    }),
    Case::new("nor_does_it_strip_what_it_was_not_asked_to_let_go_of", |()| {
        Box::pin(tricks::nor_does_it_strip_what_it_was_not_asked_to_let_go_of())
    }),
    Case::new("what_a_shard_creates_has_no_label_its_own_or_the_webhooks", |()| {
        Box::pin(tricks::what_a_shard_creates_has_no_label_its_own_or_the_webhooks())
    }),
    Case::new("nor_what_it_creates_below_an_owner_its_own", |()| {
        Box::pin(tricks::nor_what_it_creates_below_an_owner_its_own())
    }),
    Case::new("no_write_of_a_former_owner_lands_however_often_the_label_flips", |()| {
        Box::pin(tricks::no_write_of_a_former_owner_lands_however_often_the_label_flips())
    }),
    Case::new("what_shows_no_owner_is_noted_in_the_audit_log_with_pod_and_object", |()| {
        Box::pin(unseen::what_shows_no_owner_is_noted_in_the_audit_log_with_pod_and_object())
    }),
    Case::new("a_write_as_somebody_else_needs_a_permission_and_is_in_the_audit_log_with_both_names", |()| {
        Box::pin(unseen::a_write_as_somebody_else_needs_a_permission_and_is_in_the_audit_log_with_both_names())
    }),
    Case::new("a_child_that_is_created_while_no_sharder_answers_goes_to_its_owners_shard_later", |()| {
        Box::pin(unseen::a_child_that_is_created_while_no_sharder_answers_goes_to_its_owners_shard_later())
    }),
    Case::new("who_creates_a_main_object_may_name_its_shard_where_nothing_else_keeps_the_labels", |()| {
        Box::pin(unseen::who_creates_a_main_object_may_name_its_shard_where_nothing_else_keeps_the_labels())
    }),
    Case::new("only_the_owner_writes_to_an_object_and_its_children", |()| {
        Box::pin(writes::only_the_owner_writes_to_an_object_and_its_children())
    }),
    Case::new("a_deletion_of_many_is_judged_object_by_object", |()| {
        Box::pin(writes::a_deletion_of_many_is_judged_object_by_object())
    }),
    Case::new("a_token_that_names_no_pod_writes_to_nothing_that_has_an_owner", |()| {
        Box::pin(writes::a_token_that_names_no_pod_writes_to_nothing_that_has_an_owner())
    }),
];

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    shared_ground::run(&runtime, Some(AT_ONCE), &CASES, || async {})
}
