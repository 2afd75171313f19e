//! A watch in each format, through the proxy, with a drain under way: what holds the drain until the watch is past it is
//! what the proxy read in the watch's bytes.

use std::time::Duration;

use http::{Request, StatusCode, header};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    client::Body,
};
use ringside_e2e::eventually::eventually;
use serde_json::json;
use tokio::task::JoinHandle;

use super::sides::{SHARD, Sides};
use crate::watch_bytes::{self, Seen};

/// Shorter than the time to the first bookmark, a minute, which takes a watch past everything.
const DEADLINE: Duration = Duration::from_secs(30);
/// With initial events: those the API server would compress.
const TARGET: &str = "/api/v1/namespaces/default/configmaps?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&\
    resourceVersionMatch=NotOlderThan&timeoutSeconds=600";
const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A watch that is read as it comes.
struct Watch {
    seen: Seen,
    reading: JoinHandle<()>,
}

impl Watch {
    async fn open(sides: &Sides, accept: &str, subprotocol: Option<&str>, websocket: bool) -> Self {
        let mut request = Request::get(TARGET).header(header::ACCEPT, accept).header(header::ACCEPT_ENCODING, "gzip");
        if websocket {
            request = request
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::ORIGIN, "http://localhost")
                .header(header::SEC_WEBSOCKET_VERSION, "13")
                .header(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==")
                .header(header::SEC_WEBSOCKET_EXTENSIONS, "permessage-deflate");
        }
        if let Some(subprotocol) = subprotocol {
            request = request.header(header::SEC_WEBSOCKET_PROTOCOL, subprotocol);
        }
        let response = sides.proxied.send(request.body(Body::empty()).unwrap()).await.unwrap();
        let wanted = if websocket { StatusCode::SWITCHING_PROTOCOLS } else { StatusCode::OK };
        assert_eq!(response.status(), wanted, "{accept}");
        assert_eq!(response.headers().get(header::SEC_WEBSOCKET_PROTOCOL).map(|it| it.to_str().unwrap()), subprotocol);
        let (seen, reading) = watch_bytes::read(response, websocket);
        Self { seen, reading }
    }

    async fn until_shows(&self, what: &str) {
        let sought = format!("the watch shows {what}");
        let shown = eventually(&sought, DEADLINE, || async {
            assert!(!self.reading.is_finished(), "the watch ended before it showed {what}");
            let seen = self.seen.lock().await;
            if seen.windows(what.len()).any(|it| it == what.as_bytes()) { Ok(()) } else { Err("not yet".to_owned()) }
        });
        shown.await.unwrap();
    }
}

/// Drains an object, and returns when the proxy has let go of it.
async fn drain(sides: &Sides, maps: &Api<ConfigMap>, name: &str) {
    let drain = json!({"metadata": {"labels": {&sides.labels.drain: "move-2"}}});
    maps.patch(name, &PatchParams::default(), &Patch::Merge(&drain)).await.unwrap();
    let gone = eventually("the proxy lets go", DEADLINE, || async {
        let labels = maps.get(name).await.map_err(|error| error.to_string())?.metadata.labels;
        if labels.is_none_or(|labels| labels.is_empty()) { Ok(()) } else { Err("not yet".to_owned()) }
    });
    gone.await.unwrap();
}

pub(crate) async fn check(sides: &Sides) {
    let maps: Api<ConfigMap> = Api::namespaced(sides.direct.clone(), "default");
    let formats = [
        ("json", JSON, None, false),
        ("table", TABLE, None, false),
        ("protobuf", PROTOBUF, None, false),
        ("metadata", METADATA, None, false),
        ("websocket-text", JSON, None, true),
        ("websocket-binary", PROTOBUF, None, true),
        ("websocket-subprotocol", JSON, Some("base64.binary.k8s.io"), true),
    ];
    for (name, accept, subprotocol, websocket) in formats {
        let object = |name: String| -> ConfigMap {
            let metadata = json!({"name": name, "labels": {&sides.labels.shard: SHARD}});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let (moved, kept) = (format!("moved-{name}"), format!("kept-{name}"));
        maps.create(&PostParams::default(), &object(moved.clone())).await.unwrap();
        let watch = Watch::open(sides, accept, subprotocol, websocket).await;
        watch.until_shows(&moved).await;
        drain(sides, &maps, &moved).await;
        watch.until_shows("DELETED").await;
        // It was not ended to get rid of it.
        maps.create(&PostParams::default(), &object(kept.clone())).await.unwrap();
        watch.until_shows(&kept).await;
        watch.reading.abort();
    }
}
