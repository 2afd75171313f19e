//! What joins a ring that is fenced already, a resource or a namespace: its objects belong to nobody until the fence is around
//! them too.

use std::fmt::Debug;

use futures::StreamExt as _;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    core::v1::{Namespace, Secret},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ObjectMeta, PatchParams, PostParams, WatchEvent, WatchParams},
};
use ringside_e2e::website::{Website, WebsiteSpec};
use ringside_ring::RingName;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::api_server_fence::fixture::{DEADLINE, Fixture, refused, touch, websites};
use crate::planes::Keeps;

/// Enough that each of two shards has some: the chance that one has none is below one in 100,000.
const OBJECTS: usize = 20;

/// Creates objects, lets them join, and writes to each as the other shard from the moment on in which it has an owner.
/// `at_each` runs after that.
async fn join<K>(
    fixture: &Fixture,
    (a, b): (&Client, &Client),
    objects: impl Fn(&Client) -> Api<K>,
    object: impl Fn(&str) -> K,
    spec: Value,
    at_each: impl AsyncFn(),
) where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let all = objects(&fixture.admin);
    for index in 0..OBJECTS {
        all.create(&PostParams::default(), &object(&format!("joins-{index}"))).await.unwrap();
    }
    // They are not the ring's yet.
    for shard in [a, b] {
        objects(shard).patch("joins-0", &PatchParams::default(), &touch()).await.unwrap();
    }
    let from = all.list_metadata(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut changes = std::pin::pin!(all.watch(&WatchParams::default().timeout(290), &from).await.unwrap());
    fixture.apply_ring(spec).await;
    let (mut of_a, mut of_b) = (0, 0);
    while of_a + of_b < OBJECTS {
        let event = timeout(DEADLINE, changes.next()).await.expect("they are given to shards").unwrap().unwrap();
        let WatchEvent::Modified(object) = event else { continue };
        let Some(owner) = fixture.shard_of(object.meta()) else { continue };
        let (count, other) = if owner == "a" { (&mut of_a, b) } else { (&mut of_b, a) };
        *count += 1;
        // Those that are refused change nothing, and so are not shown.
        let late = objects(other).patch(&object.name_any(), &PatchParams::default(), &touch()).await;
        refused("a write to what has just joined", late);
        at_each().await;
    }
    assert!(of_a > 0 && of_b > 0, "{of_a} and {of_b}");
    fixture.until_fenced("True").await;
}

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
    let secret = |name: &str| Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..Secret::default()
    };
    let both = spec(&[("web.example.com", "websites"), ("", "secrets")]);
    let secrets = |client: &Client| Api::<Secret>::default_namespaced(client.clone());
    join(&fixture, (&a, &b), secrets, secret, both, async || {
        // What was around the others was so all the time.
        let late = websites(&b).patch(&site, &PatchParams::default(), &touch()).await;
        refused("a write to what was fenced before", late);
        let mark = policies.get(&policy).await.unwrap().annotations().get("ringside.dev/in-place").cloned();
        assert!(mark.as_ref().is_some_and(|mark| mark.contains("secrets")), "{mark:?}");
    })
    .await;
}

pub(crate) async fn a_namespace_that_joins_a_fenced_ring_waits_for_the_fence_as_well() {
    const FIRST: &str = "fence-namespace";
    const SECOND: &str = "fence-namespace-second";
    let selecting = |namespaces: &[&str]| {
        json!({"fence": "APIServer", "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}]}})
    };
    let (fixture, a, b) = Fixture::on(Keeps::Webhook, FIRST, selecting(&[FIRST])).await.with_shards().await;
    let second: Namespace = serde_json::from_value(json!({"metadata": {"name": SECOND}})).unwrap();
    Api::<Namespace>::all(fixture.admin.clone()).create(&PostParams::default(), &second).await.unwrap();
    let sites = |client: &Client| Api::<Website>::namespaced(client.clone(), SECOND);
    let site = |name: &str| Website::new(name, WebsiteSpec::default());
    join(&fixture, (&a, &b), sites, site, selecting(&[FIRST, SECOND]), async || ()).await;
}
