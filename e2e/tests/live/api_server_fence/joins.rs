//! What joins a ring that is fenced already, a resource or a namespace: its objects belong to nobody until the fence is around
//! them too.

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    core::v1::{Namespace, Secret},
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use ringside_e2e::website::{Website, WebsiteSpec};
use ringside_ring::RingName;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::api_server_fence::fixture::{DEADLINE, Fixture, Writer, refused, websites};
use crate::planes::Keeps;

/// Enough that each of two shards has some: the chance that one has none is below one in 100,000.
const OBJECTS: usize = 20;

fn spec(resources: &[(&str, &str)]) -> Value {
    let resources = resources.iter().map(|(group, resource)| json!({"group": group, "resource": resource}));
    json!({"fence": "APIServer", "resources": resources.collect::<Vec<_>>()})
}

fn secrets(of: &Writer) -> Api<Secret> {
    Api::default_namespaced(of.client.clone())
}

fn touch(content: &str) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {"touched": content}}}))
}

/// The next object that has a shard now, and which.
async fn given_next<K: Resource>(
    fixture: &Fixture,
    changes: &mut (impl Stream<Item = kube::Result<WatchEvent<K>>> + Unpin),
) -> (K, String) {
    loop {
        let event = timeout(DEADLINE, changes.next()).await.expect("they are given to shards").unwrap().unwrap();
        if let WatchEvent::Modified(object) = event
            && let Some(shard) = fixture.shard_of(object.meta())
        {
            return (object, shard);
        }
    }
}

pub(crate) async fn what_joins_a_fenced_ring_is_given_to_nobody_before_the_fence_is_around_it() {
    let fixture = Fixture::on(Keeps::Webhook, "fence-joins", spec(&[("web.example.com", "websites")])).await;
    let (a, b) = (fixture.shard("a").await, fixture.shard("b").await);
    fixture.until_fenced("True").await;
    let site = fixture.website_of("a", "mine").await.name_any();
    let all: Api<Secret> = Api::default_namespaced(fixture.admin.clone());
    for index in 0..OBJECTS {
        let metadata = ObjectMeta { name: Some(format!("s-{index}")), ..ObjectMeta::default() };
        all.create(&PostParams::default(), &Secret { metadata, ..Secret::default() }).await.unwrap();
    }
    let parameters = PatchParams::default();
    for shard in [&a, &b] {
        // It is not the ring's yet.
        secrets(shard).patch("s-0", &parameters, &touch("before")).await.unwrap();
    }
    let from = all.list_metadata(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut changes = std::pin::pin!(all.watch(&WatchParams::default().timeout(290), &from).await.unwrap());
    fixture.apply_ring(spec(&[("web.example.com", "websites"), ("", "secrets")])).await;

    let policies: Api<ValidatingAdmissionPolicy> = Api::all(fixture.admin.clone());
    let policy = fixture.ring.parse::<RingName>().unwrap().made_for();
    let (mut given, shards) = ([0, 0], [("a", &b), ("b", &a)]);
    while given.iter().sum::<usize>() < OBJECTS {
        let (secret, owner) = given_next(&fixture, &mut changes).await;
        let (of, (_, other)) = shards.iter().enumerate().find(|(_, (shard, _))| *shard == owner).unwrap();
        given[of] += 1;
        // From the first moment on. Those that it refuses change nothing, and so are not shown.
        let late = secrets(other).patch(&secret.name_any(), &parameters, &touch("late")).await;
        refused("a write to what has just joined", late);
        // What was around the others was so all the time.
        let late = websites(&b.client).patch(&site, &parameters, &touch("late")).await;
        refused("a write to what was fenced before", late);
        if given.iter().sum::<usize>() == 1 {
            let mark = policies.get(&policy).await.unwrap().annotations().get("ringside.dev/in-place").cloned();
            assert!(mark.as_ref().is_some_and(|mark| mark.contains("secrets")), "{mark:?}");
        }
    }
    assert!(given.iter().all(|given| *given > 0), "{given:?}");
    fixture.until_fenced("True").await;
}

pub(crate) async fn a_namespace_that_joins_a_fenced_ring_waits_for_the_fence_as_well() {
    const FIRST: &str = "fence-namespace";
    const SECOND: &str = "fence-namespace-second";
    let selecting = |namespaces: &[&str]| {
        json!({"fence": "APIServer", "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}]}})
    };
    let fixture = Fixture::on(Keeps::Webhook, FIRST, selecting(&[FIRST])).await;
    let (a, b) = (fixture.shard("a").await, fixture.shard("b").await);
    let second = Namespace {
        metadata: ObjectMeta { name: Some(SECOND.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    Api::<Namespace>::all(fixture.admin.clone()).create(&PostParams::default(), &second).await.unwrap();
    fixture.until_fenced("True").await;
    let there = |of: &Writer| Api::<Website>::namespaced(of.client.clone(), SECOND);
    let all: Api<Website> = Api::namespaced(fixture.admin.clone(), SECOND);
    for index in 0..OBJECTS {
        let site = Website::new(&format!("site-{index}"), WebsiteSpec::default());
        all.create(&PostParams::default(), &site).await.unwrap();
    }
    let parameters = PatchParams::default();
    let from = all.list_metadata(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut changes = std::pin::pin!(all.watch(&WatchParams::default().timeout(290), &from).await.unwrap());
    fixture.apply_ring(selecting(&[FIRST, SECOND])).await;
    let (mut given, shards) = ([0, 0], [("a", &b), ("b", &a)]);
    while given.iter().sum::<usize>() < OBJECTS {
        let (site, owner) = given_next(&fixture, &mut changes).await;
        let (of, (_, other)) = shards.iter().enumerate().find(|(_, (shard, _))| *shard == owner).unwrap();
        given[of] += 1;
        // From the first moment on.
        refused(
            "a write in a namespace that has just joined",
            there(other).patch(&site.name_any(), &parameters, &touch("late")).await,
        );
    }
    assert!(given.iter().all(|given| *given > 0), "{given:?}");
    fixture.until_fenced("True").await;
}
