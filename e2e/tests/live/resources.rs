//! What rings distribute: resources of all kinds that come, change and go, namespaces that join and leave, rings beside each
//! other, and shards that are late. On a real API server, with shards that are nothing but Leases.

mod adopted;
mod definitions;
mod fixture;
mod late;
mod leaving;
mod newer;
mod rings;
mod rolling;
mod stuck;
mod together;

use fixture::Fixture;
use std::sync::Arc;

use ringside_e2e::{
    case,
    live::{Group, Shared},
};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "resources",
        vec![
            case!("resources_of_every_scope_and_group_are_distributed", rings::every_kind(&*fixture().await)),
            case!("generated_names_are_assigned_after_creation", rings::generated_names(&*fixture().await)),
            case!("a_ring_may_come_after_its_shards_and_its_objects", rings::after_everything(&*fixture().await)),
            case!("an_object_can_be_in_several_rings", rings::several(&*fixture().await)),
            case!("rings_of_both_kinds_may_have_one_name", newer::beside_the_older(&*fixture().await)),
            case!(
                "what_has_an_owner_goes_with_it_and_what_has_none_is_placed_by_itself",
                adopted::and_freed(&*fixture().await)
            ),
            case!("objects_of_one_value_of_a_label_are_together", together::by_label(&*fixture().await)),
            case!(
                "objects_of_one_namespace_or_annotation_are_together",
                together::by_namespace_or_annotation(&*fixture().await)
            ),
            case!("objects_of_a_group_are_with_its_shards_alone", together::by_group(&*fixture().await)),
            case!("a_key_that_can_t_be_used_is_refused_or_told", together::unusable(&*fixture().await)),
            case!("a_resource_that_joins_a_ring_is_distributed", rings::resource_joins(&*fixture().await)),
            case!(
                "a_definition_may_come_after_the_ring_and_go_and_come_as_another",
                definitions::comes_and_goes(&*fixture().await)
            ),
            case!("a_resource_is_distributed_in_whatever_version_is_served", definitions::versions(&*fixture().await)),
            case!("a_controlled_resource_may_come_after_the_ring", definitions::controlled(&*fixture().await)),
            case!("objects_of_a_namespace_that_leaves_are_let_go_of_first", leaving::namespace(&*fixture().await)),
            case!("labels_of_dead_shards_go_with_the_namespace", leaving::namespace_of_the_dead(&*fixture().await)),
            case!(
                "labels_go_with_the_namespace_when_the_ring_has_no_shards",
                leaving::namespace_without_shards(&*fixture().await)
            ),
            case!("objects_of_a_resource_that_leaves_are_let_go_of_first", leaving::resource(&*fixture().await)),
            case!("a_controlled_resource_that_leaves_loses_its_labels", leaving::controlled(&*fixture().await)),
            case!(
                "what_is_created_beside_a_late_shard_goes_past_it_and_stays_when_it_dies",
                late::dies(&*fixture().await)
            ),
            case!("what_went_past_a_late_shard_moves_once_when_it_is_back", late::returns(&*fixture().await)),
            case!(
                "a_shard_that_lets_go_of_nothing_holds_up_nobody_else",
                stuck::holds_up_only_its_own(&*fixture().await)
            ),
            case!(
                "a_deployment_rolls_and_objects_move_hardly_more_often_than_they_must",
                rolling::deployment(&Fixture::start_rolling().await)
            )
            .costs("the controller manager, built for it"),
            case!(
                "a_stateful_set_rolls_and_each_object_moves_out_and_home",
                rolling::stateful_set(&Fixture::start_rolling().await)
            )
            .costs("the controller manager, built for it"),
        ],
    )
    .ends(|| FIXTURE.end())
}

static FIXTURE: Shared<Fixture> = Shared::new();

async fn fixture() -> Arc<Fixture> {
    FIXTURE.get(async || Fixture::start().await).await
}
