//! The clients of these cases: watches, sessions in pods, and requests on one connection.

use std::time::Duration;

use ringside_e2e::{
    compatibility::{
        client::{Answer, Ask, Connection, Endpoint, Http, Open},
        compare::contains,
        raw::Raw,
    },
    proxy::Proxy,
};
use tokio::{net::TcpStream, time::timeout};

use super::fixture::PATIENCE;
use crate::proxies::{NAMESPACE, Proxies, endpoint};

/// A watch that begins with what there is.
pub(crate) const STREAMING_LIST: &str =
    "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

/// Metadata alone, which is small whatever the objects are.
pub(crate) const NAMES: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
pub(crate) const NAMES_IN_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A watch that selects nothing. It has no bookmarks, of which a second one may follow on the first at once.
const NOTHING: &str = "watch=1&labelSelector=nothing";

/// What ends a WebSocket in order: a frame that closes it, with 1000 (RFC 6455, section 5.5.1).
pub(crate) const CLOSED: &[u8] = &[0x88, 2, 0x03, 0xe8];

/// A session in a pod that no node runs.
const EXEC: &str = "/api/v1/namespaces/default/pods/a-pod/exec?command=sleep&stdout=true";

/// What all requests are marked with, but for sessions.
const MARK: &str = "endurance";

/// The path of the objects that the cases work with.
pub(crate) fn objects(query: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps?{query}")
}

/// A client that has all its requests on one HTTP/2 connection.
pub(crate) struct Client(Connection);

impl Client {
    pub(crate) async fn new(proxy: &Proxy) -> Self {
        Self(endpoint(proxy).connection().await.unwrap())
    }

    /// The head of the answer, and its body to come.
    pub(crate) async fn get(&self, path: &str, accept: &str) -> Open {
        let ask = Ask::get(path).accept(accept);
        timeout(PATIENCE, self.0.open(&ask, MARK)).await.expect("no answer").unwrap()
    }

    /// All that is in the answer.
    pub(crate) async fn text(&self, path: &str) -> String {
        whole(self.get(path, "application/json").await).await.text()
    }

    /// A watch that has shown what there was.
    pub(crate) async fn watch(&self, accept: &str) -> Watch {
        Watch::begun(self.get(&objects(STREAMING_LIST), accept).await).await
    }
}

/// Reads all of an answer.
pub(crate) async fn whole(open: Open) -> Answer {
    timeout(PATIENCE, open.collect()).await.expect("no whole answer").unwrap()
}

pub(crate) struct Watch(Open);

/// How a watch ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    InOrder,
    Error,
}

impl Watch {
    /// A watch by HTTP/1.1 that has shown what there was.
    pub(crate) async fn by_http1(proxy: &Proxy) -> Self {
        let ask = Ask::get(objects(STREAMING_LIST)).accept(NAMES);
        Self::begun(endpoint(proxy).open(Http::One, &ask, MARK).await.unwrap()).await
    }

    /// A watch past the proxy, on this connection, that has nothing to say.
    pub(crate) async fn past(stream: TcpStream, fixture: &Proxies) -> Self {
        let plane = &fixture.control_plane;
        let endpoint = Endpoint::new(plane.address(), &plane.ca_path(), plane.admin_token()).unwrap();
        let ask = Ask::get(objects(NOTHING)).accept(NAMES);
        Self::answered(endpoint.open_on(stream, &ask, MARK).await.unwrap())
    }

    fn answered(open: Open) -> Self {
        assert!(open.head.status.is_success(), "{}", open.head.status);
        Self(open)
    }

    async fn begun(open: Open) -> Self {
        let mut watch = Self::answered(open);
        watch.until("k8s.io/initial-events-end").await;
        watch
    }

    /// Reads until that has come.
    pub(crate) async fn until(&mut self, wanted: &str) {
        let read = timeout(PATIENCE, self.0.until(|read| contains(read, wanted.as_bytes()))).await;
        read.unwrap_or_else(|_| panic!("no '{wanted}'")).unwrap();
    }

    /// Waits for so long, in which nothing may come but a bookmark, which comes once a minute.
    pub(crate) async fn nothing(&mut self, within: Duration) {
        self.0.nothing(within).await.unwrap();
    }

    /// Reads to the end.
    pub(crate) async fn end(self, within: Duration) -> End {
        let end = timeout(within, self.0.end()).await.unwrap_or_else(|_| panic!("no end within {within:?}"));
        if end.is_ok() { End::InOrder } else { End::Error }
    }
}

/// Asks by HTTP/1.1, and reads nothing of the answer.
pub(crate) async fn unread(proxy: &Proxy, query: &str) -> Raw {
    let ask = Ask::get(objects(query)).header("Connection", "close");
    Raw::send(&endpoint(proxy), &ask, MARK).await.unwrap()
}

/// What goes on with another protocol: a watch by WebSocket, or a session in a pod, of which nothing is known but bytes.
pub(crate) struct Upgraded(Raw);

impl Upgraded {
    /// A watch that has begun, and has nothing to say.
    pub(crate) async fn watch(proxy: &Proxy) -> Self {
        let ask = upgrade(&objects(NOTHING), "websocket").header("Origin", "http://localhost");
        Self::begun(Raw::send(&endpoint(proxy), &ask, MARK).await.unwrap(), b"").await
    }

    /// Asks for a session in a pod that is not there: that needs a connection to the API server of its own.
    pub(crate) async fn refused(proxy: &Proxy) {
        let asked =
            async { Raw::send(&endpoint(proxy), &upgrade(EXEC, "websocket"), MARK).await.unwrap().head().await };
        let head = timeout(PATIENCE, asked).await.expect("no answer").unwrap();
        assert!(head.status.starts_with("HTTP/1.1 404"), "{head:?}");
    }

    /// A session by a protocol that the API server agrees to, which has said this. The protocol is its mark.
    pub(crate) async fn exec(proxy: &Proxy, protocol: &str, said: &[u8]) -> Self {
        Self::begun(Raw::send(&endpoint(proxy), &upgrade(EXEC, protocol), protocol).await.unwrap(), said).await
    }

    async fn begun(mut raw: Raw, said: &[u8]) -> Self {
        let begin = async {
            let head = raw.head().await.unwrap();
            assert!(head.status.starts_with("HTTP/1.1 101"), "{head:?}");
            assert_eq!(raw.exactly(said.len()).await.unwrap(), said);
        };
        timeout(PATIENCE, begin).await.expect("no session");
        Self(raw)
    }

    /// Sends a ping of the client's own, masked with zeros, and reads its pong.
    pub(crate) async fn ping(&mut self) {
        self.0.write(b"\x89\x82\0\0\0\0hi").await.unwrap();
        assert_eq!(timeout(PATIENCE, self.0.exactly(4)).await.expect("no pong").unwrap(), b"\x8a\x02hi");
    }

    /// Waits for so long, in which nothing may come, and no end either.
    pub(crate) async fn nothing(&mut self, within: Duration) {
        self.0.nothing(within).await.unwrap();
    }

    /// All that still comes, to the end.
    pub(crate) async fn rest(self, within: Duration) -> Vec<u8> {
        timeout(within, self.0.rest()).await.unwrap_or_else(|_| panic!("no end within {within:?}")).unwrap()
    }
}

fn upgrade(target: &str, protocol: &str) -> Ask {
    let ask = Ask::get(target).header("Connection", "Upgrade").header("Upgrade", protocol);
    ask.header("Sec-WebSocket-Version", "13").header("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
}
