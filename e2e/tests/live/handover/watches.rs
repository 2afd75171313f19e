//! Watches in all formats: some show a drained object, some never do, and nothing else happens on them.

use std::time::{Duration, Instant};

use http::{StatusCode, header};
use ringside_e2e::eventually::{eventually, in_time};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    handover::fixture::{Fixture, SECRETS, SOON},
    proxies::Proxies,
    watch_bytes::{self, Seen},
};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// How a watch is asked for: its name, what it accepts, and whether by WebSocket, with which subprotocol.
pub(crate) type Format = (&'static str, &'static str, Option<&'static str>);

pub(crate) const FORMATS: [Format; 8] = [
    ("json", JSON, None),
    ("table", "application/json;as=Table;g=meta.k8s.io;v=v1", None),
    ("protobuf", PROTOBUF, None),
    ("metadata", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", None),
    ("metadata-protobuf", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", None),
    ("websocket-text", JSON, Some("")),
    ("websocket-binary", PROTOBUF, Some("")),
    ("websocket-subprotocol", JSON, Some("base64.binary.k8s.io")),
];

/// A watch that begins with what there is: what an API server would compress.
pub(crate) const STREAMING: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// A watch that is read as it comes.
pub(crate) struct Watch {
    seen: Seen,
    reading: AbortOnDropHandle<()>,
}

impl Watch {
    pub(crate) async fn open(fixture: &Fixture, query: &str, (_, accept, websocket): Format) -> Self {
        let mut headers = vec![("accept", accept), (header::ACCEPT_ENCODING.as_str(), "gzip")];
        if let Some(subprotocol) = websocket {
            headers.extend([
                (header::CONNECTION.as_str(), "Upgrade"),
                (header::UPGRADE.as_str(), "websocket"),
                (header::ORIGIN.as_str(), "http://localhost"),
                (header::SEC_WEBSOCKET_VERSION.as_str(), "13"),
                (header::SEC_WEBSOCKET_KEY.as_str(), "dGhlIHNhbXBsZSBub25jZQ=="),
                (header::SEC_WEBSOCKET_EXTENSIONS.as_str(), "permessage-deflate"),
            ]);
            headers.extend(Some((header::SEC_WEBSOCKET_PROTOCOL.as_str(), subprotocol)).filter(|it| !it.1.is_empty()));
        }
        let response = fixture.get(&format!("{SECRETS}?watch=1&timeoutSeconds=600&{query}"), &headers).await;
        let wanted = if websocket.is_some() { StatusCode::SWITCHING_PROTOCOLS } else { StatusCode::OK };
        assert_eq!(response.status(), wanted, "{accept}");
        let agreed = response.headers().get(header::SEC_WEBSOCKET_PROTOCOL).map(|it| it.to_str().unwrap());
        assert_eq!(agreed, websocket.filter(|it| !it.is_empty()), "{accept}");
        let (seen, reading) = watch_bytes::read(response, websocket.is_some());
        Self { seen, reading: AbortOnDropHandle::new(reading) }
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

    /// Waits until there are so many events of these types.
    pub(crate) async fn until_counts(&self, types: [&str; 2], counts: [usize; 2]) {
        let sought = format!("{counts:?} of {types:?}");
        let shown = eventually(&sought, SOON, || async {
            let now = [self.count(types[0], "").await, self.count(types[1], "").await];
            if now == counts { Ok(()) } else { Err(format!("{now:?}, ended: {}", self.has_ended())) }
        });
        shown.await.unwrap();
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

/// After a minute a bookmark takes a watch past everything, whether or not the proxy could read what came before.
const BOOKMARK: Duration = Duration::from_secs(50);

/// Of each format: a watch with a label selector, one with a name, and one with a field selector that only the API server
/// understands. None shows the object, none wants bookmarks, and nothing else happens on any. A watch that shows it, and in
/// which the proxy has to read how far it has come, has its `DELETED`. The proxy ends none of them.
pub(crate) async fn no_watch_holds_for_long_what_it_never_showed(world: &Proxies) {
    let fixture = &Fixture::start(world, "watches").await;
    for format in FORMATS {
        let name = format!("idle-{}", format.0);
        let from = fixture.create(&name).await;
        let begun = Instant::now();
        let open = async |query: &str| Watch::open(fixture, query, format).await;
        let others = [
            open(&format!("resourceVersion={from}&labelSelector=app%3Dother")).await,
            open(&format!("resourceVersion={from}&fieldSelector=metadata.name%3Dother")).await,
            open(&format!("resourceVersion={from}&fieldSelector=type%3Dkubernetes.io/tls")).await,
        ];
        let sees = open(STREAMING).await;
        sees.until_shows(&name).await;
        fixture.drain(&name, "move-1").await;
        fixture.until_let_go(&name).await;
        in_time("the release before the first bookmark", begun.elapsed(), BOOKMARK);
        sees.until_shows("DELETED").await;
        let next = format!("next-{}", format.0);
        fixture.create(&next).await;
        sees.until_shows(&next).await;
        for watch in others {
            assert!(!watch.has_ended(), "{name}: a watch was ended");
            assert!(!watch.shows("BOOKMARK").await, "{name}: no client asked for one");
        }
    }
}
