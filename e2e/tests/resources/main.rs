//! What rings distribute: resources of all kinds that come, change and go, namespaces that join and leave, rings beside each
//! other, and shards that are late. On a real API server, with shards that are nothing but Leases.
#![allow(clippy::unwrap_used)]

mod definitions;
mod ground;
mod late;
mod leaving;
mod rings;
mod rolling;
mod stuck;

use std::process::ExitCode;

use ground::Ground;
use ringside_e2e::shared_ground::{self, Case};
use tokio::runtime::Runtime;

const CASES: [Case<Ground>; 18] = [
    Case::new("resources_of_every_scope_and_group_are_distributed", |ground| Box::pin(rings::every_kind(ground))),
    Case::new("generated_names_are_assigned_after_creation", |ground| Box::pin(rings::generated_names(ground))),
    Case::new("a_ring_may_come_after_its_shards_and_its_objects", |ground| Box::pin(rings::after_everything(ground))),
    Case::new("an_object_can_be_in_several_rings", |ground| Box::pin(rings::several(ground))),
    Case::new("a_resource_that_joins_a_ring_is_distributed", |ground| Box::pin(rings::resource_joins(ground))),
    Case::new("a_definition_may_come_after_the_ring_and_go_and_come_as_another", |ground| {
        Box::pin(definitions::comes_and_goes(ground))
    }),
    Case::new("a_resource_is_distributed_in_whatever_version_is_served", |ground| {
        Box::pin(definitions::versions(ground))
    }),
    Case::new("a_controlled_resource_may_come_after_the_ring", |ground| Box::pin(definitions::controlled(ground))),
    Case::new("objects_of_a_namespace_that_leaves_are_let_go_of_first", |ground| Box::pin(leaving::namespace(ground))),
    Case::new("labels_of_dead_shards_go_with_the_namespace", |ground| Box::pin(leaving::namespace_of_the_dead(ground))),
    Case::new("labels_go_with_the_namespace_when_the_ring_has_no_shards", |ground| {
        Box::pin(leaving::namespace_without_shards(ground))
    }),
    Case::new("objects_of_a_resource_that_leaves_are_let_go_of_first", |ground| Box::pin(leaving::resource(ground))),
    Case::new("a_controlled_resource_that_leaves_loses_its_labels", |ground| Box::pin(leaving::controlled(ground))),
    Case::new("what_is_created_beside_a_late_shard_goes_past_it_and_stays_when_it_dies", |ground| {
        Box::pin(late::dies(ground))
    }),
    Case::new("what_went_past_a_late_shard_moves_once_when_it_is_back", |ground| Box::pin(late::returns(ground))),
    Case::new("a_shard_that_lets_go_of_nothing_holds_up_nobody_else", |ground| {
        Box::pin(stuck::holds_up_only_its_own(ground))
    }),
    Case::new("a_deployment_rolls_and_objects_move_hardly_more_often_than_they_must", |ground| {
        Box::pin(rolling::deployment(ground))
    }),
    Case::new("a_stateful_set_rolls_and_each_object_moves_out_and_home", |ground| {
        Box::pin(rolling::stateful_set(ground))
    }),
];

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    // They wait for most of their time.
    shared_ground::run(&runtime, Some(CASES.len()), &CASES, Ground::start)
}
