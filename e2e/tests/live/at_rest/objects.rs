//! Requests do not depend on the number of objects.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ListParams, ObjectMeta, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    plain_shard::join_all,
    system::{NAMESPACE, RING, Settings, System},
};
use ringside_ring::{ClusterRing, RingLabels, RingName};
use serde_json::json;

use crate::at_rest::{DEADLINE, requests, table};

/// Until what was under way has ended.
const PAUSE: Duration = Duration::from_secs(5);
const COUNTED: Duration = Duration::from_secs(15);
/// Requests at once while objects are created.
const CREATES: usize = 8;
/// What may be more by chance, as a watch that ends and begins again.
const CHANCE: usize = 8;

async fn create(system: &System, numbers: std::ops::Range<usize>) {
    let api: Api<ConfigMap> = Api::namespaced(system.control_plane().client(), NAMESPACE);
    let creates = stream::iter(numbers).map(|i| {
        let (api, name) = (api.clone(), format!("at-rest-{i}"));
        let object =
            ConfigMap { metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() }, ..ConfigMap::default() };
        async move { api.create(&PostParams::default(), &object).await.map(drop) }
    });
    creates.buffer_unordered(CREATES).try_collect::<()>().await.unwrap();
}

/// Waits until so many objects have a shard.
async fn until_owned(system: &System, labels: &RingLabels, objects: usize) {
    let api: Api<ConfigMap> = Api::namespaced(system.control_plane().client(), NAMESPACE);
    eventually("all objects have a shard", DEADLINE, || async {
        let owned = api.list_metadata(&ListParams::default().labels(&labels.shard)).await;
        let owned = owned.map_err(|error| error.to_string())?.items.len();
        if owned >= objects { Ok(()) } else { Err(format!("{owned} of {objects}")) }
    })
    .await
    .unwrap();
}

pub(crate) async fn requests_at_rest_do_not_depend_on_the_number_of_objects() {
    let settings = Settings { audit_requests: true, ..Settings::default() };
    let mut system = System::start(settings).await.unwrap();
    system.start_sharders(1).await.unwrap();
    let client = system.control_plane().client();
    let spec = json!({"resources": [{"group": "", "resource": "configmaps", "controlledResources": [{"group": "", "resource": "secrets"}]}]});
    let ring = ClusterRing::new(RING, serde_json::from_value(spec).unwrap());
    Api::<ClusterRing>::all(client.clone()).create(&PostParams::default(), &ring).await.unwrap();
    let name: RingName = RING.parse().unwrap();
    let labels = RingLabels::of(&name);
    let shards = (0..3).map(|i| format!("rest-{i}").parse().unwrap());
    let _shards = join_all(&client, NAMESPACE, &name, shards, Duration::from_secs(60)).await.unwrap();
    system.until_counted_are(3, DEADLINE).await.unwrap();
    let mut asked = requests(&system);
    let mut counts = Vec::new();
    let mut there = 0;
    for objects in [100, 3_000] {
        create(&system, there..objects).await;
        there = objects;
        until_owned(&system, &labels, objects).await;
        tokio::time::sleep(PAUSE).await;
        asked.since().unwrap();
        let start = Instant::now();
        tokio::time::sleep(COUNTED).await;
        let found = asked.since().unwrap();
        eprintln!("{objects} objects: {} requests in {:?}: {:#?}", found.len(), start.elapsed(), table(&found));
        let of_objects = found.iter().filter(|request| ["configmaps", "secrets"].contains(&&*request.resource)).count();
        // The Lease is renewed at its own times.
        counts.push((of_objects, found.iter().filter(|request| request.resource != "leases").count()));
    }
    assert_eq!(counts[1].0, 0, "objects are asked for at rest");
    assert!(counts[1].1 <= counts[0].1 + CHANCE, "requests for objects, and all: {counts:?}");
}
