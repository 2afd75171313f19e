//! Two Pods of one name in two namespaces, as of a StatefulSet that was deployed twice.

use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Namespace, ServiceAccount},
    },
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    ring_status::{condition, status},
    system::NAMESPACE,
};
use ringside_ring::{
    ClusterRing,
    labels::{LEASE_ADMITTED, LEASE_INSTANCE},
};

use super::{
    fixture::{DEADLINE, Fixture},
    shard::Shard,
};

const RING: &str = "shared-name";
const NAME: &str = "s-0";
const ELSEWHERE: &str = "shared-name-again";

/// The second works on nothing, however long it holds its Lease; it takes the place of the first when that one is gone.
pub(crate) async fn one_works(fixture: &Fixture) {
    let (ring, client, url) = (fixture.ring(RING).await, fixture.client(), fixture.url());
    let metadata = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata: metadata(ELSEWHERE), ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let account = ServiceAccount { metadata: metadata("website-controller"), ..ServiceAccount::default() };
    Api::namespaced(client.clone(), ELSEWHERE).create(&PostParams::default(), &account).await.unwrap();
    let rings: Api<ClusterRing> = Api::all(client.clone());
    let of_ring = rings.get(RING).await.unwrap();
    fixture.system.allow(&of_ring, &[NAMESPACE, ELSEWHERE]).await.unwrap();

    let first = fixture.begin(NAMESPACE, &ring, NAME, &url, None).await;
    first.until_ready().await.unwrap();
    let second = fixture.begin(ELSEWHERE, &ring, NAME, &url, None).await;
    eventually("the second serves its controller", DEADLINE, || async {
        if second.kubeconfig().exists() { Ok(()) } else { Err("there is no kubeconfig".to_owned()) }
    })
    .await
    .unwrap();
    let second = Shard::new(second);
    let controller = second.controller_of_ring();
    let leases = |namespace: &str| Api::<Lease>::namespaced(client.clone(), namespace);
    eventually("the second is told that the first is admitted, and the ring tells people", DEADLINE, || async {
        let first = leases(NAMESPACE).get(NAME).await.map_err(|error| error.to_string())?;
        let second = leases(ELSEWHERE).get(NAME).await.map_err(|error| error.to_string())?;
        let status = status(&client, &ring).await?;
        let told = condition(&status, "ShardsAdmitted").ok();
        let admitted = first.annotations().get(LEASE_INSTANCE);
        let are_told = [&first, &second].map(|lease| lease.annotations().get(LEASE_ADMITTED));
        let is_named = told.as_ref().is_some_and(|it| it.reason == "SharedName" && it.message.contains(ELSEWHERE));
        if are_told == [admitted; 2] && is_named { Ok(()) } else { Err(format!("{are_told:?} {told:?}")) }
    })
    .await
    .unwrap();
    // It renews its Lease a few times, and would be at work.
    for _ in 0..3 {
        let renewed = async || leases(ELSEWHERE).get(NAME).await.unwrap().spec.unwrap().renew_time;
        let before = renewed().await;
        eventually("the second renews its Lease", DEADLINE, || async {
            let now = renewed().await;
            if now == before { Err(format!("{now:?}")) } else { Ok(()) }
        })
        .await
        .unwrap();
    }
    assert!(second.says_held().await && !second.proxy.is_ready().await);
    assert!(first.is_ready().await);
    assert_eq!(controller.served_since(Timestamp::MIN), None, "the second was answered");

    first.process.kill().unwrap();
    drop(first);
    leases(NAMESPACE).delete(NAME, &DeleteParams::default()).await.unwrap();
    second.proxy.until_ready().await.unwrap();
    eventually("the second works", DEADLINE, || async {
        controller.served_since(Timestamp::MIN).ok_or("it is not answered".to_owned())
    })
    .await
    .unwrap();
}
