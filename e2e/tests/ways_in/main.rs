//! Each way in to the proxy, taken by real clients that have nothing else; and what who has no right to come in is
//! told, beside what the API server tells.
#![allow(clippy::unwrap_used)]

mod clients;
mod elsewhere;
mod refusals;

use std::{
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Completion, Trial};
use ringside_e2e::{
    in_cluster,
    proxy::Proxy,
    system::{NAMESPACE, Settings, System, WayIn},
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
    /// Why no client can be given a service account's folder here.
    no_containers: Option<String>,
}

type Case = fn(&World) -> BoxFuture<'_, ()>;

const CASES: [(&str, Needs, Case); 8] = [
    ("kubectl_by_kubeconfig_sees_the_shard", Needs::Nothing, |world| Box::pin(clients::kubectl_by_kubeconfig(world))),
    ("kubectl_in_cluster_sees_the_shard", Needs::Containers, |world| Box::pin(clients::kubectl_in_cluster(world))),
    ("kube_rs_by_kubeconfig_sees_the_shard", Needs::Nothing, |world| Box::pin(clients::kube_rs_by_kubeconfig(world))),
    ("kube_rs_in_cluster_sees_the_shard", Needs::Containers, |world| Box::pin(clients::kube_rs_in_cluster(world))),
    ("a_go_operator_in_cluster_does_its_work", Needs::Containers, |world| {
        Box::pin(clients::operators_in_cluster(world))
    }),
    ("a_wrong_token_is_answered_as_by_the_api_server", Needs::Nothing, |world| Box::pin(refusals::wrong_token(world))),
    ("no_token_is_a_wrong_token", Needs::Nothing, |world| Box::pin(refusals::no_token(world))),
    ("a_browsers_token_is_taken_as_by_the_api_server", Needs::Nothing, |world| Box::pin(refusals::subprotocol(world))),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Containers,
}

impl World {
    async fn start() -> Self {
        let no_containers = in_cluster::unavailable();
        let way_in = if no_containers.is_none() { WayIn::InCluster } else { WayIn::Kubeconfig };
        let mut system = System::start(Settings { way_in, ..Settings::default() }).await.unwrap();
        let ring = system.start_sharding(1).await.unwrap();
        for shard in ["shard-0", "shard-1"] {
            system.add_shard(shard).await.unwrap();
        }
        system.until_counted(DEADLINE).await.unwrap();
        let workload = Workload {
            namespace: NAMESPACE.to_owned(),
            prefix: "site",
            objects: OBJECTS,
            work: Duration::ZERO,
            interval: DEADLINE,
            seed: 0,
        };
        workload.create(&system.control_plane().client()).await.unwrap();
        system.until_balanced(DEADLINE).await.unwrap();
        system.until_settled(DEADLINE).await.unwrap();
        let elsewhere = elsewhere::start(&system).await;
        Self { elsewhere, system, ring, no_containers }
    }
}

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    if std::env::args().nth(1).as_deref() == Some(clients::KUBE_RS) {
        runtime.block_on(clients::list_by_kube_rs());
        return ExitCode::SUCCESS;
    }
    // Started by the first case that runs: some only list the cases.
    let world: Arc<OnceLock<World>> = Arc::default();
    let trial = |&(name, needs, case): &(&'static str, Needs, Case)| {
        let (world, handle) = (world.clone(), runtime.handle().clone());
        Trial::ignorable_test(name, move || {
            let world = world.get_or_init(|| handle.block_on(World::start()));
            if let Some(reason) = world.no_containers.as_ref().filter(|_| needs == Needs::Containers) {
                return Ok(Completion::ignored_with(reason));
            }
            handle.block_on(case(world));
            Ok(Completion::Completed)
        })
    };
    let conclusion = libtest_mimic::run(&Arguments::from_args(), CASES.iter().map(trial).collect());
    // A world that goes with a panic leaves its logs.
    assert!(!conclusion.has_failed(), "the system of these cases goes now");
    conclusion.exit_code()
}
