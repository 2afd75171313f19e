//! The election code of several languages in front of a proxy: it leads in every shard at once, goes on doing so, stops when
//! the shard Lease is lost, and leads again when that is back; and the API server hears nothing of it. Who elects by the same
//! lock without a proxy leads before the shards or after them, and never beside them, whatever becomes of the lock.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stderr, reason = "what was measured")]

mod doubt;
mod elsewhere;
mod followed;
mod ground;
mod life;
mod named;
mod peers;
mod programs;

use std::process::ExitCode;

use ground::Ground;
use ringside_e2e::{
    shared_ground::{self, Case},
    toolchain::{Environment, without_java, without_python},
};
use tokio::runtime::Runtime;

const CASES: [Case<Ground>; 15] = [
    Case::new("client_go", |ground| Box::pin(life::of(ground, "client-go", programs::client_go))),
    Case::new("controller_runtime", |ground| {
        Box::pin(life::of(ground, "controller-runtime", programs::controller_runtime))
    }),
    Case::new("fabric8", |ground| Box::pin(life::of(ground, "fabric8", programs::fabric8)))
        .unless(|| without_java(&Environment::of_process())),
    Case::new("fabric8_by_configmap", |ground| {
        Box::pin(life::of(ground, "fabric8-configmap", programs::fabric8_by_configmap))
    })
    .unless(|| without_java(&Environment::of_process())),
    Case::new("client_go_there_and_back", |ground| {
        Box::pin(life::there_and_back(ground, "rollout", programs::client_go))
    }),
    Case::new("fabric8_by_configmap_there_and_back", |ground| {
        Box::pin(life::there_and_back(ground, "configmap-rollout", programs::fabric8_by_configmap))
    })
    .unless(|| without_java(&Environment::of_process())),
    Case::new("client_go_in_another_namespace", |ground| Box::pin(elsewhere::both_lead(ground))),
    Case::new("a_lead_in_doubt", |ground| Box::pin(doubt::is_no_lead(ground))),
    Case::new("a_lock_that_is_named", |ground| Box::pin(named::all_lead(ground))),
    Case::new("a_lock_that_is_followed", |ground| Box::pin(followed::by_one_name(ground))),
    Case::new("kopf", |ground| Box::pin(peers::kopf(ground))).unless(|| without_python(&Environment::of_process())),
    Case::new("kopf_for_minutes", |ground| Box::pin(peers::kopf_for_minutes(ground)))
        .unless(|| without_python(&Environment::of_process())),
    Case::new("kube_leader_election", |ground| {
        Box::pin(life::of(ground, "kube-leader-election", programs::kube_leader_election))
    }),
    Case::new("kube_leader_election_there_and_back", |ground| {
        Box::pin(life::there_and_back(ground, "rust-rollout", programs::kube_leader_election))
    }),
    Case::new("kube_rs", |ground| Box::pin(life::of(ground, "kube-rs", programs::kube_rs))),
];

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    if let Some(candidacy) = programs::Candidacy::of_process() {
        runtime.block_on(candidacy.stand());
        return ExitCode::SUCCESS;
    }
    // Most of the time all of them wait.
    shared_ground::run(&runtime, Some(CASES.len()), &CASES, Ground::start)
}
