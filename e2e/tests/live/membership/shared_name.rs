//! Two Pods of one name in two namespaces, as of a StatefulSet that was deployed twice.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, ServiceAccount},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use ringside_e2e::{eventually::eventually, system::NAMESPACE, website::Website};
use ringside_ring::{
    ClusterRing,
    labels::{LEASE_ADMITTED, LEASE_INSTANCE},
};
use serde_json::json;

use super::{
    fixture::{DEADLINE, Fixture, SHORT},
    shard::Shard,
};

const RING: &str = "shared-name";
const NAME: &str = "s-0";
const ELSEWHERE: &str = "shared-name-again";

/// The second works on nothing, however long it holds its Lease; it takes the place of the first when that one is gone.
pub(crate) async fn one_works(fixture: &Fixture) {
    let (ring, client, url) = (fixture.ring(RING).await, fixture.client(), fixture.system.control_plane().url());
    let metadata = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata: metadata(ELSEWHERE), ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let account = ServiceAccount { metadata: metadata("website-controller"), ..ServiceAccount::default() };
    Api::namespaced(client.clone(), ELSEWHERE).create(&PostParams::default(), &account).await.unwrap();
    let rings: Api<ClusterRing> = Api::all(client.clone());
    let of_ring = rings.get(RING).await.unwrap();
    fixture.system.allow(&of_ring, &[NAMESPACE, ELSEWHERE]).await.unwrap();

    let first = fixture.begin_in(NAMESPACE, &ring, NAME, SHORT, (&url, None)).await;
    first.until_ready().await.unwrap();
    let websites: Api<Website> = Api::namespaced(client.clone(), RING);
    let website: Website = serde_json::from_value(json!({"metadata": {"name": "site"}, "spec": {}})).unwrap();
    websites.create(&PostParams::default(), &website).await.unwrap();
    let second = fixture.begin_in(ELSEWHERE, &ring, NAME, SHORT, (&url, None)).await;
    eventually("the second serves its controller", DEADLINE, || async {
        if second.kubeconfig().exists() { Ok(()) } else { Err("there is no kubeconfig".to_owned()) }
    })
    .await
    .unwrap();
    let second = Shard::new(NAME, second);
    let controller = second.controller_of_ring();
    let leases = |namespace: &str| Api::<Lease>::namespaced(client.clone(), namespace);
    eventually("the second is told that the first is admitted, and the ring tells people", DEADLINE, || async {
        let first = leases(NAMESPACE).get(NAME).await.map_err(|error| error.to_string())?;
        let second = leases(ELSEWHERE).get(NAME).await.map_err(|error| error.to_string())?;
        let status = rings.get(RING).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let told = status.conditions.into_iter().find(|it| it.type_ == "ShardsAdmitted");
        let admitted = first.annotations().get(LEASE_INSTANCE);
        let are_told = [&first, &second].map(|lease| lease.annotations().get(LEASE_ADMITTED));
        let is_named = told.as_ref().is_some_and(|it| it.reason == "SharedName" && it.message.contains(ELSEWHERE));
        if are_told == [admitted; 2] && is_named { Ok(()) } else { Err(format!("{are_told:?} {told:?}")) }
    })
    .await
    .unwrap();
    eventually("the object is the first one's", DEADLINE, || async {
        let site = websites.get("site").await.map_err(|error| error.to_string())?;
        if site.labels().values().any(|shard| shard == NAME) { Ok(()) } else { Err(format!("{:?}", site.labels())) }
    })
    .await
    .unwrap();
    // It has renewed its Lease a few times, and would be at work.
    tokio::time::sleep(2 * SHORT).await;
    assert!(second.says_held().await && !second.is_ready().await);
    assert!(first.is_ready().await);
    let answered = controller.served();
    assert!(answered.is_empty(), "the second was answered at {answered:?}");

    first.process.kill().unwrap();
    drop(first);
    leases(NAMESPACE).delete(NAME, &DeleteParams::default()).await.unwrap();
    second.proxy.until_ready().await.unwrap();
    eventually("the second works", DEADLINE, || async {
        if controller.served().is_empty() { Err("it is not answered".to_owned()) } else { Ok(()) }
    })
    .await
    .unwrap();
}
