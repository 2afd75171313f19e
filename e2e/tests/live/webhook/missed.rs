//! Calls of the webhook that fail in a moment, and no program notices: children that come in it have no label.

use k8s_openapi::{
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::ConfigMap},
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use ringside_e2e::{
    eventually::eventually,
    ring_status::{condition, status},
    system::{NAMESPACE, Settings, metrics},
};

use crate::webhook::{
    calls::sum,
    fixture::{DEADLINE, Fixture},
    trust::configuration,
};

/// As many as have no label at first.
const CHILDREN: usize = 20;
/// How long the sharder looks for such children itself (docs/dev/limits.md), and the second in which times are told.
const NEWS: SignedDuration = SignedDuration::from_secs(12);
/// Where nothing listens.
const NOBODY: u16 = 9;

/// The review of all objects would find them in about an hour.
pub(crate) async fn children_that_came_in_a_moment_without_the_webhook_have_their_labels_by_their_proxies() {
    let fixture = Fixture::start(Settings { lines: true, ..Settings::default() }).await;
    for _ in 0..CHILDREN {
        fixture.create().await;
    }
    fixture.until_assigned().await;
    let children: Api<ConfigMap> = Api::namespaced(fixture.client(), NAMESPACE);
    let with = ListParams::default().labels(&fixture.labels.shard);
    let any = ListParams::default().fields("metadata.name!=kube-root-ca.crt");
    let websites = fixture.websites().list_metadata(&ListParams::default()).await.unwrap().items.len();
    let there = async |selected: &ListParams| match children.list_metadata(selected).await.unwrap().items.len() {
        all if all == websites => Ok(()),
        some => Err(format!("{some} of {websites}")),
    };
    eventually("each object has its child", DEADLINE, || there(&with)).await.unwrap();

    eventually("the sharder looks for none itself", DEADLINE, || trusts_webhook(&fixture)).await.unwrap();
    // Before the webhook was trusted there may have been one.
    let before = labelled_by_proxies(&fixture).await;
    fixture.lead_webhook(|_| NOBODY);
    children.delete_collection(&DeleteParams::default(), &with).await.unwrap();
    eventually("their operators made them again", DEADLINE, || there(&any)).await.unwrap();
    fixture.lead_webhook(|port| port);
    eventually("each child has its label", DEADLINE, || there(&with)).await.unwrap();
    // The sharder may have noticed, on a machine that is slow.
    assert!(labelled_by_proxies(&fixture).await > before);
}

/// Whether the sharder has reached the webhook, and no client has written its configuration for so long that the
/// sharder takes every API server to use it. Until then it looks for such children itself.
async fn trusts_webhook(fixture: &Fixture) -> Result<(), String> {
    let status = status(&fixture.client(), &fixture.ring).await?;
    let reached = condition(&status, "WebhookReachable")?;
    if reached.status != "True" {
        return Err(format!("{reached:?}"));
    }
    let MutatingWebhookConfiguration { metadata, .. } = configuration(fixture).await;
    let fields = metadata.managed_fields.unwrap_or_default();
    let last = fields.into_iter().filter_map(|fields| fields.time).map(|time| time.0).max().ok_or("none wrote it")?;
    let age = Timestamp::now().duration_since(last);
    if age > NEWS { Ok(()) } else { Err(format!("written {age:?} ago")) }
}

/// How many children the proxies had the webhook asked about again, to some avail.
async fn labelled_by_proxies(fixture: &Fixture) -> u64 {
    let mut labelled = 0;
    for shard in fixture.system.shards() {
        let metrics = metrics(shard.admin_port()).await.unwrap();
        labelled += sum(&metrics, "ringside_proxy_unlabelled_children_total", &["outcome=\"labelled\""]);
    }
    labelled
}
