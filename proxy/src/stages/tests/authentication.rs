//! Who may pass, and what the others are told.

use ringside_runtime::connection_limit::ConnectionLimit;
use tokio::time::timeout;

use super::{
    fencing::{Fenced, OURS, PARTS, THINGS, holds},
    *,
};
use crate::{
    body::BodyError,
    budget::SHARE,
    serve::Caller,
    stages::{
        Handler as _,
        authenticate::{Accounts, Authenticate, Foreign},
        context::IncomingRequest,
    },
    status::Refusal,
};

/// As a proxy wrote it whose access folder is gone.
const OUTDATED: &str = "Bearer 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.3";
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
        for wrong in [None, Some(OUTDATED), Some("Basic secret"), Some("secret"), Some("Bearer ")] {
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

fn as_tenant(method: &str, uri: &str, body: &'static str) -> Request<Body> {
    let mut request = ask(method, uri).map(|_| full(body));
    request.headers_mut().insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer tenant"));
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content));
    request
}

/// What an API server does that knows the tenant, who may patch nothing, and no other account.
fn known_tenant(seen: &Seen) -> Response<Body> {
    let token = seen.headers.get(header::AUTHORIZATION);
    let tenant = token.is_some_and(|it| it == "Bearer tenant");
    if token.is_some() && !tenant {
        return with(StatusCode::UNAUTHORIZED);
    }
    if is_review(seen) {
        return json(full(r#"{"metadata":{},"status":{"userInfo":{"username":"tenant"}}}"#));
    }
    if tenant && seen.method == Method::PATCH {
        let mut forbidden = json(full(r#"{"kind":"Status","code":403,"reason":"Forbidden"}"#));
        *forbidden.status_mut() = StatusCode::FORBIDDEN;
        return forbidden;
    }
    match seen.uri.query() {
        Some(query) if query.contains("fieldSelector") => {
            let labels = if query.contains("theirs") { r#"{"s":"other"}"# } else { r#"{"s":"me"}"# };
            let name = if query.contains("theirs") { "theirs" } else { "ours" };
            json(full(format!(r#"{{"items":[{{"metadata":{{"name":"{name}","uid":"{name}","labels":{labels}}}}}]}}"#)))
        }
        _ => ok(),
    }
}

/// Whether the API server is asked whose a token is.
fn is_review(seen: &Seen) -> bool {
    seen.uri.path().ends_with("/selfsubjectreviews")
}

#[tokio::test]
async fn another_accounts_request_is_narrowed_and_fenced_and_sent_with_its_own_token_alone() {
    let lab = Lab::new(known_tenant);
    let mut list = as_tenant("GET", "/apis/x.io/v1/things", "");
    list.headers_mut().insert("impersonate-user", HeaderValue::from_static("jane"));
    assert_eq!(lab.send(list).await.status(), StatusCode::OK);
    let seen = lab.last();
    assert!(seen.uri.query().unwrap().contains("labelSelector=s%3Dme%2C%21d"), "{}", seen.uri);
    assert_eq!(
        (&seen.headers["authorization"], &seen.headers["impersonate-user"]),
        (&"Bearer tenant".parse().unwrap(), &"jane".parse().unwrap())
    );
    // Of another shard's object nothing but that it is another's, and of this shard's what the API server says to the tenant.
    let patch = |name: &str| as_tenant("PATCH", &format!("/apis/x.io/v1/namespaces/a/things/{name}"), "{}");
    assert_eq!(lab.send(patch("theirs")).await.status(), StatusCode::CONFLICT);
    let asked = lab.last();
    assert!(asked.uri.query().unwrap().contains("fieldSelector"));
    assert!(!asked.headers.contains_key(header::AUTHORIZATION), "the fence asks with the pod's rights");
    assert_eq!(lab.send(patch("ours")).await.status(), StatusCode::FORBIDDEN);
    assert_eq!((lab.shared.metrics.were_unseen("credentials"), lab.shared.metrics.were_foreign("passed")), (2, 3));
}

/// Else it would lead where the ring does, with the controller's lock.
#[tokio::test]
async fn another_account_elects_at_the_api_server_and_not_here() {
    let lab = Lab::new(known_tenant);
    let lease = r#"{"metadata":{"name":"lock"},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":"2026-01-01T00:00:00.000000Z","renewTime":"2026-01-01T00:00:00.000000Z","leaseTransitions":0}}"#;
    let uri = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
    assert_eq!(lab.send(as_tenant("POST", uri, lease)).await.status(), StatusCode::OK);
    assert_eq!(lab.last().uri, uri, "it is no dry run");
    assert_eq!(lab.seen.lock().iter().filter(|seen| !is_review(seen)).count(), 1);
}

#[tokio::test]
async fn another_accounts_token_is_refused_where_an_option_says_so() {
    let Shared { token, gaps, views, metrics, budget, .. } = Lab::new(known_tenant).shared;
    let unasked = Arc::new(|_: Request<Body>| unreachable!("the option decides"));
    let foreign = Foreign::new(ForeignTokens::Refuse, Accounts::new(unasked, budget), metrics.clone());
    let next = |_: Request<Body>| std::future::ready(Ok::<_, Refusal>(ok()));
    let stage = Authenticate::new(next, token, gaps, views, foreign);
    let refused = stage.call(IncomingRequest::of(as_tenant("GET", "/version", ""), Budget::default()).unwrap()).await;
    assert!(matches!(refused, Err(Refusal::Unauthorized)));
    assert_eq!(metrics.were_foreign("refused"), 1);
    assert!(stage.call(IncomingRequest::of(ask("GET", "/version"), Budget::default()).unwrap()).await.is_ok());
}

/// Whether the connection of a request is kept, even if other clients come.
async fn proves(lab: &Lab, token: &'static str) -> bool {
    let limit = ConnectionLimit::new(1, 1);
    let caller = Arc::new(Caller::new(limit.admit().await));
    let mut request = as_tenant("GET", "/version", "");
    request.headers_mut().insert(header::AUTHORIZATION, HeaderValue::from_static(token));
    request.extensions_mut().insert(caller.clone());
    drop(lab.send(request).await);
    let crowded_out = timeout(Duration::from_secs(1), limit.admit()).await.is_ok();
    assert!(!crowded_out, "its place is taken while it is open");
    caller.is_proven()
}

#[tokio::test(start_paused = true)]
async fn a_connection_proves_itself_by_the_right_token_and_by_another_one_that_the_api_server_takes() {
    let knowing = Lab::new(known_tenant);
    assert!(proves(&knowing, "Bearer secret.1").await);
    assert!(proves(&knowing, "Bearer tenant").await);
    assert!(!proves(&knowing, "Bearer invented").await);
    assert!(!proves(&knowing, "Basic secret.1").await);
    let silent = Lab::failing(Arc::new(|_| Err(UpstreamError::Unreachable("connection refused".into()))));
    assert!(!proves(&silent, "Bearer invented").await, "nothing is known of it");
    assert!(proves(&silent, "Bearer secret.1").await);
}

/// What a container of the pod can do that has no token.
#[tokio::test(start_paused = true)]
async fn invented_token_reaches_neither_gate_nor_fence_nor_budget() {
    let fenced = Fenced::answering(known_tenant);
    fenced.thing(OURS);
    let invented = |method: &str, uri: &str, body: Body| {
        let mut request = ask(method, uri).map(|_| body);
        request.headers_mut().insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer invented"));
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fenced.lab.send(request)
    };
    let guard = fenced.drained();
    let again = async {
        loop {
            assert_eq!(invented("DELETE", THINGS, empty()).await.status(), StatusCode::UNAUTHORIZED);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        () = guard.wait_idle() => assert!(guard.close()),
        () = again => {}
        () = tokio::time::sleep(Duration::from_secs(30)) => panic!("it holds the drain"),
    }
    for _ in 0..19 {
        let endless = boxed(StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, BodyError>>()));
        let refused = invented("POST", "/apis/x.io/v1/namespaces/a/parts", endless).now_or_never();
        assert_eq!(refused.expect("its body is read").status(), StatusCode::UNAUTHORIZED);
    }
    let seen = fenced.lab.seen.lock().clone();
    assert!(seen.len() == 1 && is_review(&seen[0]), "the API server is asked once: {seen:?}");
    fenced.lab.shared.gate.close();
    assert_eq!(invented("GET", THINGS, empty()).await.status(), StatusCode::UNAUTHORIZED, "and not told of the Lease");
}

#[tokio::test(start_paused = true)]
async fn another_account_that_may_not_write_renews_no_grace_and_the_controller_does() {
    for (tenant, holds_it) in [(true, false), (false, true)] {
        let fenced = Fenced::answering(|seen| {
            let is_write = seen.method == Method::DELETE;
            if is_write { with(StatusCode::FORBIDDEN) } else { known_tenant(seen) }
        });
        fenced.thing(OURS);
        let guard = fenced.drained();
        let again = async {
            for _ in 0..20 {
                let request = if tenant { as_tenant("DELETE", THINGS, "") } else { ask("DELETE", THINGS) };
                assert_eq!(fenced.lab.send(request).await.status(), StatusCode::FORBIDDEN);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        let held = tokio::select! {
            () = guard.wait_idle() => false,
            () = again => true,
        };
        assert_eq!(held, holds_it, "tenant: {tenant}");
        assert!(!holds(&guard, Duration::from_secs(3)).await);
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_of_one_account_leave_room_for_the_controllers() {
    let fenced = Fenced::answering(known_tenant);
    let part = |mut request: Request<Body>, body| {
        *request.body_mut() = body;
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fenced.lab.send(request)
    };
    // Of each body comes all but its last byte.
    let unended = || {
        let begun = futures::stream::once(std::future::ready(Ok(Frame::data(vec![b' '; SHARE - 1].into()))));
        boxed(StreamBody::new(begun.chain(futures::stream::pending::<Result<_, BodyError>>())))
    };
    let theirs = futures::future::join_all((0..4).map(|_| part(as_tenant("POST", PARTS, ""), unended())));
    let ours = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let used = fenced.lab.shared.budget.used();
        assert!((SHARE / 2..=SHARE).contains(&used), "{used}");
        let longest = format!("{{}}{}", " ".repeat(SHARE - 2));
        part(ask("POST", PARTS), full(longest)).await.status()
    };
    let (theirs, ours) = tokio::join!(theirs, ours);
    assert_eq!(ours, StatusCode::OK);
    let statuses: Vec<_> = theirs.iter().map(|answer| answer.status().as_u16()).collect();
    assert_eq!((statuses[0], &statuses[1..]), (408, &[429; 3][..]));
}
