//! A controlled resource that joins a ring in use: at no moment are its objects hidden from all shards.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api, Client, Config, Resource as _, ResourceExt as _,
    api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use ringside_e2e::{
    system::{Settings, System},
    website::Website,
    workload::Workload,
};
use ringside_ring::{ClusterRing, cluster_ring::GroupResource};
use serde_json::json;

use super::fixture::DEADLINE;
use crate::planes::{Keeps, plane};

const OBJECTS: usize = 40;

pub(crate) async fn children_that_join_a_ring_are_never_hidden_from_all() {
    let settings = Settings { lease_duration: Duration::from_secs(30), ..Settings::default() };
    let mut system = System::on(&plane(Keeps::Both).await, "joining", settings).await.unwrap();
    let name = system.start_ring().await.unwrap();
    for shard in ["joining-0", "joining-1"] {
        system.add_shard(shard).await.unwrap();
    }
    system.share_out(&Workload::idle("site", OBJECTS).within(system.namespace()), DEADLINE).await.unwrap();
    let (admin, namespace) = (system.control_plane().client(), system.namespace());
    let websites: Api<Website> = Api::namespaced(admin.clone(), namespace);
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    for website in websites.list(&ListParams::default()).await.unwrap() {
        let owner = website.controller_owner_ref(&()).unwrap();
        let metadata = ObjectMeta {
            name: Some(format!("of-{}", website.name_any())),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        accounts
            .create(&PostParams::default(), &ServiceAccount { metadata, ..ServiceAccount::default() })
            .await
            .unwrap();
    }
    let rings: Api<ClusterRing> = Api::all(admin);
    let mut ring = rings.get(name.name()).await.unwrap();
    let joins = GroupResource { group: String::new(), resource: "serviceaccounts".to_owned() };
    ring.spec.resources[0].controlled_resources.push(joins);
    system.allow(&ring, &[namespace]).await.unwrap();
    let mut controllers = Vec::new();
    for shard in system.shards() {
        let config = Kubeconfig::read_from(shard.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        controllers.push(Api::<ServiceAccount>::namespaced(Client::try_from(config).unwrap(), namespace));
    }
    // Names that begin so, as others may be there.
    let seen = async || {
        let mut all = Vec::new();
        for accounts in &controllers {
            // While a proxy reads the ring again it answers nothing.
            let listed = accounts.list_metadata(&ListParams::default()).await.ok()?;
            all.push(listed.iter().filter(|account| account.name_any().starts_with("of-")).count());
        }
        Some(all)
    };
    assert_eq!(seen().await, Some(vec![OBJECTS; 2]), "it is not the ring's yet");
    let patch = Patch::Merge(json!({"spec": {"resources": ring.spec.resources}}));
    rings.patch(name.name(), &PatchParams::default(), &patch).await.unwrap();
    let begun = Instant::now();
    loop {
        if let Some(seen) = seen().await {
            let all: usize = seen.iter().sum();
            assert!(all >= OBJECTS, "{seen:?} of {OBJECTS} are seen");
            if all == OBJECTS {
                break;
            }
        }
        assert!(begun.elapsed() < DEADLINE, "they are not labelled");
    }
}
