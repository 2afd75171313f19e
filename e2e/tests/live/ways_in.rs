//! Each way in to the proxy, taken by real clients that have nothing else; and what who has no right to come in is
//! told, beside what the API server tells.

mod clients;
mod elsewhere;
mod exposure;
mod refusals;
mod starting;
mod tenant;

use std::{sync::Arc, time::Duration};

use ringside_e2e::{
    case, in_cluster,
    live::{Group, Shared},
    proxy::Proxy,
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

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "ways_in",
        vec![
            case!("kubectl_by_kubeconfig_sees_the_shard", clients::kubectl_by_kubeconfig(&*fixture().await))
                .costs("kubectl, built for it"),
            case!("kubectl_in_cluster_sees_the_shard", clients::kubectl_in_cluster(&*fixture().await))
                .costs("kubectl, built for it")
                .unless(in_cluster::unavailable),
            case!("kube_rs_by_kubeconfig_sees_the_shard", clients::kube_rs_by_kubeconfig(&*fixture().await)),
            case!("kube_rs_in_cluster_sees_the_shard", clients::kube_rs_in_cluster(&*fixture().await))
                .unless(in_cluster::unavailable),
            case!("a_go_operator_in_cluster_does_its_work", clients::operators_in_cluster(&*fixture().await))
                .unless(in_cluster::unavailable),
            case!("a_wrong_token_is_answered_as_by_the_api_server", refusals::wrong_token(&*fixture().await)),
            case!("no_token_is_a_wrong_token", refusals::no_token(&*fixture().await)),
            case!("a_browsers_token_is_taken_as_by_the_api_server", refusals::subprotocol(&*fixture().await)),
            case!("another_accounts_token_does_what_that_account_may", tenant::does_what_it_may(&*fixture().await)),
            case!(
                "a_controller_that_serves_its_own_conversion_may_start",
                starting::before_its_conversion_answers(&*fixture().await)
            ),
            case!("what_is_open_to_others_is_warned_of", exposure::warned_of(&*fixture().await)),
        ],
    )
    .ends(|| FIXTURE.end())
}

static FIXTURE: Shared<World> = Shared::new();

async fn fixture() -> Arc<World> {
    FIXTURE.get(async || World::start().await).await
}

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

/// Lists what it sees, and says so, where this process is the client that a case starts.
pub(crate) fn be_a_client() -> bool {
    let is_client = std::env::args().nth(1).as_deref() == Some(clients::KUBE_RS);
    if is_client {
        Runtime::new().unwrap().block_on(clients::list_by_kube_rs());
    }
    is_client
}
