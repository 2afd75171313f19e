//! What comes to a shard is shown to its controller after what belongs to it.

use std::time::Duration;

use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::fixture::{Fixture, SECRETS, SOON};
use crate::proxies::{NAMESPACE, Proxies};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// More than connections keep for a client that does not read, and fewer events than an API server does.
const LARGE: usize = 8;
const SIZE: usize = 900 << 10;

/// The client does not read the watch of the children, so that the child waits there when its owner comes.
pub(crate) async fn an_object_comes_after_its_children(proxies: &Proxies) {
    let fixture = Fixture::start(proxies, "arriving").await;
    let admin = proxies.control_plane.client();
    let children: Api<ConfigMap> = Api::namespaced(admin, NAMESPACE);
    let mine = [(fixture.labels.shard.clone(), fixture.shard.clone())];
    let config_map = |name: &str, labels: &[(String, String)], size: usize| ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.iter().cloned().collect()),
            ..ObjectMeta::default()
        },
        binary_data: Some([("data".to_owned(), ByteString(vec![0; size * 3 / 4]))].into()),
        ..ConfigMap::default()
    };
    children.create(&PostParams::default(), &config_map("child", &[], 1)).await.unwrap();
    let secret = json!({"metadata": {"name": "owner"}, "type": "Opaque"});
    fixture.secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    // As each client begins: no watch goes on from before.
    let list = fixture.get(&format!("{CONFIG_MAPS}?limit=1"), &[]).await.into_body().collect().await.unwrap();
    let list: Value = serde_json::from_slice(&list.to_bytes()).unwrap();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut of_children = watch(&fixture, CONFIG_MAPS, from).await;
    let mut of_owners = watch(&fixture, SECRETS, from).await;

    for number in 0..LARGE {
        let large = config_map(&format!("large-{number}"), &mine, SIZE);
        children.create(&PostParams::default(), &large).await.unwrap();
    }
    // As the sharder does it: the child first.
    let as_sharder = PatchParams { field_manager: Some("ringside-sharder".to_owned()), ..PatchParams::default() };
    let labels = Patch::Merge(json!({"metadata": {"labels": {&fixture.labels.shard: &fixture.shard}}}));
    children.patch_metadata("child", &as_sharder, &labels).await.unwrap();
    fixture.secrets.patch_metadata("owner", &as_sharder, &labels).await.unwrap();
    let early = timeout(Duration::from_secs(1), of_owners.next()).await;
    assert!(early.is_err(), "the owner came before its child: {early:?}");

    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| last != "child") {
        seen.push(timeout(SOON, of_children.next()).await.expect("no child").unwrap());
    }
    assert_eq!(seen.len(), LARGE + 1);
    assert_eq!(timeout(SOON, of_owners.next()).await.expect("no owner").as_deref(), Some("owner"));
}

/// The names of what a watch shows.
async fn watch(fixture: &Fixture, path: &str, from: &str) -> futures::stream::BoxStream<'static, String> {
    let response = fixture.get(&format!("{path}?watch=1&resourceVersion={from}"), &[]).await;
    assert!(response.status().is_success(), "{response:?}");
    let lines = futures::stream::unfold(
        (response.into_body(), Vec::new()),
        |(mut body, mut kept): (Body, Vec<u8>)| async move {
            while !kept.contains(&b'\n') {
                let frame = body.frame().await?.unwrap();
                kept.extend_from_slice(frame.data_ref()?);
            }
            let rest = kept.split_off(kept.iter().position(|byte| *byte == b'\n')? + 1);
            let event: Value = serde_json::from_slice(&kept).unwrap();
            Some((event, (body, rest)))
        },
    );
    lines
        .filter_map(|event| async move {
            (event["type"] != "BOOKMARK").then(|| event["object"]["metadata"]["name"].as_str().unwrap().to_owned())
        })
        .boxed()
}
