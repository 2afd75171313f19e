//! The objects that cases read and none writes: of the shard, of another one, drained, and without owner.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use ringside_e2e::website::{Website, WebsiteSpec};
use ringside_ring::labels::RingLabels;
use serde_json::{Value, json};

/// Where they are.
pub(crate) const FIXED: &str = "fixed";
/// Where there are others that stay as they are made, and are never drained.
pub(crate) const STILL: &str = "still";
/// How many of each.
pub(crate) const EACH: usize = 3;
/// How names begin, by owner: the first proxy's shard, the other one's, the first one's that it is to release, none.
pub(crate) const OWNERS: [&str; 4] = ["own-", "other-", "drained-", "free-"];
/// The length of a ConfigMap's data: all of the shard's together are compressed (from 128 KiB on).
const LENGTH: usize = 60_000;

/// Creates a namespace; it is no error when it is there.
pub(crate) async fn namespace(client: &Client, name: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let object = Namespace { metadata: meta(name, BTreeMap::new()), ..Namespace::default() };
    match namespaces.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => Ok(created.map(drop)?),
    }
}

/// Creates an object, and answers its resourceVersion.
pub(crate) async fn early(client: &Client) -> Result<String> {
    namespace(client, FIXED).await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), FIXED);
    // The API server's cache of a resource begins with the first who asks for it.
    maps.list(&ListParams::default().match_any()).await?;
    let early = maps.create(&PostParams::default(), &map("early", BTreeMap::new(), 1)).await?;
    early.resource_version().context("a resourceVersion")
}

/// Creates the objects, changes and deletes some, and answers the resourceVersions before and after all that.
pub(crate) async fn create(client: &Client, ring: &RingLabels, shards: [&str; 2]) -> Result<(String, String)> {
    namespace(client, FIXED).await?;
    namespace(client, STILL).await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), FIXED);
    let still: Api<ConfigMap> = Api::namespaced(client.clone(), STILL);
    let sites: Api<Website> = Api::namespaced(client.clone(), FIXED);
    let own = label(&ring.shard, shards[0]);
    let mut drained = own.clone();
    drained.extend(label(&ring.drain, "a-move"));
    let owners = [own, label(&ring.shard, shards[1]), drained, BTreeMap::new()];
    let create = PostParams::default();
    let first = maps.create(&create, &map("before", BTreeMap::new(), 1)).await?;
    for (owner, labels) in OWNERS.iter().zip(&owners) {
        for index in 0..EACH {
            let (name, mut labels) = (format!("{owner}{index}"), labels.clone());
            labels.extend(label("tier", if index == 0 { "front" } else { "back" }));
            maps.create(&create, &map(&name, labels.clone(), LENGTH)).await?;
            sites.create(&create, &site(&name, labels.clone())).await?;
            if !labels.contains_key(&ring.drain) {
                still.create(&create, &map(&name, labels, LENGTH)).await?;
            }
        }
    }
    // What a watch shows of it: a change, a move away, a move here, and an end.
    let change = |name: &'static str, labels: Value| {
        let (maps, sites) = (maps.clone(), sites.clone());
        async move {
            let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
            sites.patch(name, &PatchParams::default(), &patch).await?;
            maps.patch(name, &PatchParams::default(), &patch).await
        }
    };
    change("own-0", json!({"changed": "yes"})).await?;
    change("own-1", json!({ &ring.drain: "a-move" })).await?;
    change("own-1", json!({ &ring.drain: null })).await?;
    for name in ["visitor", "own-gone"] {
        maps.create(&create, &map(name, BTreeMap::new(), 1)).await?;
        sites.create(&create, &site(name, BTreeMap::new())).await?;
        change(name, json!({ &ring.shard: shards[0] })).await?;
    }
    change("visitor", json!({ &ring.shard: null })).await?;
    sites.delete("own-gone", &DeleteParams::default()).await?;
    maps.delete("own-gone", &DeleteParams::default()).await?;
    let last = maps.create(&create, &map("after", BTreeMap::new(), 1)).await?;
    let version = |map: ConfigMap| map.resource_version().context("a resourceVersion");
    Ok((version(first)?, version(last)?))
}

fn label(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

fn meta(name: &str, labels: BTreeMap<String, String>) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

/// A ConfigMap with so many bytes of data.
pub(crate) fn map(name: &str, labels: BTreeMap<String, String>, length: usize) -> ConfigMap {
    let data = BTreeMap::from([("text".to_owned(), "ringside ".repeat(length / 9 + 1)[..length].to_owned())]);
    ConfigMap { metadata: meta(name, labels), data: Some(data), ..ConfigMap::default() }
}

/// A Website.
pub(crate) fn site(name: &str, labels: BTreeMap<String, String>) -> Website {
    let spec = WebsiteSpec { content: format!("<h1>{name}</h1> & more"), ..WebsiteSpec::default() };
    Website { metadata: meta(name, labels), spec, status: None }
}
