//! The API server's fence, alone: shards with real pod-bound tokens write to the API server itself, with no proxy between
//! that would refuse anything.

mod fixture;
mod forced;
mod joins;
mod kept;
mod others;
mod tricks;
mod unseen;
mod writes;

use ringside_e2e::{case, live::Group};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "api_server_fence",
        vec![
            case!(forced::a_fenced_shard_that_does_not_let_go_loses_the_object_after_its_children),
            case!(forced::a_shard_without_the_fence_keeps_what_it_does_not_let_go_of_and_that_is_told),
            case!(forced::a_shard_that_the_fence_does_not_know_keeps_its_objects_although_the_others_lose_theirs),
            case!(forced::where_policies_are_turned_off_nothing_is_forced_and_that_is_told),
            case!(joins::a_namespace_that_joins_a_fenced_ring_waits_for_the_fence_as_well),
            case!(joins::what_joins_a_fenced_ring_is_given_to_nobody_before_the_fence_is_around_it),
            case!(kept::what_somebody_does_to_the_policy_is_undone_and_the_fence_is_not_in_place_meanwhile),
            case!(kept::the_policy_goes_when_the_ring_does_not_ask_for_it_and_with_the_ring),
            case!(kept::nothing_new_is_given_to_anybody_before_the_fence_is_around_it),
            case!(kept::a_shard_that_the_fence_does_not_hold_is_named),
            case!(kept::a_missing_permission_is_told_with_its_remedy_and_work_goes_on),
            case!(others::users_other_controllers_and_the_garbage_collector_are_not_concerned)
                .costs("the controller manager, built for it"),
            case!(others::a_namespace_ends_with_what_shards_own_in_it).costs("the controller manager, built for it"),
            case!(tricks::a_shard_acknowledges_and_changes_no_label_otherwise),
            case!(tricks::nor_does_a_shard_of_objects_without_children),
            case!(tricks::nor_does_it_strip_what_it_was_not_asked_to_let_go_of),
            case!(tricks::what_a_shard_creates_has_no_label_its_own_or_the_webhooks),
            case!(tricks::nor_what_it_creates_below_an_owner_its_own),
            case!(tricks::no_write_of_a_former_owner_lands_however_often_the_label_flips),
            case!(unseen::what_shows_no_owner_is_noted_in_the_audit_log_with_pod_and_object),
            case!(unseen::a_write_as_somebody_else_needs_a_permission_and_is_in_the_audit_log_with_both_names),
            case!(unseen::a_child_that_is_created_while_no_sharder_answers_goes_to_its_owners_shard_later),
            case!(unseen::who_creates_a_main_object_may_name_its_shard_where_nothing_else_keeps_the_labels),
            case!(writes::only_the_owner_writes_to_an_object_and_its_children),
            case!(writes::a_deletion_of_many_is_judged_object_by_object),
            case!(writes::a_token_that_names_no_pod_writes_to_nothing_that_has_an_owner),
        ],
    )
    .strict()
}
