//! Being a shard, and being taken for one: Leases before API servers that are slow, refuse or are out of reach, by wall clocks
//! that are wrong and step, and across a change of the sharder's leader.

mod clocks;
mod fixture;
mod foreign;
mod history;
mod killed;
mod leader;
mod recreated;
mod shard;
mod shared_name;
mod troubles;
mod waking;

use fixture::Fixture;
use std::sync::Arc;

use ringside_e2e::{
    case,
    live::{Case, Group, Shared},
};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "membership",
        vec![
            case!("a_lease_is_kept_while_it_can_be_renewed_in_time", troubles::short(&*fixture().await)),
            case!(
                "the_gate_closes_before_the_sharder_takes_over_and_opens_after_it_gave_back",
                troubles::long(&*fixture().await)
            )
            .strict(),
            case!("nobody_goes_by_wall_clocks", clocks::wrong(&*fixture().await)).alone(),
            case!("a_new_leader_lets_a_late_shard_renew", leader::change()),
            case!("a_pod_of_the_same_name_waits_for_the_lease_of_the_one_before", recreated::waits(&*fixture().await)),
            case!("one_of_two_pods_of_a_name_works", shared_name::one_works(&*fixture().await)),
            case!("leases_that_are_no_shards_are_left_alone", foreign::are_left_alone(&*fixture().await)),
            case!("who_wakes_when_others_have_its_objects_is_told_so", waking::tells(&*fixture().await)),
            Case::new("objects_of_a_killed_shard_have_owners_again_in_time", || {
                Box::pin(async { killed::bounds(&*fixture().await).await })
            }),
        ],
    )
    .ends(|| FIXTURE.end())
}

static FIXTURE: Shared<Fixture> = Shared::new();

async fn fixture() -> Arc<Fixture> {
    FIXTURE.get(async || Fixture::start(1).await).await
}
