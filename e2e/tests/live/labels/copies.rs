//! Children that are copied: with the labels of another owner's child, with odd ones, or with none, by a user or by the
//! owner's controller; with the webhook and without it.

use std::collections::BTreeMap;

use http::{Request, header};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt as _, api::ListParams};
use ringside_e2e::{
    eventually::eventually,
    website::{Website, child},
};

use crate::{
    labels::{
        fixture::{DEADLINE, Fixture},
        history::History,
    },
    planes::Keeps,
};

/// What all copies' names begin with.
const PREFIX: &str = "copied-child-";

/// Each copy comes to its owner's shard: by the webhook, or as children without label, or with an odd one, are watched while it
/// is not reached. The review of all objects would find them in about an hour.
pub(crate) async fn of_children(fixture: &Fixture) {
    if fixture.keeps != Keeps::Both {
        until_the_webhook_is_missed(fixture).await;
    }
    fixture.until_children_follow().await;
    let children = fixture.objects::<ConfigMap>();
    let history = History::follow::<ConfigMap>(&fixture.client(), &fixture.labels).await;
    let (owner, other) = apart(fixture).await;
    let shard = fixture.owner(&owner).unwrap();
    let template = children.get(&other.name_any()).await.unwrap();
    for (number, (what, labels)) in ways(fixture, &template, &shard).into_iter().enumerate() {
        for pod in [None, Some(&*shard)] {
            let mut child = child(&owner, &format!("{PREFIX}{number}-{}", pod.unwrap_or("by-user")));
            child.metadata.labels.clone_from(&labels);
            let created = create(fixture, pod, &child).await;
            if fixture.has_policy() {
                let now = fixture.labels.ownership(created.metadata.labels.as_ref());
                let none_of_others = now.drain.is_none() && now.shard.is_none_or(|now| now == shard);
                assert!(none_of_others, "a child {what}, by {pod:?}: {:?}", created.metadata.labels);
            }
            eventually(&format!("a child {what}, by {pod:?}, is with its owner"), DEADLINE, || async {
                let now = children.get(&child.name_any()).await.map_err(|error| error.to_string())?;
                let is_with = fixture.owner(&now).as_ref() == Some(&shard);
                if is_with { Ok(()) } else { Err(format!("{:?}", now.metadata.labels)) }
            })
            .await
            .unwrap();
        }
    }
    // What takes no wrong label off in that write moves the copy later: a shard loses what was never its own.
    let mut lost = history.lost(&fixture.shards().collect());
    lost.retain(|change| fixture.has_policy() || !change.starts_with(PREFIX));
    assert!(lost.is_empty(), "taken from a live shard: {lost:#?}");
    fixture.until_children_follow().await;
}

/// From then on children without label are looked for.
async fn until_the_webhook_is_missed(fixture: &Fixture) {
    eventually("the ring says that its webhook is not reached", DEADLINE, || async {
        let told = fixture.condition("WebhookReachable").await?;
        if told.status == "False" { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await
    .unwrap();
}

/// Creates the child: as the controller in this Pod, or as a user.
async fn create(fixture: &Fixture, pod: Option<&str>, child: &ConfigMap) -> ConfigMap {
    let path = format!("/api/v1/namespaces/{}/configmaps", fixture.system.namespace());
    let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    if let Some(pod) = pod {
        request = request
            .header("Impersonate-User", fixture.system.shards_user())
            .header("Impersonate-Extra-authentication.kubernetes.io%2Fpod-name", pod);
    }
    fixture.client().request(request.body(serde_json::to_vec(child).unwrap()).unwrap()).await.unwrap()
}

/// Two owners that different shards work on.
async fn apart(fixture: &Fixture) -> (Website, Website) {
    let apart = eventually("two objects are with different shards", DEADLINE, || async {
        let all = fixture.websites().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let mut owned = all.items.into_iter().filter_map(|website| Some((fixture.owner(&website)?, website)));
        let (shard, owner) = owned.next().ok_or("none has a shard")?;
        let (_, other) = owned.find(|(other, _)| *other != shard).ok_or("all are with one")?;
        Ok::<_, String>((owner, other))
    });
    apart.await.unwrap()
}

/// What a copy of `template` may have for labels, where `shard` works on the owner of the copy.
fn ways(fixture: &Fixture, template: &ConfigMap, shard: &str) -> [(&'static str, Option<BTreeMap<String, String>>); 6] {
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
        ("with a label that names no shard", Some(with(key, "nobody"))),
        ("with an empty label", Some(with(key, ""))),
        ("without label", None),
    ]
}
