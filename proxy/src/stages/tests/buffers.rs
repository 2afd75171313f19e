//! What is held in buffers, by all requests and watches together.

use futures::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::budget::{RESERVE, SIZE, SMALL, WAIT};

const LEFT: usize = 150;
const OBJECT: usize = 10 << 10;
const DELETED: &str = "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"resourceVersion\":\"12\"}}}\n";

/// An API server that was restarted at 40, when all objects that there were at 12 had left.
fn emptied() -> Lab {
    let object = |at: usize| json!({"metadata": {"name": format!("{at:05}"), "namespace": "ns", "uid": "u"}, "spec": "x".repeat(OBJECT)});
    Lab::new(move |seen| {
        let query = crate::request::Query::parse(seen.uri.query().unwrap()).unwrap();
        let number = |key: &str| query.first(key).and_then(|it| it.parse::<usize>().ok());
        if query.flag("watch") {
            return match number("resourceVersion") {
                Some(5) => json_stream(DELETED),
                Some(12) => json(full("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n")),
                _ => silent(),
            };
        }
        let (begin, limit) = (number("continue").unwrap_or(0), number("limit").unwrap());
        let is_then = number("resourceVersion") == Some(12) || begin > 0;
        let end = if is_then { LEFT.min(begin + limit) } else { begin };
        let rest = if end < LEFT && is_then { end.to_string() } else { String::new() };
        let items: Vec<_> = (begin..end).map(object).collect();
        let metadata = json!({"resourceVersion": "40", "continue": rest});
        json(full(
            json!({"kind": "ThingList", "apiVersion": "x.io/v1", "metadata": metadata, "items": items}).to_string(),
        ))
    })
}

/// A watch that says this, and ends when the API server is gone.
fn json_stream(text: &'static str) -> Response<Body> {
    let frames = [Ok::<_, BoxError>(Frame::data(Bytes::from_static(text.as_bytes())))];
    let gone = futures::stream::once(async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Err(BoxError::from(GONE))
    });
    json(boxed(StreamBody::new(futures::stream::iter(frames).chain(gone))))
}

#[tokio::test(start_paused = true)]
async fn what_left_is_told_object_by_object_and_few_of_them_are_held_at_once() {
    let lab = emptied();
    let bodies = join_all((0..50).map(|_| lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5"))).await;
    let mut bodies: Vec<_> = bodies.into_iter().map(Response::into_body).collect();
    for body in &mut bodies {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), DELETED);
    }
    lab.shared.gate.close();
    let most = Mutex::new(0);
    let told = bodies.iter_mut().map(async |body| {
        for _ in 0..LEFT {
            let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(event.len() > OBJECT && event.ends_with(b"}\n"), "one event");
            let mut most = most.lock();
            *most = lab.shared.budget.used().max(*most);
        }
    });
    join_all(told).await;
    // A page of fifty objects for each watch would be 25 MiB.
    let most = *most.lock();
    assert!(most > OBJECT && most <= SIZE, "{most} bytes");
    assert!(bodies.iter_mut().all(|body| body.frame().now_or_never().is_none()));
    assert_eq!(lab.shared.budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn where_a_page_has_no_room_smaller_ones_are_asked_for_and_none_where_one_object_has_none() {
    for (left, pages) in
        [(300 << 10, &["50", "25", "25", "25", "25", "25", "25"][..]), (5 << 10, &["50", "25", "12", "6", "3", "1"])]
    {
        let lab = emptied();
        let mut body = lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5").await.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), DELETED);
        lab.shared.gate.close();
        let _others = lab.shared.budget.fill_but(RESERVE + left);
        for _ in 0..if pages.len() == 7 { LEFT } else { 0 } {
            assert!(body.frame().await.unwrap().unwrap().into_data().unwrap().len() > OBJECT);
        }
        if pages.len() == 6 {
            let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(String::from_utf8_lossy(&event).contains("410") && body.frame().await.is_none());
        }
        let seen = lab.seen.lock().clone();
        let queries = seen.iter().map(|seen| crate::request::Query::parse(seen.uri.query().unwrap()).unwrap());
        let then = queries.filter(|it| it.first("resourceVersion") == Some("12") || it.first("continue").is_some());
        let asked: Vec<_> = then.filter_map(|it| it.first("limit").map(str::to_owned)).collect();
        assert_eq!(asked, pages, "each page once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_without_room_is_refused_in_a_way_that_clients_repeat() {
    let lab = Lab::new(|_| ok());
    let others = lab.shared.budget.fill_but(SMALL);
    let election = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
    let write = |len: usize| ask("POST", election).map(|_| full(format!("{{{}}}", " ".repeat(len - 2))));
    assert_eq!(lab.send(write(SMALL)).await.status(), StatusCode::OK, "as long as most locks are, and longer");
    lab.seen.lock().clear();
    let start = Instant::now();
    let refused = lab.send(write(SMALL + 1)).await;
    assert_eq!((refused.status(), start.elapsed()), (StatusCode::TOO_MANY_REQUESTS, WAIT));
    assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
    drop(others);
    assert_eq!(lab.send(write(SMALL + 1)).await.status(), StatusCode::OK);
    lab.seen.lock().clear();
    assert_eq!(lab.shared.budget.used(), 0);
}

/// With others in it a controller of kopf's pauses, and an elector waits.
#[tokio::test(start_paused = true)]
async fn what_others_say_of_a_lock_or_a_peer_is_not_shown_because_there_is_no_room() {
    for object in
        ["/apis/coordination.k8s.io/v1/namespaces/ns/leases/a", "/apis/kopf.dev/v1/namespaces/ns/kopfpeerings/default"]
    {
        let lab = Lab::new(|_| json(full(r#"{"metadata":{"name":"a","namespace":"ns","resourceVersion":"5"}}"#)));
        let others = lab.shared.budget.fill_but(0);
        let refused = lab.get(object).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{object}");
        assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
        drop(others);
        assert_eq!(lab.get(object).await.status(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_event_has_no_room_ends_with_an_error() {
    for has_room in [true, false] {
        let (server, respond) = streaming();
        let lab = Lab::new(respond);
        let others = lab.shared.budget.fill_but(if has_room { SIZE } else { 0 });
        let mut body =
            lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5&allowWatchBookmarks=true").await.into_body();
        server.unbounded_send(DELETED.split_at(50).0).unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        server.unbounded_send(DELETED.split_at(50).1).unwrap();
        assert_eq!(body.frame().await.unwrap().is_ok(), has_room);
        drop((body, others));
        assert_eq!(lab.shared.budget.used(), 0);
    }
}

#[tokio::test]
async fn watch_counts_its_window_as_long_as_it_is_open() {
    let lab = Lab::new(|_| silent());
    // Of the ring, and of what is not.
    for uri in ["/apis/x.io/v1/things?watch=1&resourceVersion=5", "/api/v1/pods?watch=1"] {
        let watch = lab.get(uri).await;
        assert_eq!(lab.shared.budget.windows(), ringside_runtime::client::WATCH_WINDOW as usize, "{uri}");
        drop(watch);
        assert_eq!(lab.shared.budget.windows(), 0, "{uri}");
    }
    let all: Vec<_> = std::iter::from_fn(|| lab.shared.budget.window().ok()).collect();
    assert_eq!(lab.get("/api/v1/pods?watch=1").await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(lab.get("/api/v1/pods").await.status(), StatusCode::OK);
    drop(all);
}
