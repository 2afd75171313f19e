//! Being a shard, and being taken for one: Leases before API servers that are slow, refuse or are out of reach, by wall clocks
//! that are wrong and step, and of Pods that are killed, or have the name of others.

mod busy;
mod clocks;
mod fixture;
mod history;
mod killed;
mod shard;
mod shared_name;
mod troubles;
mod waking;

use fixture::Fixture;
use std::sync::Arc;

use ringside_e2e::{
    case,
    live::{Ability, Group, Shared},
};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "membership",
        vec![
            case!(
                "the_gate_closes_before_the_sharder_takes_over_and_opens_after_it_gave_back",
                troubles::never_both(&*fixture().await)
            )
            .asks_for(Ability::CompressedWatches)
            .strict(),
            case!("nobody_goes_by_wall_clocks", clocks::wrong(&*fixture().await)).asks_for(Ability::CompressedWatches),
            case!("one_of_two_pods_of_a_name_works", shared_name::one_works(&*fixture().await)),
            case!("objects_of_a_killed_shard_have_owners_again_in_time", killed::bound(&*fixture().await)).alone(),
            case!(
                "objects_of_a_killed_shard_have_owners_again_in_time_on_a_busy_api_server",
                busy::bound(&*fixture().await)
            )
            .alone()
            .costs("a minute of waiting at full CPU"),
            case!("who_wakes_when_others_have_its_objects_is_told_so", waking::tells(&*fixture().await))
                .costs("another API server, and a minute: what tests of the watches show"),
        ],
    )
    .ends(|| FIXTURE.end())
}

static FIXTURE: Shared<Fixture> = Shared::new();

async fn fixture() -> Arc<Fixture> {
    FIXTURE.get(async || Fixture::start().await).await
}
