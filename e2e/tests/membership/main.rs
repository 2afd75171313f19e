//! Being a shard, and being taken for one: Leases before API servers that are slow, refuse or are out of reach, by wall clocks
//! that are wrong and step, and across a change of the sharder's leader.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout, reason = "what was measured is part of the result")]

mod clocks;
mod ground;
mod history;
mod killed;
mod leader;
mod recreated;
mod shard;
mod troubles;
mod waking;

use std::process::ExitCode;

use ground::Ground;
use ringside_e2e::shared_ground::{self, Case};
use tokio::runtime::Runtime;

const CASES: [Case<Ground>; 7] = [
    Case::new("a_lease_is_kept_while_it_can_be_renewed_in_time", |ground| Box::pin(troubles::short(ground))),
    Case::new("the_gate_closes_before_the_sharder_takes_over_and_opens_after_it_gave_back", |ground| {
        Box::pin(troubles::long(ground))
    }),
    Case::new("nobody_goes_by_wall_clocks", |ground| Box::pin(clocks::wrong(ground))),
    Case::new("a_new_leader_judges_anew", |_| Box::pin(leader::change())),
    Case::new("a_pod_of_the_same_name_waits_for_the_lease_of_the_one_before", |ground| {
        Box::pin(recreated::waits(ground))
    }),
    Case::new("who_wakes_when_others_have_its_objects_is_told_so", |ground| Box::pin(waking::tells(ground))),
    Case::new("objects_of_a_killed_shard_have_owners_again_in_time", |ground| Box::pin(killed::bounds(ground))),
];

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    // They wait for most of their time.
    shared_ground::run(&runtime, Some(CASES.len()), &CASES, || Ground::start(1))
}
