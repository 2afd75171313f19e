//! Watches that never show a drained object, and on which nothing happens.

use http::{StatusCode, header};
use ringside_e2e::eventually::eventually;
use tokio::task::JoinHandle;

use crate::{
    handover::fixture::{Fixture, SECRETS, SOON, World},
    watch_bytes::{self, Seen},
};

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_PROTOBUF: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A name, what is accepted, and whether by WebSocket.
pub(crate) const FORMATS: [(&str, &str, bool); 7] = [
    ("json", JSON, false),
    ("table", TABLE, false),
    ("protobuf", PROTOBUF, false),
    ("metadata", METADATA, false),
    ("metadata-protobuf", METADATA_PROTOBUF, false),
    ("websocket-text", JSON, true),
    ("websocket-binary", PROTOBUF, true),
];

/// A watch that is read as it comes.
pub(crate) struct Watch {
    seen: Seen,
    reading: JoinHandle<()>,
}

impl Watch {
    pub(crate) async fn open(fixture: &Fixture, query: &str, accept: &str, websocket: bool) -> Self {
        let mut headers = vec![("accept", accept)];
        if websocket {
            headers.extend([
                (header::CONNECTION.as_str(), "Upgrade"),
                (header::UPGRADE.as_str(), "websocket"),
                (header::ORIGIN.as_str(), "http://localhost"),
                (header::SEC_WEBSOCKET_VERSION.as_str(), "13"),
                (header::SEC_WEBSOCKET_KEY.as_str(), "dGhlIHNhbXBsZSBub25jZQ=="),
            ]);
        }
        let response = fixture.get(&format!("{SECRETS}?watch=1&timeoutSeconds=600&{query}"), &headers).await;
        let wanted = if websocket { StatusCode::SWITCHING_PROTOCOLS } else { StatusCode::OK };
        assert_eq!(response.status(), wanted, "{accept}");
        let (seen, reading) = watch_bytes::read(response, websocket);
        Self { seen, reading }
    }

    pub(crate) async fn shows(&self, what: &str) -> bool {
        let seen = self.seen.lock().await;
        seen.windows(what.len()).any(|it| it == what.as_bytes())
    }

    /// How many events of this type have this in them. The type is the first thing in an event, whatever the format.
    pub(crate) async fn count(&self, event: &str, what: &str) -> usize {
        const TYPES: [&str; 5] = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"];
        let seen = self.seen.lock().await;
        let begins = |at: usize| TYPES.into_iter().find(|it| seen[at..].starts_with(it.as_bytes()));
        let events: Vec<_> = (0..seen.len()).filter_map(|at| Some((at, begins(at)?))).collect();
        let ends = events.iter().skip(1).map(|(at, _)| *at).chain([seen.len()]);
        let contains = |range: &[u8]| what.is_empty() || range.windows(what.len()).any(|it| it == what.as_bytes());
        events.iter().zip(ends).filter(|((at, kind), end)| *kind == event && contains(&seen[*at..*end])).count()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.reading.is_finished()
    }

    /// Its client goes away.
    pub(crate) async fn ends(mut self) {
        self.reading.abort();
        // The connection, or its part of one, is closed when what reads from it is gone.
        assert!((&mut self.reading).await.is_err());
    }

    pub(crate) async fn until_shows(&self, what: &str) {
        let sought = format!("the watch shows {what}");
        let shown = eventually(&sought, SOON, || async {
            if self.shows(what).await {
                return Ok(());
            }
            let seen = self.seen.lock().await;
            Err(format!("ended: {}; {}", self.has_ended(), String::from_utf8_lossy(&seen)))
        });
        shown.await.unwrap();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// Of each format: a watch with a label selector, one with a name, and one with a field selector that only the API server
/// understands. None shows the object, none wants bookmarks, and nothing else happens on any. A watch that shows it has its
/// `DELETED`, and nobody ends any of them.
pub(crate) async fn no_watch_holds_for_long_what_it_never_showed(world: &World) {
    let fixture = &world.shard("watches").await;
    for (name, accept, websocket) in FORMATS {
        let name = format!("idle-{name}");
        let from = fixture.create(&name).await;
        let open = async |selector: &str| {
            Watch::open(fixture, &format!("resourceVersion={from}&{selector}"), accept, websocket).await
        };
        let others = [
            open("labelSelector=app%3Dother").await,
            open("fieldSelector=metadata.name%3Dother").await,
            open("fieldSelector=type%3Dkubernetes.io/tls").await,
        ];
        let sees = open("fieldSelector=type%3DOpaque").await;
        fixture.drain(&name, "move-1").await;
        fixture.until_let_go(&name).await;
        sees.until_shows("DELETED").await;
        for watch in others.iter().chain([&sees]) {
            assert!(!watch.reading.is_finished(), "{name}: a watch was ended");
            assert!(!watch.shows("BOOKMARK").await, "{name}: nobody asked for one");
        }
    }
}
