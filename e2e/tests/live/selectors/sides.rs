//! One API server, and two ways to it: straight, and through a proxy that is a shard of a ring.

use std::time::Duration;

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    client::Body,
};
use ringside_e2e::{manifests, proxy::Proxy, website::Website};
use ringside_ring::RingLabels;
use serde_json::Value;
use tokio::time::timeout;

use crate::proxies::{Proxies, labels};

pub(crate) const SHARD: &str = "shard-0";
pub(crate) const NAMESPACES: [&str; 2] = ["default", "other"];
/// More objects than there are.
const MANY: usize = 1_000;
/// For one answer.
const DEADLINE: Duration = Duration::from_secs(240);

const RING: &str = "{resources: [{group: '', resource: configmaps, readsByName: All}, \
    {group: web.example.com, resource: websites, readsByName: All}]}";

/// Both ways, and what is in the cluster.
pub(crate) struct Sides {
    pub(crate) direct: Client,
    pub(crate) proxied: Client,
    pub(crate) labels: RingLabels,
    // Dropped in this order.
    _proxy: Proxy,
    _proxies: Proxies,
}

/// An answer: its status, and of a success what is in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) content: Content,
    /// Where the rest of a list begins.
    rest: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// Objects that a list, the beginning of a watch, or a deletion of several shows, in their order.
    Objects(Vec<Value>),
    /// Any other JSON.
    Other(Value),
    /// Something else, or a refusal.
    None,
}

impl Sides {
    pub(crate) async fn start() -> Self {
        let proxies = Proxies::start(RING).await;
        let direct = proxies.control_plane.client();
        let other = manifests::parse("{apiVersion: v1, kind: Namespace, metadata: {name: other}}").unwrap();
        manifests::apply(&direct, &other).await.unwrap();
        let labels = labels();
        populate(&direct, &labels).await;
        // Whole objects are compared.
        let proxy = proxies.proxy(SHARD, &["--show-labels", "--lease-duration=60s"]).await;
        let proxied = proxy.client().await.unwrap();
        Self { direct, proxied, labels, _proxy: proxy, _proxies: proxies }
    }

    /// Asks both for the same.
    pub(crate) async fn ask(&self, method: &Method, target: &str) -> (Answer, Answer) {
        tokio::join!(ask(&self.direct, method, target), ask(&self.proxied, method, target))
    }

    /// Whether an object is of the ring's resources.
    pub(crate) fn is_in_ring(&self, object: &Value) -> bool {
        object["kind"] == "ConfigMap" || object["kind"] == "Website"
    }

    /// Whether an object is the shard's.
    pub(crate) fn is_mine(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        labels[&self.labels.shard] == SHARD && labels[&self.labels.drain].is_null()
    }
}

/// Objects with labels of every kind, of this shard, another one, none, and drained ones of both.
async fn populate(client: &Client, ring: &RingLabels) {
    let apps = [None, Some("a"), Some("b"), Some("")];
    let tiers = [None, Some("1"), Some("007"), Some("12"), Some("x")];
    let owners = [Some((SHARD, false)), Some(("shard-1", false)), None, Some((SHARD, true)), Some(("shard-1", true))];
    for number in 0..40_usize {
        let mut labels = vec![("number", number.to_string())];
        labels.extend(apps[number % apps.len()].map(|it| ("app", it.to_owned())));
        labels.extend(tiers[number / 2 % tiers.len()].map(|it| ("tier", it.to_owned())));
        labels.extend((number % 3 == 0).then(|| ("example.com/role", format!("r.{}-X_y", number % 2))));
        let owner = owners[number / 4 % owners.len()];
        labels.extend(owner.map(|(shard, _)| (ring.shard.as_str(), shard.to_owned())));
        labels.extend(owner.filter(|(_, drained)| *drained).map(|_| (ring.drain.as_str(), "move-1".to_owned())));
        let metadata = ObjectMeta {
            name: Some(format!("object-{number}")),
            labels: Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ..ObjectMeta::default()
        };
        let namespace = NAMESPACES[number % NAMESPACES.len()];
        let (map, mut site) = (ConfigMap { metadata: metadata.clone(), ..ConfigMap::default() }, Website::default());
        site.metadata = metadata;
        Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &map).await.unwrap();
        Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &site).await.unwrap();
    }
}

async fn ask(client: &Client, method: &Method, target: &str) -> Answer {
    let mut whole = page(client, method, target).await;
    // The rest of a list, unless the query names a page itself.
    while let (Some(rest), false) = (whole.rest.take(), target.contains("continue")) {
        let next = page(client, method, &format!("{target}&continue={rest}")).await;
        let (Content::Objects(all), Content::Objects(more)) = (&mut whole.content, next.content) else {
            panic!("{target}: a page answers {}", next.status)
        };
        all.extend(more);
        assert!(all.len() < MANY, "{target}: the pages have no end");
        whole.rest = next.rest;
    }
    whole
}

async fn page(client: &Client, method: &Method, target: &str) -> Answer {
    let request = Request::builder().method(method).uri(target).header(header::ACCEPT, "application/json");
    let request = request.body(Body::empty()).unwrap_or_else(|error| panic!("{target}: {error}"));
    let answered = timeout(DEADLINE, async {
        let response = client.send(request).await.unwrap_or_else(|error| panic!("{target}: {error}"));
        let status = response.status();
        if !status.is_success() {
            return Answer { status, content: Content::None, rest: None };
        }
        let (content, rest) = content(response.into_body()).await;
        Answer { status, content, rest }
    });
    answered.await.unwrap_or_else(|_| panic!("{method} {target} has no end"))
}

async fn content(body: Body) -> (Content, Option<String>) {
    let stream = body.into_data_stream().map_err(std::io::Error::other);
    let mut lines = stream.into_async_read().lines();
    let (mut events, mut text) = (Vec::new(), String::new());
    while let Some(line) = lines.try_next().await.unwrap() {
        match serde_json::from_str::<Value>(&line) {
            // The initial events have ended; no client writes, so there are no others. That no event but `ADDED` comes
            // before, and no other bookmark, is what the proxy's memory of a watch's progress rests on.
            Ok(event) if event["type"] == "BOOKMARK" => {
                assert_eq!(event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
                return (Content::Objects(events), None);
            }
            Ok(event) if event["type"] == "ADDED" => events.push(event["object"].clone()),
            _ => text.push_str(&line),
        }
    }
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(mut list)) if list.get("items").is_some_and(Value::is_array) => {
            let Some(Value::Array(mut items)) = list.remove("items") else { unreachable!("it is an array") };
            // Items of a list leave their kind to it.
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                let kind = list["kind"].as_str().map(|kind| kind.trim_end_matches("List"));
                item.entry("kind").or_insert(kind.into());
            }
            let rest = list["metadata"]["continue"].as_str().filter(|rest| !rest.is_empty());
            (Content::Objects(items), rest.map(str::to_owned))
        }
        Ok(other) => (Content::Other(other), None),
        Err(_) => (Content::None, None),
    }
}
