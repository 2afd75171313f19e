//! Who may pass, and what the others are told.

use super::*;

const SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.c2VjcmV0LjA, v5.channel.k8s.io";

fn without_token(uri: &str, headers: &[(&'static str, &'static str)]) -> Request<Body> {
    let mut request = ask("GET", uri);
    request.headers_mut().remove(header::AUTHORIZATION);
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    request
}

#[tokio::test]
async fn without_the_token_nothing_passes_whatever_is_asked() {
    let lab = Lab::new(|_| ok());
    let upgrade = [("connection", "Upgrade"), ("upgrade", "websocket")];
    for uri in [
        "/version",
        "/healthz",
        "/openapi/v3",
        "/apis/x.io/v1/things",
        "/apis/x.io/v1/things?watch=1",
        "/api/v1/namespaces/a/pods/b/exec?command=sh",
        "/version?access_token=secret&authorization=Bearer%20secret",
        "/not%zzvalid",
    ] {
        for wrong in [None, Some("Bearer wrong"), Some("Basic secret"), Some("secret"), Some("Bearer secret2")] {
            for headers in [&[][..], &upgrade] {
                let mut request = without_token(uri, headers);
                if let Some(wrong) = wrong {
                    request.headers_mut().insert(header::AUTHORIZATION, HeaderValue::from_static(wrong));
                }
                let response = lab.send(request).await;
                assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{uri} {wrong:?}");
                let status: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
                let says = |field: &str| status[field].as_str().unwrap().to_owned();
                assert_eq!((says("kind"), says("reason")), ("Status".to_owned(), "Unauthorized".to_owned()));
            }
        }
    }
    assert!(lab.seen.lock().is_empty(), "the API server hears nothing of it");
}

#[tokio::test]
async fn with_the_token_only_the_request_passes_and_no_credential() {
    let lab = Lab::new(|_| ok());
    let mut request = ask("GET", "/version");
    request.headers_mut().insert("x-remote-user", HeaderValue::from_static("admin"));
    assert_eq!(lab.send(request).await.status(), StatusCode::OK);
    assert!(lab.last().headers.is_empty(), "{:?}", lab.last().headers);
}

#[tokio::test]
async fn a_browsers_websocket_passes_with_its_token_among_the_subprotocols() {
    let lab = Lab::new(|_| ok());
    let handshake = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-protocol", SUBPROTOCOL)];
    let response = lab.send(without_token("/api/v1/namespaces/a/pods/b/exec?command=sh", &handshake)).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(lab.last().headers["sec-websocket-protocol"], "v5.channel.k8s.io");
    let plain = lab.send(without_token("/version", &handshake[2..])).await;
    assert_eq!(plain.status(), StatusCode::UNAUTHORIZED, "it is a way in for WebSockets alone");
}

#[tokio::test]
async fn a_client_of_protobuf_is_refused_in_protobuf() {
    let lab = Lab::new(|_| ok());
    let accept = "application/vnd.kubernetes.protobuf,application/json";
    let response = lab.send(without_token("/api/v1/pods", &[("accept", accept)])).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/vnd.kubernetes.protobuf");
    assert!(response.into_body().collect().await.unwrap().to_bytes().starts_with(b"k8s\0"));
}
