//! Each way in to the proxy, taken by real clients that have nothing else: by kubeconfig alone, by the service account's
//! folder alone, and with another account's token.

mod clients;
mod tenant;

use std::{sync::Arc, time::Duration};

use ringside_e2e::{
    case, in_cluster,
    live::{Group, Shared},
    system::{Settings, System, WayIn},
    workload::Workload,
};
use ringside_ring::{RingLabels, ShardName};
use tokio::runtime::Runtime;

use crate::planes::{Keeps, plane};

const OBJECTS: usize = 20;

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(60);

/// A case with the settled shards.
macro_rules! shared {
    ($run:path) => {
        case!(stringify!($run), $run(&*fixture().await))
    };
}

/// The cases.
pub(crate) fn group() -> Group {
    let cases = vec![
        shared!(clients::kube_rs_by_kubeconfig_sees_the_shard),
        shared!(clients::kube_rs_in_cluster_sees_the_shard).unless(in_cluster::unavailable),
        shared!(clients::a_go_operator_in_cluster_does_its_work).unless(in_cluster::unavailable),
        shared!(tenant::another_accounts_token_does_what_that_account_may),
    ];
    Group::new("ways_in", cases).ends(|| FIXTURE.end())
}

static FIXTURE: Shared<System> = Shared::new();

/// Two shards whose objects are settled, in a namespace of their own.
async fn fixture() -> Arc<System> {
    let start = async || {
        let way_in = if in_cluster::unavailable().is_none() { WayIn::InCluster } else { WayIn::Kubeconfig };
        let settings = Settings { way_in, lease_duration: Duration::from_secs(30), ..Settings::default() };
        let mut system = System::on(&plane(Keeps::Both).await, "ways-in", settings).await.unwrap();
        system.start_ring().await.unwrap();
        for shard in ["ways-in-0", "ways-in-1"] {
            system.add_shard(shard).await.unwrap();
        }
        system.share_out(&Workload::idle("site", OBJECTS).within(system.namespace()), DEADLINE).await.unwrap();
        system
    };
    FIXTURE.get(start).await
}

/// What selects the objects of the first shard.
fn owned(system: &System) -> String {
    let name: ShardName = system.shards().next().unwrap().name().parse().unwrap();
    RingLabels::of(&"ways-in".parse().unwrap()).owned_by(&name)
}

/// Lists what it sees, and says so, where this process is the client that a case starts.
pub(crate) fn be_a_client() -> bool {
    let is_client = std::env::args().nth(1).as_deref() == Some(clients::KUBE_RS);
    if is_client {
        Runtime::new().unwrap().block_on(clients::list_by_kube_rs());
    }
    is_client
}
