//! What no request brings in: other protocols, tunnels, and headers of the client's connection.

use super::*;

/// A server that changes to whatever protocol it is asked for.
fn obliging() -> Lab {
    Lab::new(|seen| {
        let mut response = ok();
        if seen.headers.contains_key(header::UPGRADE) {
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert(header::UPGRADE, seen.headers[header::UPGRADE].clone());
        }
        response
    })
}

async fn upgraded(uri: &str, protocol: &'static str) -> bool {
    let lab = obliging();
    let mut request = ask("GET", uri);
    for (name, value) in [(header::CONNECTION, "keep-alive, Upgrade"), (header::UPGRADE, protocol)] {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let response = lab.send(request).await;
    let headers = lab.last().headers;
    let [connection, upgrade] = [header::CONNECTION, header::UPGRADE].map(|name| headers.contains_key(name));
    assert_eq!(connection, upgrade, "{uri} {protocol}: one means nothing without the other");
    assert_eq!(response.status() == StatusCode::SWITCHING_PROTOCOLS, upgrade, "{uri} {protocol}");
    if !upgrade {
        assert_eq!(text(response).await, "{}", "{uri} {protocol}");
    }
    upgrade
}

#[tokio::test]
async fn protocols_change_only_where_the_api_has_streams_and_to_its_protocols_alone() {
    let (pod, service) = ("/api/v1/namespaces/a/pods/b", "/api/v1/namespaces/a/services/b/proxy/chat");
    let streams = ["exec", "attach", "portforward", "proxy"].map(|it| format!("{pod}/{it}"));
    let watches = ["/api/v1/pods?watch=1", "/api/v1/watch/pods"].map(str::to_owned);
    let plain = [
        "/version",
        "/api/v1/pods",
        pod,
        &format!("{pod}/status"),
        "/apis/x.io/v1/things",
        "/apis/x.io/v1/namespaces/a/pods/b/exec",
        "/api/v1/namespaces/a/services/b/exec",
        "/api/v1/proxy/namespaces/a/services/b",
    ]
    .map(str::to_owned);
    for protocol in ["websocket", "WebSocket", "SPDY/3.1", "spdy/3.1", "h2c", "TLS/1.0", "SPDY/3", "websocket, h2c"] {
        let name = protocol.to_ascii_lowercase();
        for uri in streams.iter().chain([&service.to_owned()]) {
            assert_eq!(upgraded(uri, protocol).await, ["websocket", "spdy/3.1"].contains(&&*name), "{uri} {protocol}");
        }
        for uri in &watches {
            assert_eq!(upgraded(uri, protocol).await, name == "websocket", "{uri} {protocol}");
        }
        for uri in &plain {
            assert!(!upgraded(uri, protocol).await, "{uri} {protocol}");
        }
    }
}

#[tokio::test]
async fn connect_and_trace_are_refused_before_anything_leaves() {
    let lab = Lab::new(|_| ok());
    for method in ["CONNECT", "TRACE"] {
        for uri in ["/version", "/apis/x.io/v1/things", "/api/v1/namespaces/a/pods/b/exec"] {
            let refused = lab.send(ask(method, uri)).await;
            assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {uri}");
            let allowed = refused.headers()[header::ALLOW].to_str().unwrap();
            assert!(allowed.contains("GET") && !allowed.contains(method), "{allowed}");
            let status: serde_json::Value = serde_json::from_str(&text(refused).await).unwrap();
            assert_eq!(status["reason"], "MethodNotAllowed", "{status}");
        }
    }
    assert!(lab.seen.lock().is_empty(), "the API server hears nothing of it");
}

#[tokio::test]
async fn no_stage_reads_a_header_of_the_clients_connection() {
    let lab = Lab::new(|_| ok());
    let mut request = ask("DELETE", "/apis/x.io/v1/namespaces/a/things").map(|_| full("{}"));
    for (name, value) in [("connection", "content-encoding, x-mine"), ("content-encoding", "gzip"), ("x-mine", "1")] {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    for name in ["keep-alive", "proxy-connection", "proxy-authorization", "transfer-encoding"] {
        request.headers_mut().insert(name, HeaderValue::from_static("1"));
    }
    request.headers_mut().insert(header::TE, HeaderValue::from_static("deflate, trailers"));
    assert_eq!(lab.send(request).await.status(), StatusCode::OK, "the proxy read what the API server was not sent");
    let seen = lab.last();
    assert!(seen.uri.query().unwrap().contains("labelSelector"), "{}", seen.uri);
    let names: Vec<_> = seen.headers.keys().map(http::HeaderName::as_str).collect();
    assert_eq!((names, &seen.headers[header::TE]), (vec!["te"], &HeaderValue::from_static("trailers")));
}

/// Such a path is a list on servers that serve several clusters, and nothing would filter it.
#[tokio::test]
async fn an_api_behind_a_prefix_is_refused_with_the_remedy() {
    let lab = Lab::new(|_| ok());
    let refused = lab.get("/clusters/x/apis/x.io/v1/things").await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let status = text(refused).await;
    assert!(status.contains("prefix") && status.contains("kubeconfig"), "{status}");
    assert!(lab.seen.lock().is_empty(), "the API server hears nothing of it");
}
