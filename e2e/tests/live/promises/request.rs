//! Requests through a proxy that stands still, or is about to, and what the API server writes down about them.

use std::{fs, path::Path, time::Duration};

use kube::{Api, api::ListParams};
use ringside_e2e::{
    audit,
    compatibility::client::{Endpoint, Http},
    eventually::eventually,
    relay::{MARK, Relay},
    system::{NAMESPACE, Shard, System},
    website::Website,
};
use ringside_ring::{RingLabels, RingName};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(90);

/// So many requests of each kind, each to another object.
pub(crate) const SENT: usize = 3;

/// How a controller finds the proxy of a shard.
pub(crate) fn endpoint(shard: &Shard) -> Endpoint {
    let token = fs::read_to_string(shard.access().join("token")).unwrap();
    Endpoint::new(shard.address(), &shard.access().join("ca.crt"), token.trim()).unwrap()
}

/// Connections for requests to [`SENT`] of these objects.
pub(crate) async fn connect(proxy: &Endpoint, mark: &str, objects: &[String]) -> Vec<Request> {
    let mut requests = Vec::new();
    for object in &objects[..SENT] {
        requests.push(Request::new(proxy, mark, object).await);
    }
    requests
}

/// The same, of which the proxy has the heads, and has let them through.
pub(crate) async fn admit(proxy: &Endpoint, mark: &str, objects: &[String]) -> Vec<Request> {
    let mut requests = connect(proxy, mark, objects).await;
    for request in &mut requests {
        request.until_admitted().await;
    }
    requests
}

/// The same, which have left the proxy and wait in the relay.
pub(crate) async fn hold(relay: &Relay, proxy: &Endpoint, mark: &str, objects: &[String]) -> Vec<Request> {
    relay.hold(mark);
    let mut requests = admit(proxy, mark, objects).await;
    for request in &mut requests {
        request.send_body().await;
    }
    eventually("they have left the proxy", DEADLINE, || async {
        let here = relay.held(mark);
        if here == SENT { Ok(()) } else { Err(format!("{here} have")) }
    })
    .await
    .unwrap();
    requests
}

/// Lets the API server have what waits in the relay; returns what it wrote down about that.
pub(crate) async fn release(system: &System, relay: &Relay, mark: &str) -> Vec<Value> {
    relay.release(mark);
    eventually("the API server has answered all of it", DEADLINE, || async {
        let written = audited(&system.control_plane().audit_log(), mark);
        if written.len() == SENT { Ok(written) } else { Err(format!("{written:?}")) }
    })
    .await
    .unwrap()
}

/// A request through a proxy that is sent bit by bit, on a connection of its own.
pub(crate) struct Request {
    stream: TlsStream<TcpStream>,
    head: String,
    body: String,
}

impl Request {
    /// One that changes an annotation, on a connection that is there, with nothing sent yet. Its audit id begins with its
    /// mark.
    async fn new(proxy: &Endpoint, mark: &str, name: &str) -> Self {
        let body = format!("{{\"metadata\":{{\"annotations\":{{\"sent\":\"{mark}\"}}}}}}");
        let head = format!(
            "PATCH /apis/web.example.com/v1/namespaces/{NAMESPACE}/websites/{name} HTTP/1.1\r\nhost: {}\r\n\
             authorization: Bearer {}\r\naudit-id: {mark}-{name}\r\n{MARK}: {mark}\r\n\
             content-type: application/merge-patch+json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
            proxy.address(),
            proxy.token(),
            body.len(),
        );
        Self { stream: proxy.connect(Http::One).await.unwrap(), head, body }
    }

    async fn send_head(&mut self) {
        self.stream.write_all(self.head.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Returns when the proxy asks for the body: then it has let the request through.
    async fn until_admitted(&mut self) {
        self.send_head().await;
        let mut interim = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        timeout(DEADLINE, self.stream.read_exact(&mut interim)).await.unwrap().unwrap();
        assert!(interim.starts_with(b"HTTP/1.1 100 "), "{}", String::from_utf8_lossy(&interim));
    }

    /// Sends it to a proxy that may not read it.
    pub(crate) async fn send(&mut self) {
        self.send_head().await;
        self.send_body().await;
    }

    pub(crate) async fn send_body(&mut self) {
        self.stream.write_all(self.body.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The status of the answer; empty when the connection was cut.
    pub(crate) async fn answer(mut self) -> String {
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\n") || read.starts_with(b"HTTP/1.1 100 ") {
            if read.ends_with(b"\r\n\r\n") {
                read.clear();
            }
            match timeout(DEADLINE, self.stream.read_u8()).await.expect("an answer or an end") {
                Ok(byte) => read.push(byte),
                Err(_) => return String::new(),
            }
        }
        String::from_utf8_lossy(&read).split(' ').nth(1).unwrap_or_default().to_owned()
    }
}

/// The events of requests whose audit ids begin so.
fn audited(log: &Path, ids: &str) -> Vec<Value> {
    let events = audit::events(log, ids).unwrap().into_iter();
    events.filter(|event| event["auditID"].as_str().is_some_and(|id| id.starts_with(ids))).collect()
}

/// The names of a shard's objects.
pub(crate) async fn owned(system: &System, ring: &RingName, shard: &str) -> Vec<String> {
    let api: Api<Website> = Api::namespaced(system.control_plane().client(), NAMESPACE);
    let own = RingLabels::of(ring).owned_by(&shard.parse().unwrap());
    let found = api.list_metadata(&ListParams::default().labels(&own)).await.unwrap();
    found.items.iter().map(kube::ResourceExt::name_any).collect()
}
