//! What the sharder asks of the API server while a ring is at rest, and others are not: nothing, however many objects it has.

use std::{collections::BTreeSet, ops::Range, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ListParams, ObjectMeta, PostParams},
};
use ringside_e2e::{
    audit::{Request, Requests},
    case,
    eventually::eventually,
    live::Group,
    plain_shard::{PlainShard, join_all},
    ring_status::until_available,
    system::{NAMESPACE, RING, SHARDER_USER, Settings, System},
};
use ringside_ring::{ClusterRing, RingLabels, RingName};
use serde_json::json;

/// The cases.
pub(crate) fn group() -> Group {
    let costs = "thousands of objects and half a minute of silence";
    Group::new(
        "at_rest",
        vec![
            case!("ring_at_rest_causes_no_request", rest(300, 2, Duration::ZERO)).works(),
            case!("large_ring_at_rest_causes_no_request_beside_many", rest(3_000, 50, SILENCE)).alone().costs(costs),
        ],
    )
}

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(120);
/// The longest that there is: no shard is late on a busy machine.
const LEASE: Duration = Duration::from_secs(120);
/// Requests at once while objects are created.
const CREATES: usize = 8;
/// What a shard that joins costs its own ring at most: its Lease's state, the ring's status and Events, what has no owner, and
/// the look at all objects.
const OF_ONE_RING: usize = 12;
/// How often shards join another ring while nothing may be asked.
const JOINS: usize = 3;
/// How long nothing at all happens before each of them, where what is asked now and then is to be found.
const SILENCE: Duration = Duration::from_secs(10);

fn other(number: usize) -> RingName {
    format!("ring-{number:02}").parse().unwrap()
}

/// Creates objects, and waits until each of them has a shard.
async fn create(system: &System, numbers: Range<usize>, labels: &RingLabels) {
    let (api, all): (Api<ConfigMap>, _) = (Api::namespaced(system.control_plane().client(), NAMESPACE), numbers.end);
    let creates = stream::iter(numbers).map(|number| {
        let metadata = ObjectMeta { name: Some(format!("at-rest-{number}")), ..ObjectMeta::default() };
        let (api, object) = (api.clone(), ConfigMap { metadata, ..ConfigMap::default() });
        async move { api.create(&PostParams::default(), &object).await.map(drop) }
    });
    creates.buffer_unordered(CREATES).try_collect::<()>().await.unwrap();
    eventually("all objects have a shard", DEADLINE, || async {
        let owned = api.list_metadata(&ListParams::default().labels(&labels.shard)).await;
        let owned = owned.map_err(|error| error.to_string())?.items.len();
        if owned >= all { Ok(()) } else { Err(format!("{owned} of {all}")) }
    })
    .await
    .unwrap();
}

/// A shard joins another ring, which has this one then, again and again: all that is asked is about that ring.
async fn rest(objects: usize, others: usize, silence: Duration) {
    let mut system = System::start(Settings { audit_requests: true, ..Settings::default() }).await.unwrap();
    system.start_sharders(1).await.unwrap();
    let client = system.control_plane().client();
    let rings: Api<ClusterRing> = Api::all(client.clone());
    let ours: RingName = RING.parse().unwrap();
    for name in (0..others).map(other).chain([ours.clone()]) {
        // Of the others no namespace is.
        let selected = if name == ours { json!({}) } else { json!({"matchLabels": {"team": name.name()}}) };
        let maps = json!({"resource": "configmaps", "controlledResources": [{"resource": "secrets"}]});
        let spec = json!({"resources": [maps], "namespaceSelector": selected});
        let ring = ClusterRing::new(name.name(), serde_json::from_value(spec).unwrap());
        system.allow(&ring, &[NAMESPACE]).await.unwrap();
        rings.create(&PostParams::default(), &ring).await.unwrap();
    }
    let mut shards = Vec::new();
    for ring in (1..others).map(other).chain([ours.clone()]) {
        let names = (0..3).map(|shard| format!("{ring}-shard-{shard}").parse().unwrap());
        shards.extend(join_all(&client, NAMESPACE, &ring, names, LEASE).await.unwrap());
    }
    system.until_counted_are(3, DEADLINE).await.unwrap();
    create(&system, 0..objects, &RingLabels::of(&ours)).await;

    let mut asked = Requests::of(system.control_plane().audit_log(), SHARDER_USER);
    let (joined, mut members) = (other(0), Vec::new());
    let requests_of_a_join = async || {
        tokio::time::sleep(silence).await;
        let name = format!("{joined}-shard-{}", members.len()).parse().unwrap();
        members.push(PlainShard::join(&client, NAMESPACE, &joined, &name, LEASE).await.unwrap());
        until_available(&client, &joined, members.len(), DEADLINE).await.unwrap();
        let mut found = asked.since().unwrap();
        // The election goes on, and the probes; watches end and begin again.
        found.retain(|request| {
            let is_probe = request.name == "ringside-sharder" || request.uri.contains("dryRun=All");
            let goes_on = request.verb == "watch" && !request.uri.contains("sendInitialEvents=true");
            !is_probe && !goes_on
        });
        found
    };
    let mut names: BTreeSet<_> = (1..others).map(|number| other(number).name().to_owned()).collect();
    names.insert(RING.to_owned());
    let is_of_others = |request: &Request| {
        let is_of_objects = ["configmaps", "secrets"].contains(&&*request.resource);
        is_of_objects && !request.uri.contains(joined.name()) || names.iter().any(|name| request.uri.contains(name))
    };
    let at_rest = until_quiet(requests_of_a_join, is_of_others);
    let found = tokio::time::timeout(DEADLINE * 2, at_rest).await.expect("what was begun has ended");
    println!("{JOINS} shards joined: {found:#?}");
    assert!((1..=JOINS * OF_ONE_RING).contains(&found.len()), "{} requests", found.len());
}

/// Lets shards join until nothing else is asked while [`JOINS`] of them do: what was begun before ends some time.
async fn until_quiet(
    mut requests_of_a_join: impl AsyncFnMut() -> Vec<Request>,
    is_of_others: impl Fn(&Request) -> bool,
) -> Vec<Request> {
    let (mut found, mut quiet) = (Vec::new(), 0);
    while quiet < JOINS {
        let asked = requests_of_a_join().await;
        if asked.iter().any(&is_of_others) {
            (found, quiet) = (Vec::new(), 0);
        } else {
            quiet += 1;
            found.extend(asked);
        }
    }
    found
}
