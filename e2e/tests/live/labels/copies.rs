//! Children that are copied: with the labels of another owner's child, with odd ones, or with none, by a user or by the
//! owner's controller; with the webhook and without it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use http::{Request, header};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt as _, api::ListParams};
use ringside_e2e::{
    eventually::{eventually, in_time},
    website::{Website, child},
};

use crate::labels::{
    fixture::{DEADLINE, Fixture},
    history::History,
};
use crate::planes::Keeps;

/// What all copies' names begin with.
const PREFIX: &str = "copy-";

/// What is promised, also while the webhook is not reached, as children without label are watched then: nine in ten keep to it
/// on a machine that does much else.
const SOON: Duration = Duration::from_secs(1);
/// None takes longer.
const BOUND: Duration = Duration::from_secs(20);

/// Labels of a child, and what is special about them.
type Way = (&'static str, Option<BTreeMap<String, String>>);

/// The policy takes off what was copied, and the webhook looks whose it is in the same write.
pub(crate) async fn a_copied_child_is_with_its_owner_at_once_with_webhook_and_policy() {
    let fixture = Fixture::on(Keeps::Both, "labels-copied").await;
    with_their_owners_soon(&fixture, &[]).await;
}

/// The policy takes off what was copied, so it is found as what never had a label.
pub(crate) async fn a_copied_child_is_with_its_owner_soon_while_the_webhook_is_away() {
    let fixture = Fixture::on(Keeps::Policy, "labels-copied").await;
    until_the_webhook_is_missed(&fixture).await;
    with_their_owners_soon(&fixture, &[]).await;
}

/// Nothing takes a wrong label off then. Of the copies a shard loses what was never its own.
pub(crate) async fn a_copied_child_is_with_its_owner_soon_where_nothing_keeps_labels() {
    let fixture = Fixture::start(Keeps::Nothing, Keeps::Nothing.settings()).await;
    until_the_webhook_is_missed(&fixture).await;
    with_their_owners_soon(&fixture, &[PREFIX]).await;
}

/// `may_leave`: how the names begin of what may be taken from a live shard.
async fn with_their_owners_soon(fixture: &Fixture, may_leave: &[&str]) {
    fixture.until_children_follow().await;
    let children = History::follow::<ConfigMap>(&fixture.client(), &fixture.labels).await;
    let mut took = Vec::new();
    // One after the other: each finds the sharder at rest.
    for copy in Copied::all(fixture).await {
        let since = copy.create(fixture).await;
        took.push(copy.until_with_its_owner(fixture, since, BOUND).await);
    }
    took.sort_unstable();
    let (most, all) = (took[took.len() * 9 / 10], took[took.len() - 1]);
    eprintln!("{} copied children: nine in ten with their owner after {most:.2?}, all after {all:.2?}", took.len());
    in_time("nine in ten with their owner", most, SOON);
    let mut lost = children.lost(&fixture.shards().collect());
    lost.retain(|change| !may_leave.iter().any(|prefix| change.starts_with(prefix)));
    assert!(lost.is_empty(), "taken from a live shard: {lost:#?}");
    fixture.until_children_follow().await;
    fixture.assert_nobody_lost_anything();
}

/// From then on children without label are looked for.
async fn until_the_webhook_is_missed(fixture: &Fixture) {
    eventually("the ring says that its webhook is not reached", DEADLINE, || async {
        let told = fixture.condition("WebhookReachable").await.ok_or("it does not say")?;
        if told.status == "False" { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await
    .unwrap();
}

/// A child that somebody makes of another owner's, of which another shard's label is part.
struct Copied {
    what: &'static str,
    child: ConfigMap,
    /// Of the controller that makes it; none where a user does.
    pod: Option<String>,
    /// The shard of its owner.
    shard: String,
}

impl Copied {
    /// One for each way and everybody who may do so, all of one owner.
    async fn all(fixture: &Fixture) -> Vec<Self> {
        let (owner, other) = apart(fixture).await;
        let shard = fixture.owner(&owner).unwrap();
        let template = fixture.objects::<ConfigMap>().get(&other.name_any()).await.unwrap();
        let mut copies = Vec::new();
        for (what, labels) in ways(fixture, &template, &shard) {
            for pod in [None, Some(shard.clone())] {
                let mut child = child(&owner, &format!("{PREFIX}{}", copies.len()));
                child.metadata.labels.clone_from(&labels);
                copies.push(Self { what, child, pod, shard: shard.clone() });
            }
        }
        copies
    }

    /// Returns when the API server had answered.
    async fn create(&self, fixture: &Fixture) -> Instant {
        let path = format!("/api/v1/namespaces/{}/configmaps", fixture.system.namespace());
        let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        if let Some(pod) = &self.pod {
            request = request
                .header("Impersonate-User", fixture.system.shards_user())
                .header("Impersonate-Extra-authentication.kubernetes.io%2Fpod-name", pod);
        }
        let request = request.body(serde_json::to_vec(&self.child).unwrap()).unwrap();
        let created: ConfigMap = fixture.client().request(request).await.unwrap();
        assert_eq!(created.name_any(), self.child.name_any());
        Instant::now()
    }

    /// Waits until it is with its owner's shard; returns how long that took.
    async fn until_with_its_owner(&self, fixture: &Fixture, since: Instant, bound: Duration) -> Duration {
        let (children, name) = (fixture.objects::<ConfigMap>(), self.child.name_any());
        let what = format!("a child {}, by {}, is with its owner", self.what, self.pod.as_deref().unwrap_or("a user"));
        eventually(&what, bound, || async {
            let now = children.get(&name).await.map_err(|error| error.to_string())?;
            let is_with = fixture.owner(&now).as_deref() == Some(&*self.shard);
            if is_with { Ok(()) } else { Err(format!("{:?}", now.metadata.labels)) }
        })
        .await
        .unwrap();
        since.elapsed()
    }
}

/// Two owners that different shards work on.
async fn apart(fixture: &Fixture) -> (Website, Website) {
    let mut all = fixture.websites().list(&ListParams::default()).await.unwrap().items.into_iter();
    let owner = all.next().unwrap();
    let shard = fixture.owner(&owner);
    let other = all.find(|website| fixture.owner(website) != shard).unwrap();
    (owner, other)
}

/// What a copy of `template` may have for labels, where `shard` works on the owner of the copy.
fn ways(fixture: &Fixture, template: &ConfigMap, shard: &str) -> [Way; 6] {
    let (key, drain) = (&fixture.labels.shard, &fixture.labels.drain);
    let with = |key: &String, value: &str| {
        let mut labels = template.metadata.labels.clone().unwrap();
        labels.insert(key.clone(), value.to_owned());
        labels
    };
    let mut own_and_drained = with(key, shard);
    own_and_drained.insert(drain.clone(), "old".to_owned());
    [
        ("with the label of another live shard", template.metadata.labels.clone()),
        ("with that, and a drain", Some(with(drain, "old"))),
        ("with its owner's, and a drain", Some(own_and_drained)),
        ("with a label that names nobody", Some(with(key, "nobody"))),
        ("with an empty label", Some(with(key, ""))),
        ("without label", None),
    ]
}
