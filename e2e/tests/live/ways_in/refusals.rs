//! Who has no token, or another one, beside what the API server says to a wrong one.

use std::{mem::take, path::Path};

use http::{HeaderMap, HeaderName, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use prost::Message as _;
use serde_json::{Value, json};

use super::World;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Of each answer alone, whoever gives it.
const OF_ITS_OWN: [HeaderName; 4] =
    [header::DATE, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, HeaderName::from_static("audit-id")];

const WEBSITES: &str = "/apis/web.example.com/v1/websites";
const WATCH: &str = "/apis/web.example.com/v1/websites?watch=1";
const EXEC: &str = "/api/v1/namespaces/default/pods/shard-0/exec?command=true";

/// What is asked: a representation, and whether the connection is to be upgraded.
const ASKED: [(Method, &str, &str, bool); 8] = [
    (Method::GET, WEBSITES, JSON, false),
    (Method::GET, "/api/v1/secrets", PROTOBUF, false),
    (Method::GET, "/api/v1/secrets?watch=1", "application/vnd.kubernetes.protobuf;stream=watch", false),
    (Method::GET, WATCH, JSON, true),
    (Method::GET, EXEC, "*/*", true),
    // Of no resource of the ring: there the proxy reads the body first.
    (Method::POST, "/api/v1/namespaces/default/services", PROTOBUF, false),
    (Method::GET, "/version", JSON, false),
    (Method::GET, "/nowhere", JSON, false),
];

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// Who holds `user` asks the server of a kubeconfig.
async fn ask(kubeconfig: &Path, user: Value, request: Request<Body>) -> Answer {
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
    config["users"][0]["user"] = user;
    let config = Kubeconfig::from_yaml(&config.to_string()).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let response = Client::try_from(config).unwrap().send(request).await.unwrap();
    let (head, body) = response.into_parts();
    let upgraded = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let body = if upgraded { Vec::new() } else { body.collect().await.unwrap().to_bytes().to_vec() };
    Answer { status: head.status, headers: head.headers, body }
}

fn request(method: &Method, path: &str, accept: &str, upgrade: bool) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
    if upgrade {
        let handshake = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("origin", "http://localhost"),
        ];
        request = handshake.iter().fold(request, |request, &(name, value)| request.header(name, value));
    }
    request.body(Body::empty()).unwrap()
}

/// What is before a message of protobuf (k8s.io/apimachinery, `runtime.serializer.protobuf`).
const PREFIX: &[u8] = b"k8s\0";

/// An envelope, as far as it matters here (`runtime.Unknown`).
#[derive(PartialEq, prost::Message)]
struct Unknown {
    #[prost(bytes = "vec", tag = "1")]
    type_meta: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
    #[prost(string, tag = "3")]
    content_encoding: String,
    #[prost(string, tag = "4")]
    content_type: String,
}

/// `meta.v1.ListMeta`: a field that is empty may be left out.
#[derive(PartialEq, prost::Message)]
struct ListMeta {
    #[prost(string, tag = "1")]
    self_link: String,
    #[prost(string, tag = "2")]
    resource_version: String,
    #[prost(string, tag = "3")]
    continue_: String,
}

/// `meta.v1.Status`.
#[derive(PartialEq, prost::Message)]
struct Status {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
    #[prost(string, tag = "2")]
    status: String,
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(bytes = "vec", optional, tag = "5")]
    details: Option<Vec<u8>>,
    #[prost(int32, tag = "6")]
    code: i32,
}

/// A `Status` without its message, which is each server's own.
fn comparable(body: &[u8]) -> String {
    let Some(envelope) = body.strip_prefix(PREFIX) else {
        let mut status: Value = serde_json::from_slice(body).unwrap();
        assert!(status["message"].take().is_string(), "{status}");
        return status.to_string();
    };
    let mut unknown = Unknown::decode(envelope).unwrap();
    let mut status = Status::decode(&*take(&mut unknown.raw)).unwrap();
    assert!(!take(&mut status.message).is_empty(), "{status:?}");
    assert_eq!(status.code, i32::from(StatusCode::UNAUTHORIZED.as_u16()));
    format!("{unknown:?} {status:?}")
}

pub(crate) async fn wrong_token(world: &World) {
    let (proxy, api_server) = servers(world);
    for (method, path, accept, upgrade) in ASKED {
        let wrong = json!({"token": "wrong"});
        let ours = ask(&proxy, wrong.clone(), request(&method, path, accept, upgrade)).await;
        let theirs = ask(&api_server, wrong, request(&method, path, accept, upgrade)).await;
        assert_eq!((ours.status, theirs.status), (StatusCode::UNAUTHORIZED, StatusCode::UNAUTHORIZED), "{path}");
        assert_eq!(comparable(&ours.body), comparable(&theirs.body), "{path}");
        let common = |mut headers: HeaderMap| {
            OF_ITS_OWN.iter().for_each(|name| drop(headers.remove(name)));
            headers
        };
        assert_eq!(common(ours.headers), common(theirs.headers), "{path}");
    }
}

/// The API server takes who has none for anonymous, and lets everybody read its version. The proxy has no such user.
pub(crate) async fn no_token(world: &World) {
    let (proxy, _) = servers(world);
    for (method, path, accept, upgrade) in ASKED {
        let answer = ask(&proxy, json!({}), request(&method, path, accept, upgrade)).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
        comparable(&answer.body);
    }
}

pub(crate) async fn subprotocol(world: &World) {
    let (proxy, api_server) = servers(world);
    let token = std::fs::read(world.system.shards().next().unwrap().access().join("token")).unwrap();
    let mut agreed = Vec::new();
    for (server, token) in [(proxy, token), (api_server, world.system.control_plane().admin_token().into())] {
        let mut request = request(&Method::GET, WATCH, JSON, true);
        let protocols = format!("base64url.bearer.authorization.k8s.io.{}, binary.k8s.io", base64url(&token));
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, protocols.parse().unwrap());
        let answer = ask(&server, json!({}), request).await;
        let says = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status, StatusCode::SWITCHING_PROTOCOLS, "{}: {says}", server.display());
        agreed.push(answer.headers.get(header::SEC_WEBSOCKET_PROTOCOL).cloned());
    }
    assert_eq!(agreed[0], agreed[1]);
}

fn servers(world: &World) -> (std::path::PathBuf, std::path::PathBuf) {
    (world.system.shards().next().unwrap().kubeconfig(), world.system.control_plane().kubeconfig_path())
}

/// By way of Kubernetes' type for bytes, which writes itself in base64.
fn base64url(bytes: &[u8]) -> String {
    let text = json!(k8s_openapi::ByteString(bytes.to_vec()));
    text.as_str().unwrap().trim_end_matches('=').replace('+', "-").replace('/', "_")
}
