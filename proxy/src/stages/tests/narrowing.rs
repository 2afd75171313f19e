//! What is narrowed, what is left alone, and what is refused.

use super::*;

const NARROWED: &str = "labelSelector=s%3Dme%2C%21d";

async fn sent(method: &str, uri: &str) -> Result<String, StatusCode> {
    let lab = Lab::new(|_| json(full(r#"{"items":[]}"#)));
    let response = lab.send(ask(method, uri)).await;
    // Not what the fence asks about an object.
    let path = uri.split('?').next().unwrap_or_default();
    let sent = lab.seen.lock().iter().find(|seen| seen.uri.path() == path).map(|seen| seen.uri.to_string());
    sent.ok_or(response.status())
}

#[tokio::test]
async fn whatever_selects_objects_of_the_ring_is_narrowed() {
    for (method, uri) in [
        ("GET", "/apis/x.io/v1/things"),
        ("HEAD", "/apis/x.io/v1/things"),
        ("GET", "/apis/x.io/v1beta1/namespaces/a/things"),
        ("GET", "/apis/x.io/v1/things?watch=true"),
        ("GET", "/apis/x.io/v1/things?watch=1"),
        ("GET", "/apis/x.io/v1/namespaces/a/things?watch=&fieldSelector=metadata.name%3Db"),
        ("GET", "/apis/x.io/v1/watch/things"),
        ("GET", "/apis/x.io/v1/watch/namespaces/a/things/b"),
        ("DELETE", "/apis/x.io/v1/namespaces/a/things"),
        ("GET", "/apis/x.io/v1/th%69ngs"),
        ("GET", "/apis/x.io/v1/things/"),
    ] {
        let sent = sent(method, uri).await.unwrap();
        assert!(sent.contains(NARROWED), "{method} {uri}: {sent}");
        assert!(sent.starts_with(uri.split('?').next().unwrap()), "{method} {uri}: {sent}");
    }
    let joined = sent("GET", "/apis/x.io/v1/things?labelSelector=a%3Db&limit=5").await.unwrap();
    assert_eq!(joined, format!("/apis/x.io/v1/things?limit=5&{NARROWED}%2Ca%3Db"));
}

/// A ring that things have joined, whose objects have yet to be labelled.
fn joined() -> RingState {
    let RingState::Known(policy) = sharding(&[things()]) else { unreachable!("it is known") };
    let before = Policy::default().after(&Policy::default());
    let policy = Policy { unlabelled: [things()].into(), ..(*policy).clone() };
    RingState::Known(Arc::new(policy.after(&before)))
}

#[tokio::test]
async fn resource_is_shown_whole_until_its_objects_are_labelled() {
    let (_open, respond) = streaming();
    let lab = Lab::new(move |seen| match seen.uri.query() {
        Some(query) if query.contains("watch") => respond(seen),
        _ => json(full(
            r#"{"metadata":{"resourceVersion":"10","name":"b","uid":"u","labels":{"s":"other"}},"items":[]}"#,
        )),
    });
    lab.shared.knowledge.send_replace(joined());
    for uri in ["/apis/x.io/v1/things", "/apis/x.io/v1/namespaces/a/things/b"] {
        assert_eq!(lab.get(uri).await.status(), StatusCode::OK, "{uri}");
        assert_eq!(lab.last().uri, uri);
    }
    let mut watch = lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5").await.into_body();
    assert_eq!(lab.last().uri, "/apis/x.io/v1/things?watch=1&resourceVersion=5");
    assert!(watch.frame().now_or_never().is_none());
    lab.shared.knowledge.send_replace(sharding(&[things()]));
    let event = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(String::from_utf8_lossy(&event).contains(r#""code":410"#), "its client lists again");
    assert_eq!(lab.get("/apis/x.io/v1/namespaces/a/things/b").await.status(), StatusCode::NOT_FOUND);
    drop(lab.get("/apis/x.io/v1/things").await);
    assert!(lab.last().uri.query().unwrap().contains(NARROWED));
}

/// From its label on an object is its owner's to write to, even if another shard sees it.
#[tokio::test]
async fn writes_are_fenced_before_objects_are_labelled() {
    let lab = Lab::new(|seen| {
        let shard = if seen.uri.query().is_some_and(|it| it.contains("theirs")) { r#""s":"other""# } else { "" };
        let name = if shard.is_empty() { "none" } else { "theirs" };
        json(full(format!(r#"{{"items":[{{"metadata":{{"name":"{name}","uid":"{name}","labels":{{{shard}}}}}}}]}}"#)))
    });
    lab.shared.knowledge.send_replace(joined());
    let write = async |method: &str, name: &str| {
        lab.send(ask(method, &format!("/apis/x.io/v1/namespaces/a/things{name}"))).await.status()
    };
    assert_eq!((write("PUT", "/theirs").await, write("PUT", "/none").await), (StatusCode::CONFLICT, StatusCode::OK));
    assert_eq!(write("DELETE", "").await, StatusCode::SERVICE_UNAVAILABLE, "it would delete others' objects");
    assert!(lab.seen.lock().iter().all(|seen| seen.method != Method::DELETE));
}

#[tokio::test]
async fn what_go_would_read_no_selector_from_is_refused() {
    let long = |path: &str| format!("{path}?{}x", "a&".repeat(10_000));
    for (method, path) in [
        ("GET", "/apis/x.io/v1/things"),
        ("GET", "/apis/x.io/v1/watch/things"),
        ("DELETE", "/apis/x.io/v1/namespaces/a/things"),
    ] {
        assert_eq!(sent(method, &long(path)).await, Err(StatusCode::BAD_REQUEST), "{method} {path}");
    }
}

#[tokio::test]
async fn everything_else_passes_as_it_is() {
    for (method, uri) in [
        ("GET", "/api/v1/pods?labelSelector=app"),
        ("GET", "/apis/y.io/v1/things"),
        ("GET", "/apis/x.io/v1/namespaces/a/things/b?labelSelector=,"),
        ("POST", "/apis/x.io/v1/namespaces/a/things?fieldManager=x"),
        ("PATCH", "/apis/x.io/v1/namespaces/a/things/b/status?force=true"),
        ("DELETE", "/apis/x.io/v1/namespaces/a/things/b"),
        ("POST", "/api/v1/namespaces/a/pods/b/exec?command=a;b"),
        ("GET", "/apis/x.io/v1"),
    ] {
        assert_eq!(sent(method, uri).await.unwrap(), uri, "{method}");
    }
}

#[tokio::test]
async fn what_is_narrowed_says_once_what_the_api_server_would_have_read() {
    for (uri, query) in [
        ("/apis/x.io/v1/things?labelSelector=a%00%00!d", "labelSelector=s%3Dme%2C%21d%2Ca"),
        ("/apis/x.io/v1/things?labelSelector=a&labelSelector=b", "labelSelector=s%3Dme%2C%21d%2Ca"),
        ("/apis/x.io/v1/things?label%53elector=a&labelSelector=b", "labelSelector=s%3Dme%2C%21d%2Ca"),
        ("/apis/x.io/v1/things?labelSelector=%zz&x=1;labelSelector=b", NARROWED),
        (
            "/apis/x.io/v1/things?watch=1&watch=0&resourceVersion=7",
            "watch=1&resourceVersion=7&allowWatchBookmarks=true&labelSelector=s%3Dme%2C%21d",
        ),
        ("/apis/x.io/v1/things?watch=0&watch=1", "watch=0&labelSelector=s%3Dme%2C%21d"),
        ("/apis/x.io/v1/things//?dryRun=All&dryRun=All", "dryRun=All&dryRun=All&labelSelector=s%3Dme%2C%21d"),
    ] {
        let sent = sent("GET", uri).await.unwrap();
        assert_eq!(sent, format!("{}?{query}", uri.split('?').next().unwrap()));
    }
}

#[tokio::test]
async fn every_watch_of_the_ring_has_bookmarks() {
    for (asked, sent_on) in [
        ("/watch/things?resourceVersion=7", "resourceVersion=7&allowWatchBookmarks=true"),
        ("/watch/things?allowWatchBookmarks=false&resourceVersion=7", "resourceVersion=7&allowWatchBookmarks=true"),
        (
            "/watch/things?allowWatchBookmarks=0&allowWatchBookmarks=1&resourceVersion=7",
            "resourceVersion=7&allowWatchBookmarks=true",
        ),
        (
            "/things?allowWatchBookmarks=1&allowWatchBookmarks=0&watch=1&resourceVersion=7",
            "allowWatchBookmarks=1&watch=1&resourceVersion=7",
        ),
        ("/things?allowWatchBookmarks=0", "allowWatchBookmarks=0"),
    ] {
        let path = asked.split('?').next().unwrap();
        let sent = sent("GET", &format!("/apis/x.io/v1{asked}")).await.unwrap();
        assert_eq!(sent, format!("/apis/x.io/v1{path}?{sent_on}&{NARROWED}"), "{asked}");
    }
}

#[tokio::test]
async fn what_cannot_be_narrowed_without_doubt_is_refused() {
    for uri in [
        "/apis/x.io/v1/things?labelSelector=a,",
        "/apis/x.io/v1/things?labelSelector=a%00b",
        "/apis/x.io/v1/things?labelSelector=a%ff",
        "/apis/x.io/v1/things?labelSelector=a+in+(b",
        "/apis/x.io//v1/things",
        "/apis/x.io/v1/namespaces//things",
        "/apis/x.io/v1/%things",
    ] {
        assert_eq!(sent("GET", uri).await, Err(StatusCode::BAD_REQUEST), "{uri}");
    }
    assert_eq!(
        sent("DELETE", "/apis/x.io/v1/namespaces/a/things?labelSelector=a,").await,
        Err(StatusCode::BAD_REQUEST)
    );
}

#[tokio::test]
async fn compressed_bodies_are_refused_for_the_ring_only() {
    let lab = Lab::new(|_| ok());
    for (method, uri, status) in [
        ("DELETE", "/apis/x.io/v1/namespaces/a/things", 400),
        ("POST", "/apis/x.io/v1/namespaces/a/things", 400),
        ("POST", "/api/v1/namespaces/a/pods", 200),
    ] {
        let mut request = ask(method, uri);
        request.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
        assert_eq!(lab.send(request).await.status(), status, "{method} {uri}");
    }
}

#[tokio::test]
async fn cbor_bodies_are_refused_whatever_they_are_for() {
    let lab = Lab::new(|_| ok());
    for (method, uri, status) in [
        ("DELETE", "/apis/x.io/v1/namespaces/a/things", 415),
        ("PATCH", "/apis/x.io/v1/namespaces/a/things/b", 415),
        ("POST", "/api/v1/namespaces/a/pods", 415),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 415),
        ("POST", "/version", 415),
        // A server behind the API server.
        ("POST", "/api/v1/namespaces/a/services/b/proxy/measurements", 200),
    ] {
        let with = |body| {
            let mut request = ask(method, uri).map(|_| body);
            request.headers_mut().insert("content-type", HeaderValue::from_static("application/cbor"));
            request
        };
        assert_eq!(lab.send(with(full("\u{a0}"))).await.status(), status, "{method} {uri}");
        if !uri.contains("x.io") {
            assert_eq!(lab.send(with(empty())).await.status(), 200, "{method} {uri} without a body");
        }
    }
}

#[tokio::test]
async fn cbor_and_the_compression_of_watches_are_negotiated_away() {
    let lab = Lab::new(|_| ok());
    let with = |uri: &str| {
        let mut request = ask("GET", uri);
        request.headers_mut().insert("accept", HeaderValue::from_static("application/cbor,application/json"));
        request.headers_mut().insert("accept-encoding", HeaderValue::from_static("gzip"));
        request
    };
    lab.send(with("/apis/x.io/v1/things?watch=1")).await;
    assert_eq!(
        (&lab.last().headers["accept"], &lab.last().headers["accept-encoding"]),
        (&HeaderValue::from_static("application/json"), &HeaderValue::from_static("identity"))
    );
    lab.send(with("/apis/x.io/v1/things")).await;
    assert_eq!(lab.last().headers["accept-encoding"], "gzip", "lists may be compressed");
    for uri in ["/api/v1/pods", "/api/v1/pods?watch=1", "/apis", "/openapi/v2"] {
        lab.send(with(uri)).await;
        assert_eq!(lab.last().headers["accept"], "application/json", "{uri}");
    }
    let behind = "/api/v1/namespaces/a/pods/b/proxy/measurements";
    lab.send(with(behind)).await;
    assert_eq!(lab.last().headers["accept"], "application/cbor,application/json", "a server behind the API server");
    let mut alone = ask("GET", "/api/v1/pods");
    alone.headers_mut().insert("accept", HeaderValue::from_static("application/cbor"));
    lab.send(alone).await;
    assert_eq!(lab.last().headers["accept"], "application/x-nothing", "which the API server answers with 406");
}
