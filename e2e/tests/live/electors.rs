//! The election code of several languages in front of a proxy: it leads in every shard at once, goes on doing so, stops when
//! the shard Lease is lost, and leads again when that is back; and the API server hears nothing of it. Who elects by the same
//! lock without a proxy leads before the shards or after them, and never beside them, whatever becomes of the lock.

mod doubt;
mod fixture;
mod life;
mod named;
mod peers;
mod programs;

use fixture::Fixture;
use std::sync::Arc;

use ringside_e2e::{
    case,
    live::{Case, Group, Shared},
    toolchain::Need,
};

use programs::{Program, client_go, controller_runtime, fabric8, fabric8_by_configmap, kube_leader_election};

/// The cases.
pub(crate) fn group() -> Group {
    let by_java =
        |case: Case| case.needs(Need::Java("fabric8")).costs("a Java client by Maven, and a minute of waiting");
    let by_rust = |case: Case| case.needs(Need::RustElector).costs("an elector of other Rust crates, built for it");
    Group::new(
        "electors",
        vec![
            leads("client_go", client_go).needs(Need::Elector),
            there_and_back("client_go_there_and_back", client_go)
                .needs(Need::Elector)
                .costs("a minute and a half of waiting"),
            case!("a_lead_in_doubt", doubt::is_no_lead(&*fixture().await))
                .needs(Need::Elector)
                .costs("waits for a lead to end, what tests of the proxy show by a paused clock"),
            case!("a_lock_that_is_named", named::all_lead(&*fixture().await)),
            leads("controller_runtime", controller_runtime)
                .needs(Need::Elector)
                .costs("client-go's election with a manager around it"),
            by_java(leads("fabric8", fabric8)),
            by_java(leads("fabric8_by_configmap", fabric8_by_configmap)),
            by_java(there_and_back("fabric8_by_configmap_there_and_back", fabric8_by_configmap)),
            by_rust(leads("kube_leader_election", kube_leader_election)),
            by_rust(there_and_back("kube_leader_election_there_and_back", kube_leader_election)),
            case!("kopf", peers::kopf(&*fixture().await))
                .needs(Need::Python("kopf"))
                .costs("kopf by pip, and a minute of waiting"),
        ],
    )
    .ends(|| FIXTURE.end())
}

fn leads(name: &'static str, program: Program) -> Case {
    case!(name, life::of(&*fixture().await, name, program))
}

fn there_and_back(name: &'static str, program: Program) -> Case {
    case!(name, life::there_and_back(&*fixture().await, name, program))
}

static FIXTURE: Shared<Fixture> = Shared::new();

async fn fixture() -> Arc<Fixture> {
    FIXTURE.get(async || Fixture::start().await).await
}
