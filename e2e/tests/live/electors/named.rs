//! A controller whose lock does not look like one: its Lease says who leads and when that was renewed, and nothing more.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use ringside_e2e::{audit::Requests, proxy::Proxy};
use tokio::time::{Instant, interval};

use super::{
    fixture::{Fixture, NAMESPACE, SERVICE_ACCOUNT, USER},
    life::{HOLDS, RING, Real, assert_little_began, assert_only_renewed},
};

const LOCK: &str = "bare-lock";

/// How long the ring takes a lock to last that does not say so.
const LASTS: Duration = Duration::from_secs(15);

/// How often a controller renews its lock: so often that its renewals could not be taken for the ring's.
const RENEWS: Duration = Duration::from_secs(2);

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

/// A controller that leads goes on doing so.
async fn renew(shard: &str, leases: &Api<Lease>) {
    let mut renewed = lease(shard);
    renewed.metadata.resource_version = leases.get(LOCK).await.unwrap().metadata.resource_version;
    let renewed = leases.replace(LOCK, &PostParams::default(), &renewed).await.unwrap();
    assert_eq!(renewed.spec.unwrap().holder_identity.as_deref(), Some(shard));
}

/// All shards lead by it whose proxies are told its name, and the API server hears nothing of that; no other does.
pub(crate) async fn all_lead(fixture: &Fixture) {
    let is_told = ["--election-lock", LOCK];
    let real = Real::of(fixture, LOCK);
    let mut asked = Requests::of(fixture.control_plane.audit_log(), USER);
    let mut leases = Vec::new();
    for shard in ["named-0", "named-1"] {
        let proxy = fixture.shard_of(shard, SERVICE_ACCOUNT, &is_told).await;
        let api = through(&proxy).await;
        assert_eq!(api.get_opt(LOCK).await.unwrap(), None, "it is there for the taking");
        api.create(&PostParams::default(), &lease(shard)).await.unwrap();
        assert_eq!(real.holder().await, RING);
        leases.push((shard, api, proxy));
    }
    assert_little_began(&mut asked, LOCK, ("named", leases.len()));

    let (mut due, until) = (interval(RENEWS), Instant::now() + HOLDS);
    while Instant::now() < until {
        due.tick().await;
        for (shard, api, _) in &leases {
            renew(shard, api).await;
        }
    }
    assert_eq!(real.holder().await, RING);
    assert_only_renewed(&mut asked, LOCK, LASTS);

    let is_not_told = fixture.shard_of("named-2", SERVICE_ACCOUNT, &[]).await;
    let created = through(&is_not_told).await.create(&PostParams::default(), &lease("named-2")).await;
    let kube::Error::Api(status) = created.unwrap_err() else { panic!("it was answered otherwise") };
    assert!(status.is_already_exists(), "{status:?}");
}
