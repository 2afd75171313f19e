//! A controller whose lock does not look like one: its Lease says who leads and when that was renewed, and nothing more.

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use ringside_e2e::proxy::Proxy;

use super::{
    ground::{Ground, NAMESPACE, SERVICE_ACCOUNT},
    life::{RING, Real},
};

const LOCK: &str = "bare-lock";

fn lease(holder: &str) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    let metadata = ObjectMeta { name: Some(LOCK.to_owned()), ..ObjectMeta::default() };
    Lease { metadata, spec: Some(spec) }
}

async fn through(proxy: &Proxy) -> Api<Lease> {
    Api::namespaced(proxy.client().await.unwrap(), NAMESPACE)
}

/// All shards lead by it whose proxies are told its name, and no other does.
pub(crate) async fn all_lead(ground: &Ground) {
    let is_told = ["--election-lock", LOCK];
    let real = Real::of(ground, LOCK);
    let mut leases = Vec::new();
    for shard in ["named-0", "named-1"] {
        let proxy = ground.shard_of(shard, SERVICE_ACCOUNT, &is_told).await;
        let api = through(&proxy).await;
        assert_eq!(api.get_opt(LOCK).await.unwrap(), None, "it is there for the taking");
        api.create(&PostParams::default(), &lease(shard)).await.unwrap();
        assert_eq!(real.holder().await, RING);
        leases.push((shard, api, proxy));
    }
    for (shard, api, _) in &leases {
        let mut renewed = lease(shard);
        renewed.metadata.resource_version = api.get(LOCK).await.unwrap().metadata.resource_version;
        let renewed = api.replace(LOCK, &PostParams::default(), &renewed).await.unwrap();
        assert_eq!(renewed.spec.unwrap().holder_identity.as_deref(), Some(*shard));
    }
    assert_eq!(real.holder().await, RING);
    let is_not_told = ground.shard_of("named-2", SERVICE_ACCOUNT, &[]).await;
    let created = through(&is_not_told).await.create(&PostParams::default(), &lease("named-2")).await;
    let kube::Error::Api(status) = created.unwrap_err() else { panic!("it was answered otherwise") };
    assert!(status.is_already_exists(), "{status:?}");
}
