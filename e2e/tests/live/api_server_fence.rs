//! The API server's fence, alone: shards with real pod-bound tokens write to the API server itself, with no proxy between
//! that would refuse anything.

pub(crate) mod fixture;
mod forced;
mod joins;
mod kept;
mod tricks;
mod unseen;
mod writes;

use ringside_e2e::{
    case,
    live::{Ability, Group},
};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "api_server_fence",
        vec![
            case!(forced::a_fenced_shard_that_does_not_let_go_loses_the_object_after_its_children),
            case!(forced::a_shard_without_the_fence_keeps_what_it_does_not_let_go_of_and_that_is_told),
            case!(forced::a_shard_that_the_fence_does_not_know_is_named_and_keeps_its_objects),
            case!(forced::where_policies_are_turned_off_nothing_is_forced_and_that_is_told)
                .asks_for(Ability::LabelPolicies)
                .costs("a control plane of its own, whose API server starts twice"),
            case!(joins::what_joins_a_fenced_ring_is_given_to_nobody_before_the_fence_is_around_it),
            case!(kept::what_somebody_does_to_the_policy_is_undone_and_the_fence_is_not_in_place_meanwhile)
                .costs("a minute of waiting for the API server"),
            case!(kept::the_policy_goes_when_the_ring_does_not_ask_for_it_and_with_the_ring)
                .costs("half a minute: where the policy stays, writes are refused"),
            case!(kept::nothing_new_is_given_to_anybody_before_the_fence_is_around_it),
            case!(kept::a_missing_permission_is_told_with_its_remedy_and_work_goes_on)
                .costs("a control plane of its own"),
            case!(tricks::a_shard_acknowledges_and_changes_no_label_otherwise),
            case!(tricks::nor_does_it_strip_what_it_was_not_asked_to_let_go_of)
                .costs("one more request that the policy refuses"),
            case!(tricks::what_a_shard_creates_has_no_label_its_own_or_the_webhooks),
            case!(tricks::nor_what_it_creates_below_an_owner_its_own).asks_for(Ability::LabelPolicies),
            case!(tricks::no_write_of_a_former_owner_lands_however_often_the_label_flips),
            case!(unseen::what_shows_no_owner_is_noted_in_the_audit_log_with_pod_and_object),
            case!(unseen::a_child_that_is_created_while_no_sharder_answers_goes_to_its_owners_shard_later)
                .costs("the same as a webhook that is away, behind the fence"),
            case!(writes::only_the_owner_writes_to_an_object_and_its_children),
            case!(writes::a_deletion_of_many_is_judged_object_by_object),
            case!(writes::only_accounts_of_shards_are_concerned_and_those_without_pod_write_to_nothing_owned),
        ],
    )
    .strict()
}
