//! Calls of the webhook that fail in a moment, and nobody notices: children that come in it have no label.

use std::{net::SocketAddr, time::Duration};

use k8s_openapi::{
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::ConfigMap},
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use ringside_e2e::{
    eventually::{eventually, in_time},
    system::{NAMESPACE, Settings, metrics},
};
use ringside_ring::{ClusterRing, RingName};
use tokio::time::Instant;

use crate::webhook::fixture::{DEADLINE, Fixture};

/// As many as have no label at first.
const CHILDREN: usize = 20;
/// What is promised, and an allowance for the machine: the last pause that their proxies make is as long as the first is away.
const BOUND: Duration = Duration::from_secs(5);
const RING: &str = "websites";
/// How long the sharder looks for such children itself (docs/dev/limits.md), and the second in which times are told.
const NEWS: SignedDuration = SignedDuration::from_secs(12);
/// Where nobody listens.
const NOBODY: u16 = 9;

pub(crate) async fn children_that_came_in_a_moment_without_the_webhook_have_their_labels_at_once() {
    let fixture = Fixture::start(Settings { lines: true, ..Settings::default() }).await;
    for _ in 0..CHILDREN {
        fixture.create().await;
    }
    fixture.until_assigned(DEADLINE).await;
    let children: Api<ConfigMap> = Api::namespaced(fixture.client(), NAMESPACE);
    let with = ListParams::default().labels(&fixture.labels.shard);
    let websites = fixture.websites().list_metadata(&ListParams::default()).await.unwrap().items.len();
    let there = async |selected: &ListParams| match children.list_metadata(selected).await.unwrap().items.len() {
        all if all == websites => Ok(()),
        some => Err(format!("{some} of {websites}")),
    };
    let any = ListParams::default().fields("metadata.name!=kube-root-ca.crt");
    eventually("each object has its child", DEADLINE, || there(&with)).await.unwrap();

    eventually("the sharder looks for none itself", DEADLINE, || trusts_webhook(&fixture)).await.unwrap();
    // Before the webhook was trusted there may have been one.
    let before = labelled_by_proxies(&fixture).await;
    let away = Instant::now();
    lead(&fixture, |_| NOBODY);
    children.delete_collection(&DeleteParams::default(), &with).await.unwrap();
    eventually("their operators made them again", DEADLINE, || there(&any)).await.unwrap();
    lead(&fixture, |webhook| webhook);
    let (away, back) = (away.elapsed(), Instant::now());
    eventually("each child has its label", DEADLINE, || there(&with)).await.unwrap();
    let took = back.elapsed();
    println!("{websites} children came without label in {away:.2?}; all had theirs {took:.2?} after that");
    in_time("all children have labels", took, BOUND);
    // The sharder may have noticed, on a machine that is slow.
    let by_proxies = labelled_by_proxies(&fixture).await - before;
    println!("{by_proxies} of them by the proxies");
    assert!(by_proxies > 0);

    // So do those that another client makes. The sharder watches all children here, and may be before the proxies.
    let before = labelled_by_proxies(&fixture).await;
    let made = children.list(&with).await.unwrap().items;
    fixture.system.shards().for_each(|shard| shard.operator().pause().unwrap());
    lead(&fixture, |_| NOBODY);
    children.delete_collection(&DeleteParams::default(), &with).await.unwrap();
    for child in made {
        let ObjectMeta { name, owner_references, .. } = child.metadata;
        let metadata = ObjectMeta { name, owner_references, ..ObjectMeta::default() };
        children.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await.unwrap();
    }
    lead(&fixture, |webhook| webhook);
    fixture.system.shards().for_each(|shard| shard.operator().resume().unwrap());
    let back = Instant::now();
    eventually("each child has its label again", DEADLINE, || there(&with)).await.unwrap();
    let (took, by_proxies) = (back.elapsed(), labelled_by_proxies(&fixture).await - before);
    println!("of another client's, all had theirs after {took:.2?}, {by_proxies} of them by the proxies");
    in_time("all children have labels", took, BOUND);
}

/// Whether the sharder has reached the webhook, and nobody has written its configuration for so long that the sharder takes
/// every API server to go by it. Until then it looks for such children itself.
async fn trusts_webhook(fixture: &Fixture) -> Result<(), String> {
    let rings: Api<ClusterRing> = Api::all(fixture.client());
    let status = rings.get(RING).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
    let reached = status.conditions.iter().find(|condition| condition.type_ == "WebhookReachable");
    if reached.is_none_or(|reached| reached.status != "True") {
        return Err(format!("{reached:?}"));
    }
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(fixture.client());
    let name = RING.parse::<RingName>().map_err(|error| error.to_string())?.made_for();
    let configuration = configurations.get(&name).await.map_err(|error| error.to_string())?;
    let fields = configuration.metadata.managed_fields.unwrap_or_default();
    let last = fields.into_iter().filter_map(|fields| fields.time).map(|time| time.0).max().ok_or("nobody wrote it")?;
    let age = Timestamp::now().duration_since(last);
    if age > NEWS { Ok(()) } else { Err(format!("written {age:?} ago")) }
}

/// How many children the proxies had the webhook asked about again, to some avail.
async fn labelled_by_proxies(fixture: &Fixture) -> usize {
    let mut labelled = 0;
    for shard in fixture.system.shards() {
        let metrics = metrics(shard.admin_port()).await.unwrap();
        let counts = metrics.lines().filter(|line| {
            line.starts_with("ringside_proxy_unlabelled_children_total{") && line.contains("outcome=\"labelled\"")
        });
        let counts = counts.filter_map(|line| line.rsplit(' ').next());
        labelled += counts.map(|count| count.parse::<usize>().unwrap()).sum::<usize>();
    }
    labelled
}

/// Where the API server's way to each replica's webhook leads from now on.
fn lead(fixture: &Fixture, to: impl Fn(u16) -> u16) {
    for sharder in fixture.system.sharders() {
        sharder.line().unwrap().lead_to(SocketAddr::from(([127, 0, 0, 1], to(sharder.webhook_port()))));
    }
}
