//! A resource that joins a ring that is fenced already: its objects belong to no shard until the fence is around them
//! too.

use futures::StreamExt as _;
use k8s_openapi::api::{admissionregistration::v1::ValidatingAdmissionPolicy, core::v1::Secret};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ObjectMeta, PatchParams, PostParams, WatchEvent, WatchParams},
};
use ringside_ring::RingName;
use serde_json::json;
use tokio::time::timeout;

use crate::api_server_fence::fixture::{DEADLINE, Fixture, refused, touch, websites};
use crate::planes::Keeps;

/// Enough that each of two shards has some: the chance that one has none is below one in 100,000.
const OBJECTS: usize = 20;

pub(crate) async fn what_joins_a_fenced_ring_is_given_to_nobody_before_the_fence_is_around_it() {
    let spec = |resources: &[(&str, &str)]| {
        let resources = resources.iter().map(|(group, resource)| json!({"group": group, "resource": resource}));
        json!({"fence": "APIServer", "resources": resources.collect::<Vec<_>>()})
    };
    let fixture = Fixture::on(Keeps::Webhook, "fence-joins", spec(&[("web.example.com", "websites")])).await;
    let (fixture, a, b) = fixture.with_shards().await;
    let site = fixture.website_of("a").await.name_any();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(fixture.admin.clone());
    let policy = fixture.ring.parse::<RingName>().unwrap().made_for();
    let all: Api<Secret> = Api::default_namespaced(fixture.admin.clone());
    for index in 0..OBJECTS {
        let metadata = ObjectMeta { name: Some(format!("joins-{index}")), ..ObjectMeta::default() };
        all.create(&PostParams::default(), &Secret { metadata, ..Secret::default() }).await.unwrap();
    }
    let parameters = PatchParams::default();
    let write = async |by: &Client, name: &str| {
        Api::<Secret>::default_namespaced(by.clone()).patch(name, &parameters, &touch()).await
    };
    for shard in [&a, &b] {
        // It is not the ring's yet.
        write(shard, "joins-0").await.unwrap();
    }
    let from = all.list_metadata(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut changes = std::pin::pin!(all.watch(&WatchParams::default().timeout(290), &from).await.unwrap());
    fixture.apply_ring(spec(&[("web.example.com", "websites"), ("", "secrets")])).await;

    let (mut of_a, mut of_b) = (0, 0);
    while of_a + of_b < OBJECTS {
        let event = timeout(DEADLINE, changes.next()).await.expect("they are given to shards").unwrap().unwrap();
        let WatchEvent::Modified(secret) = event else { continue };
        let Some(owner) = fixture.shard_of(&secret.metadata) else { continue };
        let (count, other) = if owner == "a" { (&mut of_a, &b) } else { (&mut of_b, &a) };
        *count += 1;
        // From the first moment on. Those that are refused change nothing, and so are not shown.
        refused("a write to what has just joined", write(other, &secret.name_any()).await);
        // What was around the others was so all the time.
        let late = websites(&b).patch(&site, &parameters, &touch()).await;
        refused("a write to what was fenced before", late);
        let mark = policies.get(&policy).await.unwrap().annotations().get("ringside.dev/in-place").cloned();
        assert!(mark.as_ref().is_some_and(|mark| mark.contains("secrets")), "{mark:?}");
    }
    assert!(of_a > 0 && of_b > 0, "{of_a} and {of_b}");
    fixture.until_fenced("True").await;
}
