//! What left while the API server was restarted and the Lease was lost.

use super::*;

const NOTHING: &str = r#"{"kind":"ThingList","apiVersion":"x.io/v1","metadata":{"resourceVersion":"12"}}"#;
const TOO_OLD: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n";

/// An API server that was restarted at 40: it knows no event of before, but what was there then. Of watches it says
/// `first` to one from 5, `again` to one from 40, and `old` to others; `then` to a list of the state of 12.
pub(super) fn restarted(
    first: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static,
    again: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static,
    old: impl Fn() -> Response<Body> + Send + Sync + 'static,
    then: impl Fn() -> Response<Body> + Send + Sync + 'static,
) -> Lab {
    let page = |names: &[&str], rest: &str| {
        let items: Vec<_> = names
            .iter()
            .map(
                |name| serde_json::json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")}}),
            )
            .collect();
        let metadata = serde_json::json!({"resourceVersion": "40", "continue": rest});
        let list =
            serde_json::json!({"kind": "ThingList", "apiVersion": "x.io/v1", "metadata": metadata, "items": items});
        json(full(list.to_string()))
    };
    Lab::new(move |seen| {
        let query = crate::request::Query::parse(seen.uri.query().unwrap()).unwrap();
        match (query.flag("watch"), query.first("resourceVersion"), query.first("continue")) {
            (true, Some("5"), _) => first(seen),
            (true, Some("40"), _) => again(seen),
            (true, ..) => old(),
            (_, Some("12"), _) => then(),
            (_, Some("40"), _) => page(&["b", "new"], ""),
            (.., Some("more")) => page(&["b", "c"], ""),
            _ => page(&["b"], "more"),
        }
    })
}

/// A shard that wakes when an API server was restarted meanwhile would go on with all that it had. What came to it
/// since it was told of the state of 12 is unknown, so no view moves.
#[tokio::test(start_paused = true)]
async fn what_left_while_the_api_server_was_restarted_is_found_out() {
    let then = r#"{"kind":"ThingList","apiVersion":"x.io/v1","metadata":{"resourceVersion":"12","continue":"more"},
        "items":[{"metadata":{"name":"a","namespace":"ns","uid":"uid-a","labels":{"s":"me"}},"spec":{"of":1}}]}"#;
    let gone = || {
        let mut gone = json(full(r#"{"kind":"Status","code":410}"#));
        *gone.status_mut() = StatusCode::GONE;
        gone
    };
    let later = "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"resourceVersion\":\"45\"}}}\n";
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let whole = serde_json::json!({
        "apiVersion": "x.io/v1", "kind": "Thing", "spec": {"of": 1},
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a", "resourceVersion": "40", "labels": {"s": "me"}},
    });
    let partial = serde_json::json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": whole["metadata"],
    });
    for (accept, told) in [("application/json", Some(whole)), (metadata, Some(partial)), ("*/*", None)] {
        let ((server, first), (again, second)) = (streaming(), streaming());
        let forgotten = told.is_none();
        let old = move || if forgotten { gone() } else { json(full(TOO_OLD)) };
        let lab = restarted(first, second, old, move || if forgotten { gone() } else { json(full(then)) });
        let mut request = ask("GET", "/apis/x.io/v1/things?watch=1&resourceVersion=5");
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
        let mut body = lab.send(request).await.into_body();
        server.unbounded_send(DELETED).unwrap();
        assert_eq!(piece(&mut body).await, DELETED);
        lab.shared.gate.close();
        server.close_channel();
        if let Some(told) = told {
            let [first, second] = [piece(&mut body).await, piece(&mut body).await]
                .map(|event| serde_json::from_str::<serde_json::Value>(&event).unwrap());
            assert_eq!(first, serde_json::json!({"type": "DELETED", "object": told}));
            assert_eq!(second["object"]["metadata"]["name"], "c");
        }
        again.unbounded_send(ADDED).unwrap();
        again.unbounded_send(later).unwrap();
        assert_eq!(piece(&mut body).await, later);
        assert!(body.frame().now_or_never().is_none());
        assert_eq!((behind(&lab, 12), behind(&lab, 30)), (0, 1));
        let seen = lab.seen.lock();
        let lists: Vec<_> = seen.iter().filter(|seen| !seen.uri.query().unwrap().contains("watch=")).collect();
        assert_eq!(lists.len(), if forgotten { 3 } else { 4 });
        let is_whole = |seen: &Seen| !seen.headers[header::ACCEPT].to_str().unwrap().contains("Metadata");
        assert_eq!((is_whole(lists[1]), is_whole(lists[2])), (false, accept != metadata));
        let selects = |seen: &Seen| seen.uri.query().unwrap().contains("labelSelector=s%3Dme%2C%21d");
        assert!(seen.iter().all(selects), "{seen:?}");
    }
}

/// Its client lists again a second later alone, and begins meanwhile with what it has. A watch that was just asked for again
/// may not have said yet what left.
#[tokio::test(start_paused = true)]
async fn what_left_is_found_out_before_a_watch_ends_that_was_asked_for_again() {
    let then = r#"{"kind":"ThingList","apiVersion":"x.io/v1","metadata":{"resourceVersion":"12","continue":"more"},
        "items":[{"metadata":{"name":"a","namespace":"ns","uid":"uid-a"}}]}"#;
    for is_answered in [true, false] {
        for (lists, all) in [(true, vec!["a", "c"]), (false, vec![])] {
            let (server, first) = streaming();
            let old = move || if is_answered { silent() } else { with(StatusCode::SERVICE_UNAVAILABLE) };
            let lab = restarted(first, |_| silent(), old, move || if lists { json(full(then)) } else { silent() });
            let mut body = lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5").await.into_body();
            server.unbounded_send(DELETED).unwrap();
            assert_eq!(piece(&mut body).await, DELETED);
            lab.shared.gate.close();
            server.close_channel();
            assert!(timeout(Duration::from_millis(100), body.frame()).await.is_err());
            lab.shared.gate.open(term());
            let begun = Instant::now();
            for name in all {
                let event: serde_json::Value = serde_json::from_str(&piece(&mut body).await).unwrap();
                assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&"DELETED".into(), &name.into()));
            }
            assert!(piece(&mut body).await.contains("410"));
            assert!(body.frame().await.is_none());
            assert!(begun.elapsed() < Duration::from_secs(4), "its client can't be told of new objects meanwhile");
        }
    }
}

/// It may watch, and not list.
#[tokio::test(start_paused = true)]
async fn a_watch_that_can_not_go_on_without_a_list_ends_with_the_word_to_list() {
    let (server, first) = streaming();
    let lab = restarted(first, |_| silent(), || json(full(TOO_OLD)), || with(StatusCode::FORBIDDEN));
    let mut body = lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5").await.into_body();
    server.unbounded_send(DELETED).unwrap();
    assert_eq!(piece(&mut body).await, DELETED);
    lab.shared.gate.close();
    server.close_channel();
    assert!(piece(&mut body).await.contains("410"));
    assert!(body.frame().await.is_none());
}

/// So API servers answer a watch from before all that they know: with an `ERROR`, and an end. Lists cost them more.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_not_asked_for_all_the_time() {
    for (says, few) in [("", 8..=12), (TOO_OLD, 4..=6)] {
        let (server, first) = streaming();
        let lab = restarted(first, move |_| json(full(says)), move || json(full(says)), || json(full(NOTHING)));
        let mut body = lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5").await.into_body();
        server.unbounded_send(DELETED).unwrap();
        assert_eq!(piece(&mut body).await, DELETED);
        lab.shared.gate.close();
        server.close_channel();
        let still = timeout(Duration::from_secs(10), async { while !piece(&mut body).await.contains("410") {} });
        assert!(still.await.is_err());
        let asked = lab.seen.lock().iter().filter(|seen| seen.uri.query().unwrap().contains("watch=")).count();
        assert!(few.contains(&asked), "{asked} times in ten seconds: {says}");
        lab.shared.gate.open(term());
        assert!(piece(&mut body).await.contains("410"));
    }
}
