//! What a controller meets that did not expect shards, as the rules in `cli/src/fit/rules.yaml` tell it: the fault, and the remedy.

mod git;
mod handed_on;
mod ports;
mod share;

use std::{path::PathBuf, sync::Arc, time::Duration};

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams},
};
use ringside_e2e::{
    case,
    control_plane::client_of,
    live::{Ability, Group, Shared},
    system::{Shard, System},
    website::Website,
    workload::Workload,
};
use ringside_ring::{RingLabels, ShardName};
use serde_json::Value;

use crate::planes::{Keeps, plane};

/// The ring and the namespace.
const NAME: &str = "before-you-shard";

/// Enough for each case to have objects of its own in each shard.
const OBJECTS: usize = 24;

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(60);

/// Two shards whose objects are settled, on a plane where a policy keeps the labels.
struct World {
    system: System,
    labels: RingLabels,
}

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "before_you_shard",
        vec![
            case!("each_replica_leads_and_decides_by_its_share_alone", share::decisions(&*fixture().await)),
            case!("a_lock_elsewhere_has_one_holder", share::lock_elsewhere(&*fixture().await)),
            case!("the_token_of_the_folder_is_good_for_the_proxy_alone", handed_on::token(&*fixture().await)),
            case!("the_address_and_the_ca_are_the_proxys", handed_on::address(&*fixture().await)),
            case!("two_appliers_of_the_rings_labels_write_for_ever", git::two_appliers(&*fixture().await))
                .asks_for(Ability::LabelPolicies),
            case!("a_taken_port_ends_the_proxy_before_it_takes_a_lease", ports::taken(&*fixture().await)),
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
        let keeps = Keeps::Both;
        let mut system = System::on(&plane(keeps).await, NAME, keeps.settings()).await.unwrap();
        let ring = system.start_ring().await.unwrap();
        for shard in ["shard-0", "shard-1"] {
            system.add_shard(shard).await.unwrap();
        }
        system.share_out(&Workload::idle("site", OBJECTS).within(NAME), DEADLINE).await.unwrap();
        Self { system, labels: RingLabels::of(&ring) }
    }

    /// The API server, past the proxies.
    fn client(&self) -> Client {
        self.system.control_plane().client()
    }

    /// The objects as the API server has them.
    fn websites(&self) -> Api<Website> {
        Api::namespaced(self.client(), NAME)
    }

    fn shards(&self) -> [&Shard; 2] {
        self.system.shards().collect::<Vec<_>>().try_into().unwrap_or_else(|_| panic!("there are two"))
    }

    /// The names of the objects of a shard, as the API server has them.
    async fn owned(&self, shard: &Shard) -> Vec<String> {
        let name: ShardName = shard.name().parse().unwrap();
        names(&self.websites(), &ListParams::default().labels(&self.labels.owned_by(&name))).await
    }

    fn kubeconfig(&self) -> PathBuf {
        self.system.control_plane().kubeconfig_path()
    }
}

/// What a controller sees through the proxy of its shard.
async fn through<K>(shard: &Shard) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client_of(&shard.kubeconfig()).await.unwrap(), NAME)
}

async fn names(websites: &Api<Website>, selected: &ListParams) -> Vec<String> {
    websites.list(selected).await.unwrap().iter().map(kube::ResourceExt::name_any).collect()
}

async fn merge(websites: &Api<Website>, name: &str, patch: Value) -> Website {
    websites.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}
