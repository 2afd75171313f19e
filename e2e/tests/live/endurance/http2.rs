//! A client that has everything on one HTTP/2 connection, with the windows of a Go client.

use std::{path::Path, time::Duration};

use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use ringside_e2e::proxy::Proxy;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::time::{Instant, timeout, timeout_at};

use super::fixture::{DEADLINE, NAMESPACE};

/// As golang.org/x/net/http2 has them: for a stream, and for all of a connection.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// A watch that begins with what there is.
pub(crate) const STREAMING_LIST: &str =
    "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

pub(crate) struct Http2 {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    base: String,
    token: String,
}

impl Http2 {
    pub(crate) fn new(proxy: &Proxy) -> Self {
        let token = std::fs::read_to_string(proxy.access.join("token")).unwrap();
        let tls = trusting(&proxy.access.join("ca.crt"));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http2().build();
        let client = Client::builder(TokioExecutor::new())
            .http2_only(true)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .build(connector);
        Self { client, base: format!("https://localhost:{}", proxy.port), token }
    }

    /// The head of the answer, and its body to come.
    pub(crate) async fn get(&self, path: &str) -> Response<Incoming> {
        self.get_as(path, "application/json").await
    }

    async fn get_as(&self, path: &str, accept: &str) -> Response<Incoming> {
        let request = Request::get(format!("{}{path}", self.base)).header("accept", accept);
        let request = request.header("authorization", format!("Bearer {}", self.token));
        let answered = self.client.request(request.body(Empty::new()).unwrap());
        timeout(DEADLINE, answered).await.expect("no answer").unwrap()
    }

    /// All that is in the answer.
    pub(crate) async fn text(&self, path: &str) -> String {
        let body = timeout(DEADLINE, self.get(path).await.into_body().collect()).await.expect("no whole answer");
        String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap()
    }

    /// A watch that has shown what there was.
    pub(crate) async fn watch(&self) -> Watch {
        self.watch_as("application/json").await
    }

    /// The same for metadata alone, which is small whatever the objects are.
    pub(crate) async fn watch_names(&self) -> Watch {
        self.watch_as("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").await
    }

    /// The same in protobuf.
    pub(crate) async fn watch_names_in_protobuf(&self) -> Watch {
        self.watch_as("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").await
    }

    async fn watch_as(&self, accept: &str) -> Watch {
        let answer = self.get_as(&objects(STREAMING_LIST), accept).await;
        assert!(answer.status().is_success(), "{}", answer.status());
        let mut watch = Watch { body: answer.into_body(), text: String::new() };
        watch.until("k8s.io/initial-events-end", DEADLINE).await;
        watch
    }
}

/// The path of the objects that the cases work with.
pub(crate) fn objects(query: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps?{query}")
}

pub(crate) fn trusting(authority: &Path) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
}

pub(crate) struct Watch {
    body: Incoming,
    text: String,
}

/// How a watch ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    InOrder,
    Error,
}

impl Watch {
    /// Reads until that has come.
    pub(crate) async fn until(&mut self, wanted: &str, within: Duration) {
        let read = async {
            while !self.text.contains(wanted) {
                let frame = self.body.frame().await.expect("the watch has ended").unwrap();
                self.text.push_str(&String::from_utf8_lossy(&frame.into_data().unwrap_or_default()));
            }
        };
        timeout(within, read).await.unwrap_or_else(|_| panic!("no '{wanted}' within {within:?}"));
    }

    /// Waits for so long, in which nothing may come but a bookmark, which comes once a minute.
    pub(crate) async fn nothing(&mut self, within: Duration) {
        let until = Instant::now() + within;
        while let Ok(frame) = timeout_at(until, self.body.frame()).await {
            let data = frame.expect("the watch has ended").unwrap().into_data().unwrap_or_default();
            assert!(data.starts_with(br#"{"type":"BOOKMARK""#), "{}", String::from_utf8_lossy(&data));
        }
    }

    /// Reads to the end.
    pub(crate) async fn end(self, within: Duration) -> End {
        let read = async {
            let mut body = self.body;
            loop {
                match body.frame().await {
                    Some(Ok(_)) => {}
                    Some(Err(_)) => return End::Error,
                    None => return End::InOrder,
                }
            }
        };
        timeout(within, read).await.unwrap_or_else(|_| panic!("no end within {within:?}"))
    }
}
