//! The live tests: Ringside on a real Kubernetes API server. `cargo test -p ringside-tests --test live -- labels` runs those
//! with `labels` in their name; `--include-ignored` those as well that cost more than a change is worth.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what was measured is part of the result")]

mod alerts;
mod api_server_fence;
mod at_rest;
mod autoscaling;
mod before_you_shard;
mod command;
mod compatibility;
mod contract;
mod docs;
mod electors;
mod endurance;
mod fence;
mod fit;
mod footprint;
mod handover;
mod inject;
mod install;
mod interoperation;
mod labels;
mod leadership;
mod membership;
mod old_views;
mod operators;
mod plan;
mod planes;
mod promises;
mod proxies;
mod published;
mod quiet_logs;
mod resources;
mod rights;
mod selectors;
mod sharing;
mod situations;
mod watch_bytes;
mod ways_in;
mod webhook;

use std::process::ExitCode;

use ringside_e2e::live::Runner;

fn main() -> ExitCode {
    // Some cases start this program again, as a client of its own.
    if ways_in::be_a_client() {
        return ExitCode::SUCCESS;
    }
    // The longest come first.
    let runner = Runner::of_process(vec![
        promises::group(),
        autoscaling::group(),
        published::group(),
        leadership::group(),
        electors::group(),
        situations::group(),
        membership::group(),
        plan::group(),
        sharing::group(),
        interoperation::group(),
        api_server_fence::group(),
        labels::group(),
        endurance::group(),
        old_views::group(),
        operators::group(),
        resources::group(),
        rights::group(),
        inject::group(),
        handover::group(),
        selectors::group(),
        fence::group(),
        fit::group(),
        ways_in::group(),
        before_you_shard::group(),
        compatibility::group(),
        contract::group(),
        install::group(),
        docs::group(),
        alerts::group(),
        webhook::group(),
        footprint::group(),
        quiet_logs::group(),
        at_rest::group(),
    ]);
    runner.renews(planes::end).run()
}
