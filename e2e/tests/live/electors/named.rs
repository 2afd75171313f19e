//! A lock that does not look like one, in another namespace than the controller's: its Lease says who leads and when that was
//! renewed, and nothing more.

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
use ringside_e2e::audit::Requests;
use tokio::time::{interval, timeout};

use super::{
    fixture::{DEADLINE, Fixture, SERVICE_ACCOUNT, USER},
    life::{RING, Real, assert_silent},
};

const LOCK: &str = "bare-lock";

/// Where it is, as some controllers have it.
const ELSEWHERE: &str = "kube-system";

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

/// A controller that leads goes on doing so.
async fn renew(shard: &str, leases: &Api<Lease>) {
    let mut renewed = lease(shard);
    renewed.metadata.resource_version = leases.get(LOCK).await.unwrap().metadata.resource_version;
    let renewed = leases.replace(LOCK, &PostParams::default(), &renewed).await.unwrap();
    assert_eq!(renewed.spec.unwrap().holder_identity.as_deref(), Some(shard));
}

/// All shards lead by it whose proxies are told its name, and the API server hears nothing of that.
pub(crate) async fn all_lead(fixture: &Fixture) {
    let real = Real::within(fixture, ELSEWHERE, LOCK);
    let mut asked = Requests::of(fixture.control_plane.audit_log(), USER);
    let mut shards = Vec::new();
    for shard in ["named-0", "named-1"] {
        let is_told = ["--election-lock", LOCK, "--election-namespace", ELSEWHERE];
        let proxy = fixture.shard(shard, SERVICE_ACCOUNT, &is_told).await;
        let leases = Api::<Lease>::namespaced(proxy.client().await.unwrap(), ELSEWHERE);
        assert_eq!(leases.get_opt(LOCK).await.unwrap(), None, "it is there for the taking");
        leases.create(&PostParams::default(), &lease(shard)).await.unwrap();
        assert_eq!(real.holder().await, RING);
        shards.push((shard, leases, proxy));
    }
    let (led, made) = (Timestamp::now(), real.renewed().await);
    let renewing = async {
        let mut due = interval(RENEWS);
        while real.renewed().await == made {
            due.tick().await;
            for (shard, leases, _) in &shards {
                renew(shard, leases).await;
            }
        }
    };
    timeout(DEADLINE, renewing).await.expect("the ring renews the lock");
    assert_eq!(real.holder().await, RING);
    assert_silent(&mut asked, LOCK, shards.len(), led);
}
