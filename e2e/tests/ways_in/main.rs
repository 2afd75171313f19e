//! Each way in to the proxy, taken by real clients that have nothing else; and what who has no right to come in is
//! told, beside what the API server tells.
#![allow(clippy::unwrap_used)]

mod clients;
mod elsewhere;
mod exposure;
mod refusals;

use std::{process::ExitCode, time::Duration};

use ringside_e2e::{
    in_cluster,
    proxy::Proxy,
    shared_ground::{self, Case},
    system::{Settings, System, WayIn},
    workload::Workload,
};
use ringside_ring::RingName;
use tokio::runtime::Runtime;

const OBJECTS: usize = 20;

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(60);

/// Two shards whose objects are settled: all that the cases share.
struct World {
    /// A shard in another namespace, and what selects its objects. Gone before the control plane.
    elsewhere: (Proxy, String),
    system: System,
    ring: RingName,
}

const CASES: [Case<World>; 9] = [
    Case::new("kubectl_by_kubeconfig_sees_the_shard", |world| Box::pin(clients::kubectl_by_kubeconfig(world))),
    Case::new("kubectl_in_cluster_sees_the_shard", |world| Box::pin(clients::kubectl_in_cluster(world)))
        .unless(in_cluster::unavailable),
    Case::new("kube_rs_by_kubeconfig_sees_the_shard", |world| Box::pin(clients::kube_rs_by_kubeconfig(world))),
    Case::new("kube_rs_in_cluster_sees_the_shard", |world| Box::pin(clients::kube_rs_in_cluster(world)))
        .unless(in_cluster::unavailable),
    Case::new("a_go_operator_in_cluster_does_its_work", |world| Box::pin(clients::operators_in_cluster(world)))
        .unless(in_cluster::unavailable),
    Case::new("a_wrong_token_is_answered_as_by_the_api_server", |world| Box::pin(refusals::wrong_token(world))),
    Case::new("no_token_is_a_wrong_token", |world| Box::pin(refusals::no_token(world))),
    Case::new("a_browsers_token_is_taken_as_by_the_api_server", |world| Box::pin(refusals::subprotocol(world))),
    Case::new("what_is_open_to_others_is_warned_of", |world| Box::pin(exposure::warned_of(world))),
];

impl World {
    async fn start() -> Self {
        let way_in = if in_cluster::unavailable().is_none() { WayIn::InCluster } else { WayIn::Kubeconfig };
        let mut system = System::start(Settings { way_in, ..Settings::default() }).await.unwrap();
        let ring = system.start_sharding(1).await.unwrap();
        for shard in ["shard-0", "shard-1"] {
            system.add_shard(shard).await.unwrap();
        }
        system.share_out(&Workload::idle("site", OBJECTS), DEADLINE).await.unwrap();
        let elsewhere = elsewhere::start(&system).await;
        Self { elsewhere, system, ring }
    }
}

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    if std::env::args().nth(1).as_deref() == Some(clients::KUBE_RS) {
        runtime.block_on(clients::list_by_kube_rs());
        return ExitCode::SUCCESS;
    }
    shared_ground::run(&runtime, None, &CASES, World::start)
}
