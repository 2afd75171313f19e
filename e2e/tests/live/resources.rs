//! What rings distribute: resources of all kinds that come, change and go, namespaces that join and leave, rings beside each
//! other, and shards that are late. On a real API server, with shards that are nothing but Leases.

mod adopted;
mod definitions;
mod fixture;
mod joining;
mod late;
mod leaving;
mod newer;
mod rings;
mod rolling;
mod stuck;
mod together;

use std::sync::Arc;

use ringside_e2e::{
    case,
    live::{Group, Shared},
    toolchain::Need,
};

use self::fixture::Fixture;

/// A case that shares the sharder.
macro_rules! shared {
    ($run:path) => {
        case!(stringify!($run), $run(&*fixture().await))
    };
}

/// A case with controllers of Deployments and StatefulSets.
macro_rules! rolls {
    ($run:path) => {
        case!(stringify!($run), $run(&Fixture::start(true).await))
            .needs(Need::ControllerManager)
            .costs("the controller manager, built for it")
    };
}

/// The cases.
pub(crate) fn group() -> Group {
    let cases = vec![
        shared!(rings::resources_of_every_scope_and_group_are_distributed),
        shared!(rings::a_ring_may_come_after_its_objects_and_so_may_its_resources),
        shared!(rings::an_object_can_be_in_several_rings),
        shared!(newer::rings_of_both_kinds_may_have_one_name),
        shared!(adopted::what_has_an_owner_goes_with_it_and_what_has_none_is_placed_by_itself),
        shared!(together::objects_of_one_value_of_a_key_are_together),
        shared!(together::objects_of_a_group_are_with_its_shards_alone),
        shared!(together::a_key_that_can_t_be_used_is_refused_or_told),
        shared!(definitions::a_definition_may_come_after_the_ring_and_go_and_come_as_another),
        shared!(definitions::a_resource_is_distributed_in_whatever_version_is_served),
        shared!(leaving::objects_of_a_namespace_that_leaves_are_let_go_of_first),
        shared!(leaving::objects_of_a_resource_that_leaves_are_let_go_of_first),
        case!(joining::children_that_join_a_ring_are_never_hidden_from_all).costs("two proxies and their operators"),
        shared!(late::what_went_past_a_late_shard_moves_once_when_it_is_back),
        shared!(stuck::a_shard_that_releases_nothing_holds_up_no_other),
        rolls!(rolling::a_deployment_rolls_and_objects_move_hardly_more_often_than_they_must),
        rolls!(rolling::a_stateful_set_rolls_and_each_object_moves_out_and_home),
    ];
    Group::new("resources", cases).ends(|| FIXTURE.end())
}

static FIXTURE: Shared<Fixture> = Shared::new();

async fn fixture() -> Arc<Fixture> {
    FIXTURE.get(async || Fixture::start(false).await).await
}
