//! The election code of several languages in front of a proxy: it leads in every shard at once, goes on doing so, stops when
//! the shard Lease is lost, and leads again when that is back; and the API server hears nothing of it. Who elects by the same
//! lock without a proxy leads before the shards or after them, and never beside them, whatever becomes of the lock.

mod doubt;
mod elsewhere;
mod fixture;
mod followed;
mod life;
mod named;
mod peers;
mod programs;

use fixture::Fixture;
use std::sync::Arc;

use ringside_e2e::{
    case,
    live::{Group, Shared},
    toolchain::{Environment, without_java, without_python},
};
use tokio::runtime::Runtime;

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "electors",
        vec![
            case!("client_go", life::of(&*fixture().await, "client-go", programs::client_go)),
            case!(
                "controller_runtime",
                life::of(&*fixture().await, "controller-runtime", programs::controller_runtime)
            ),
            case!("fabric8", life::of(&*fixture().await, "fabric8", programs::fabric8))
                .costs("a Java client by Maven, and half a minute of waiting")
                .unless(|| without_java(&Environment::of_process())),
            case!(
                "fabric8_by_configmap",
                life::of(&*fixture().await, "fabric8-configmap", programs::fabric8_by_configmap)
            )
            .costs("a Java client by Maven, and half a minute of waiting")
            .unless(|| without_java(&Environment::of_process())),
            case!("client_go_there_and_back", life::there_and_back(&*fixture().await, "rollout", programs::client_go)),
            case!(
                "fabric8_by_configmap_there_and_back",
                life::there_and_back(&*fixture().await, "configmap-rollout", programs::fabric8_by_configmap)
            )
            .costs("a Java client by Maven, and half a minute of waiting")
            .unless(|| without_java(&Environment::of_process())),
            case!("client_go_in_another_namespace", elsewhere::both_lead(&*fixture().await)),
            case!("a_lead_in_doubt", doubt::is_no_lead(&*fixture().await)),
            case!("a_lock_that_is_named", named::all_lead(&*fixture().await)),
            case!("a_lock_that_is_followed", followed::by_one_name(&*fixture().await)),
            case!("kopf", peers::kopf(&*fixture().await))
                .costs("kopf by pip, and half a minute of waiting")
                .unless(|| without_python(&Environment::of_process())),
            case!("kopf_for_minutes", peers::kopf_for_minutes(&*fixture().await))
                .costs("kopf by pip, and two minutes of waiting")
                .unless(|| without_python(&Environment::of_process())),
            case!(
                "kube_leader_election",
                life::of(&*fixture().await, "kube-leader-election", programs::kube_leader_election)
            )
            .costs("an elector of other Rust crates, built for it"),
            case!(
                "kube_leader_election_there_and_back",
                life::there_and_back(&*fixture().await, "rust-rollout", programs::kube_leader_election)
            )
            .costs("an elector of other Rust crates, built for it"),
            case!("kube_rs", life::of(&*fixture().await, "kube-rs", programs::kube_rs))
                .costs("an elector of other Rust crates, built for it"),
        ],
    )
    .ends(|| FIXTURE.end())
}

static FIXTURE: Shared<Fixture> = Shared::new();

async fn fixture() -> Arc<Fixture> {
    FIXTURE.get(async || Fixture::start().await).await
}

/// Takes part in elections, and says so, where this process is one of those that a case starts.
pub(crate) fn be_a_candidate() -> bool {
    programs::Candidacy::of_process().map(|candidacy| Runtime::new().unwrap().block_on(candidacy.stand())).is_some()
}
