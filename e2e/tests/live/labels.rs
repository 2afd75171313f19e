//! Whatever a client writes into the labels of a ring, each object belongs to exactly one live shard a moment later,
//! and no live shard loses one that it was not asked to release. Each way to write is tried with the webhook, with the
//! policy in the API server, with both, and with neither.

mod acknowledgement;
mod adopted;
pub(crate) mod belongings;
mod copies;
pub(crate) mod fixture;
mod hidden;
mod history;
mod removal;
mod status;
mod writes;

use ringside_e2e::{
    case,
    live::{Ability, Group},
};
use ringside_ring::cluster_ring::Fence;

use crate::planes::Keeps;

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "labels",
        vec![
            case!(acknowledgement::the_policy_tells_an_acknowledgement_from_stripped_labels)
                .asks_for(Ability::LabelPolicies),
            case!(acknowledgement::the_webhook_tells_an_acknowledgement_from_stripped_labels),
            case!(belongings::what_belongs_to_a_ring_is_restored_and_what_is_created_meanwhile_has_an_owner).works(),
            case!("labels_are_kept_with_webhook_and_policy", writes::all(Keeps::Both))
                .works()
                .costs("each of both alone is tried as well"),
            case!("labels_are_kept_without_the_webhook", writes::all(Keeps::Policy))
                .asks_for(Ability::LabelPolicies)
                .works(),
            case!("labels_are_kept_by_the_webhook_alone", writes::all(Keeps::Webhook)).works(),
            case!("what_nobody_kept_is_assigned_again", writes::all(Keeps::Nothing)).works(),
            case!(hidden::no_answer_shows_labels_of_the_ring).asks_for(Ability::StreamingLists).works(),
            case!(status::labels_are_kept_when_a_status_is_written).asks_for(Ability::LabelPolicies),
            case!(
                "children_made_before_their_owners_are_adopted_with_webhook_and_policy",
                adopted::made_before_their_owners(Fence::Proxy, "labels-adopted")
            )
            .works(),
            case!(
                "children_made_before_their_owners_are_adopted_behind_the_api_servers_fence",
                adopted::made_before_their_owners(Fence::ApiServer, "labels-adopted-fenced")
            )
            .works()
            .costs("the same behind the fence"),
            case!(removal::removing_the_ring_takes_everything_off).works(),
            case!(removal::the_command_takes_off_what_no_sharder_saw_go)
                .works()
                .costs("the same by the command, whose page `docs` types"),
        ],
    )
}
