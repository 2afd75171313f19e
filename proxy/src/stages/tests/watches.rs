//! How far watches have come, as the handover sees it, and how they end.

use tokio::time::{Instant, timeout};

use super::*;
use crate::views::fixtures::leaving;

mod arriving;
mod kopf;
mod protobuf;
mod restarted;
mod silent;

const DELETED: &str = "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"resourceVersion\":\"12\"}}}\n";

/// How many views could still show an object drained at `version`.
fn behind(lab: &Lab, version: u64) -> usize {
    lab.shared.views.count_blocking(&leaving(things(), Some("ns"), version))
}

#[tokio::test]
async fn a_watch_is_past_a_drain_when_the_client_took_its_deleted_event() {
    let (server, respond) = streaming();
    let lab = Lab::new(respond);
    let mut body = lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5").await.into_body();
    assert_eq!((behind(&lab, 5), behind(&lab, 12)), (0, 1), "it was opened at 5");
    let (first, second) = DELETED.split_at(30);
    server.unbounded_send(first).unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), first, "pieces pass as they come");
    assert!(body.frame().now_or_never().is_none());
    server.unbounded_send(second).unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), second);
    assert_eq!(behind(&lab, 12), 1, "the client's connection has not taken it yet");
    assert!(body.frame().now_or_never().is_none());
    assert_eq!((behind(&lab, 12), behind(&lab, 13)), (0, 1));
    drop(body);
    assert_eq!(
        (behind(&lab, 13), lab.shared.views.numbers().open),
        (1, 0),
        "its client goes on from 12, and has not yet"
    );
}

#[tokio::test]
async fn what_a_watch_begins_with_says_nothing_of_how_far_it_has_come() {
    for added in ["ADDED", "MODIFIED"] {
        let (server, respond) = streaming();
        let lab = Lab::new(respond);
        let mut body = lab.get("/apis/x.io/v1/things?watch=1").await.into_body();
        let event = format!("{{\"type\":\"{added}\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"15\"}}}}}}\n");
        server.unbounded_send(event.leak()).unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().now_or_never().is_none());
        assert_eq!(behind(&lab, 12), 1, "what comes after it may be as old as it likes");
    }
}

#[tokio::test]
async fn a_client_that_asked_for_no_bookmarks_gets_none_and_its_watch_goes_on_by_them() {
    let bookmark = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"12\"}}}\n";
    for (uri, shown) in [
        ("/apis/x.io/v1/things?watch=1&resourceVersion=5", false),
        ("/apis/x.io/v1/things?watch=1&resourceVersion=5&allowWatchBookmarks=1", true),
    ] {
        let (server, respond) = streaming();
        let lab = Lab::new(respond);
        let mut body = lab.get(uri).await.into_body();
        let (first, second) = bookmark.split_at(40);
        for piece in [first, second, DELETED] {
            server.unbounded_send(piece).unwrap();
            if piece != DELETED {
                assert_eq!(body.frame().now_or_never().is_some(), shown, "{uri}");
            }
        }
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), DELETED, "{uri}");
        assert_eq!(behind(&lab, 12), 0, "{uri}: it was at the bookmark before it went on");
    }
}

/// An acknowledgement after a gap in the Lease rests on what the controller watches, and not on luck.
#[tokio::test(start_paused = true)]
async fn what_a_watch_had_shown_when_the_lease_was_lost_is_known_after_the_gap() {
    let lab = Lab::new(move |_| silent());
    let mut body = lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5").await.into_body();
    lab.shared.gate.close();
    assert!(body.frame().now_or_never().is_none());
    lab.shared.gate.open(term());
    assert!(body.frame().await.unwrap().is_ok() && body.frame().await.is_none());
    drop(body);
    assert_eq!((behind(&lab, 6), behind(&lab, 5)), (1, 0), "the controller still sees what it saw at 5");
    let _again = lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=12").await;
    assert_eq!((behind(&lab, 12), behind(&lab, 13)), (0, 1), "it has listed again, and watches from there");
}

const ADDED: &str = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"11\"}}}\n";

/// The next piece of a watch that the client gets.
async fn piece(body: &mut Body) -> String {
    let frame = timeout(Duration::from_secs(60), body.frame()).await.expect("the watch says nothing");
    String::from_utf8(frame.unwrap().unwrap().into_data().unwrap().to_vec()).unwrap()
}

/// A controller may begin with what it still has, also with what others have by now; nothing that it is told may be worked on.
#[tokio::test]
async fn without_the_lease_a_watch_says_what_leaves_and_nothing_else() {
    for bookmarks in ["", "&allowWatchBookmarks=1"] {
        let (server, respond) = streaming();
        let lab = Lab::new(respond);
        let mut body = lab.get(&format!("/apis/x.io/v1/things?watch=1{bookmarks}")).await.into_body();
        let (first, second) = ADDED.split_at(40);
        server.unbounded_send(first).unwrap();
        assert_eq!(piece(&mut body).await, first);
        lab.shared.gate.close();
        server.unbounded_send(second).unwrap();
        assert_eq!(piece(&mut body).await, second, "half an event is of no use");
        for withheld in [ADDED, "{\"type\":\"MODIFIED\",\"object\":{}}\n", "{\"type\":\"BOOKMARK\",\"object\":{}}\n"] {
            server.unbounded_send(withheld).unwrap();
            assert!(body.frame().now_or_never().is_none(), "{withheld}");
        }
        server.unbounded_send(DELETED).unwrap();
        assert_eq!(piece(&mut body).await, DELETED);
        server.unbounded_send(DELETED).unwrap();
        lab.shared.gate.open(term());
        assert_eq!(piece(&mut body).await, DELETED, "it has come before the Lease was held again");
        let end: serde_json::Value = serde_json::from_str(&piece(&mut body).await).unwrap();
        assert_eq!(
            (&end["type"], &end["object"]["code"]),
            (&"ERROR".into(), &410.into()),
            "what was withheld it must list"
        );
        assert!(body.frame().await.is_none());
    }
}

/// An API server of which each answer is another stream.
fn streams<const N: usize>() -> ([mpsc::UnboundedSender<&'static str>; N], impl Fn(&Seen) -> Response<Body>) {
    let (senders, mut responds): (Vec<_>, Vec<_>) = (0..N).map(|_| streaming()).unzip();
    responds.reverse();
    let responds = Mutex::new(responds);
    (senders.try_into().unwrap(), move |seen: &Seen| (responds.lock().pop().unwrap())(seen))
}

/// Who loses the Lease has often lost the API server as well, and hears of either first.
#[tokio::test(start_paused = true)]
async fn without_the_lease_a_watch_goes_on_from_where_it_was_when_the_api_server_is_gone() {
    for lease_first in [true, false] {
        let ([server, again, _list], respond) = streams();
        let lab = Lab::new(respond);
        let held = Arc::new(AtomicBool::new(true));
        lab.shared.gate.open(term_by(&held));
        let mut body = lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5").await.into_body();
        server.unbounded_send(DELETED).unwrap();
        assert_eq!(piece(&mut body).await, DELETED);
        held.store(false, Ordering::Relaxed);
        if lease_first {
            lab.shared.gate.close();
        }
        server.unbounded_send(GONE).unwrap();
        again.unbounded_send(ADDED).unwrap();
        again.unbounded_send(DELETED).unwrap();
        assert_eq!(piece(&mut body).await, DELETED);
        let asked = lab.last();
        assert!(asked.uri.query().unwrap().contains("resourceVersion=12"), "{}", asked.uri);
        lab.shared.gate.open(super::term());
        assert!(piece(&mut body).await.contains("410"));
    }
}

/// What came meanwhile was withheld.
#[tokio::test(start_paused = true)]
async fn a_watch_that_went_on_while_a_lease_was_doubtful_ends_when_it_is_held_after_all() {
    let (server, respond) = streaming();
    let lab = Lab::new(respond);
    let held = Arc::new(AtomicBool::new(true));
    lab.shared.gate.open(term_by(&held));
    let mut body = lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5").await.into_body();
    held.store(false, Ordering::Relaxed);
    server.unbounded_send(ADDED).unwrap();
    assert!(body.frame().now_or_never().is_none(), "the clock says that the Lease is not held");
    held.store(true, Ordering::Relaxed);
    assert!(piece(&mut body).await.contains("410"));
    assert!(body.frame().await.is_none());
}

/// Perhaps no other event tells the client of what was withheld before such an end.
#[tokio::test]
async fn without_the_lease_a_watch_ends_with_the_word_to_list() {
    let (server, respond) = streaming();
    let lab = Lab::new(respond);
    let mut body = lab.get("/apis/x.io/v1/things?watch=1&timeoutSeconds=1&resourceVersion=5").await.into_body();
    lab.shared.gate.close();
    server.unbounded_send(ADDED).unwrap();
    server.close_channel();
    assert!(piece(&mut body).await.contains("410"), "its client wants it for no longer");
    assert!(body.frame().await.is_none());
}

/// It asked for one format, and reads no other. What it has missed by then is not known either.
#[tokio::test(start_paused = true)]
async fn a_watch_that_would_go_on_in_another_format_ends_with_the_word_to_list() {
    for form in ["application/vnd.kubernetes.protobuf;stream=watch", "text/html"] {
        let ([server, _again], respond) = streams();
        let lab = Lab::new(move |seen| {
            let is_first = seen.uri.query().is_some_and(|query| query.contains("resourceVersion=5"));
            let mut answer = respond(seen);
            if !is_first {
                answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
            }
            answer
        });
        let mut body = lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5").await.into_body();
        server.unbounded_send(DELETED).unwrap();
        assert_eq!(piece(&mut body).await, DELETED);
        lab.shared.gate.close();
        server.close_channel();
        assert!(piece(&mut body).await.contains("410"), "{form}");
        assert!(body.frame().await.is_none());
        drop(body);
        assert!(lab.shared.views.interrupted(&things(), None, Instant::now()).await, "{form}: it was broken off");
    }
}

/// The client has nothing of the event that is withheld, so there is a place for what it has to be told.
#[tokio::test]
async fn half_an_event_that_is_withheld_keeps_no_client_from_being_told_to_list() {
    let (server, respond) = streaming();
    let lab = Lab::new(respond);
    let mut body = lab.get("/apis/x.io/v1/things?watch=1").await.into_body();
    lab.shared.gate.close();
    server.unbounded_send(ADDED.split_at(40).0).unwrap();
    assert!(body.frame().now_or_never().is_none());
    lab.shared.gate.open(term());
    assert!(piece(&mut body).await.contains("410"));
}

/// A client that was not shown the end of its list has what it had before.
#[tokio::test]
async fn what_is_withheld_moves_no_view() {
    let (server, respond) = streaming();
    let lab = Lab::new(respond);
    let streaming_list = "/apis/x.io/v1/things?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut body = lab.get(streaming_list).await.into_body();
    lab.shared.gate.close();
    server.unbounded_send("{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"12\"}}}\n").unwrap();
    assert!(body.frame().now_or_never().is_none());
    assert_eq!(behind(&lab, 12), 1);
    server.unbounded_send(DELETED).unwrap();
    assert!(body.frame().await.is_some());
    assert!(body.frame().now_or_never().is_none());
    assert_eq!(behind(&lab, 12), 1, "nor does what leaves behind it");
}

#[tokio::test]
async fn a_later_page_of_a_list_from_before_a_move_is_gone() {
    let lab = Lab::new(|_| ok());
    // {"v":"meta.k8s.io/v1","rv":12,"start":"a"}
    let page = "/apis/x.io/v1/things?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTIsInN0YXJ0IjoiYSJ9";
    lab.shared.views.gone(&leaving(things(), Some("ns"), 12));
    let answer = lab.get(page).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!((behind(&lab, 12), behind(&lab, 13)), (0, 1), "it is under way");
    drop(answer);
    assert_eq!(behind(&lab, 13), 1, "there may be another page");
    lab.shared.views.gone(&leaving(things(), Some("ns"), 13));
    let expired = lab.get(page).await;
    assert_eq!(expired.status(), StatusCode::GONE);
    let status: serde_json::Value = serde_json::from_str(&text(expired).await).unwrap();
    assert_eq!(status["reason"], "Expired");
    assert_eq!(status["metadata"]["continue"], serde_json::Value::Null, "no way to go on with pages of two states");
}

#[tokio::test]
async fn a_page_that_nobody_knows_the_state_of_is_not_shown() {
    // {"v":"meta.k8s.io/v1","rv":-1,"start":"a"}: the newest, beside pages of whatever it was before.
    for token in ["eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYSJ9", "another-server"] {
        let page = format!("/apis/x.io/v1/things?limit=1&continue={token}");
        assert_eq!(Lab::new(|_| ok()).get(&page).await.status(), StatusCode::GONE, "{token}");
        let refuses = Lab::new(|_| {
            let mut bad = ok();
            *bad.status_mut() = StatusCode::BAD_REQUEST;
            bad
        });
        assert_eq!(refuses.get(&page).await.status(), StatusCode::BAD_REQUEST, "{token}");
    }
}

#[tokio::test]
async fn a_list_under_way_is_past_nothing() {
    let (server, respond) = streaming();
    let lab = Lab::new(respond);
    let mut body = lab.get("/apis/x.io/v1/things?resourceVersion=99").await.into_body();
    server.unbounded_send("{}").unwrap();
    assert!(body.frame().await.unwrap().is_ok());
    assert_eq!(behind(&lab, 1), 1);
    server.close_channel();
    assert!(body.frame().await.is_none());
    assert_eq!(behind(&lab, 1), 0);
}

#[tokio::test]
async fn a_watch_that_the_api_server_refuses_is_no_view() {
    let lab = Lab::new(|_| {
        let mut gone = ok();
        *gone.status_mut() = StatusCode::GONE;
        gone
    });
    assert_eq!(lab.get("/apis/x.io/v1/things?watch=1").await.status(), StatusCode::GONE);
    assert_eq!(lab.shared.views.numbers().open, 0);
    let lab = Lab::new(|_| ok());
    let _pods = lab.get("/api/v1/pods?watch=1").await;
    assert_eq!(lab.shared.views.numbers().open, 0, "pods are never drained");
}

#[tokio::test]
async fn a_watch_that_the_api_server_has_no_time_for_is_waited_for() {
    for (code, waited) in [(429, 1), (500, 1), (503, 1), (403, 0), (410, 0)] {
        let lab = Lab::new(move |_| {
            let mut answer = ok();
            *answer.status_mut() = StatusCode::from_u16(code).unwrap();
            answer
        });
        drop(lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5").await);
        assert_eq!((behind(&lab, 6), behind(&lab, 5)), (waited, 0), "{code}");
    }
}

#[tokio::test]
async fn a_watch_that_is_answered_as_no_api_server_does_is_refused() {
    let lab = Lab::new(|_| {
        let mut transformed = json(full("{}"));
        *transformed.status_mut() = StatusCode::NON_AUTHORITATIVE_INFORMATION;
        transformed
    });
    assert_eq!(lab.get("/apis/x.io/v1/things?watch=1").await.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(lab.get("/api/v1/pods?watch=1").await.status(), StatusCode::NON_AUTHORITATIVE_INFORMATION);
}

#[tokio::test]
async fn a_watch_of_the_ring_that_was_cut_within_an_event_does_not_end_as_if_it_were_whole() {
    for (uri, sent, whole) in [
        ("/apis/x.io/v1/things?watch=1", &DELETED[..30], false),
        ("/apis/x.io/v1/things?watch=1", DELETED, true),
        ("/api/v1/pods?watch=1", &DELETED[..30], true),
    ] {
        let (server, respond) = streaming();
        let mut body = Lab::new(respond).get(uri).await.into_body();
        server.unbounded_send(sent).unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        drop(server);
        assert_eq!(body.frame().await.is_none(), whole, "{uri} {sent}");
    }
}

#[tokio::test]
async fn a_change_of_the_ring_makes_those_watches_list_again_that_it_concerns() {
    let pods = GroupResource { group: String::new(), resource: "pods".into() };
    for (uri, ends) in
        [("/apis/x.io/v1/things?watch=1", true), ("/api/v1/pods?watch=1", true), ("/api/v1/secrets?watch=1", false)]
    {
        let (_server, respond) = streaming();
        let lab = Lab::new(respond);
        let mut body = lab.get(uri).await.into_body();
        assert!(body.frame().now_or_never().is_none());
        lab.shared.knowledge.send_replace(sharding(&[things()]));
        assert!(body.frame().now_or_never().is_none(), "nothing has changed");
        lab.shared.knowledge.send_replace(sharding(std::slice::from_ref(&pods)));
        if !ends {
            assert!(body.frame().now_or_never().is_none(), "{uri}");
            continue;
        }
        let last = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let event: serde_json::Value = serde_json::from_slice(&last).unwrap();
        assert_eq!((event["type"].as_str(), event["object"]["code"].as_u64()), (Some("ERROR"), Some(410)), "{uri}");
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test]
async fn in_the_middle_of_an_event_a_watch_ends_with_an_error() {
    type Ends = fn(&Lab, mpsc::UnboundedSender<&'static str>);
    let ends: [(&str, Ends); 3] = [
        ("ring", |lab, _| drop(lab.shared.knowledge.send_replace(sharding(&[])))),
        ("closing", |lab, _| lab.shared.closing.cancel()),
        ("gone", |_, server| server.unbounded_send(GONE).unwrap()),
    ];
    for (name, end) in ends {
        let (server, respond) = streaming();
        let lab = Lab::new(respond);
        let mut body = lab.get("/apis/x.io/v1/things?watch=1").await.into_body();
        server.unbounded_send(&DELETED[..20]).unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        end(&lab, server);
        assert!(body.frame().await.unwrap().is_err(), "{name}");
        assert!(body.frame().await.is_none(), "{name}");
    }
}

#[tokio::test]
async fn between_two_events_the_end_of_the_api_server_is_the_end_of_a_watch_and_never_that_of_a_list() {
    for (uri, ends_in_order) in [
        ("/apis/x.io/v1/things?watch=1", true),
        ("/api/v1/pods?watch=1", true),
        ("/apis/x.io/v1/things", false),
        ("/api/v1/namespaces/ns/pods/a/log?follow=true", false),
    ] {
        let (server, respond) = streaming();
        let lab = Lab::new(respond);
        let mut body = lab.get(uri).await.into_body();
        server.unbounded_send(DELETED).unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        server.unbounded_send(GONE).unwrap();
        match body.frame().await {
            None => assert!(ends_in_order, "{uri}"),
            Some(frame) => assert!(frame.is_err() && !ends_in_order, "{uri}"),
        }
    }
}

#[tokio::test]
async fn watches_end_without_an_error_when_the_proxy_ends_and_lists_go_on() {
    let (_server, respond) = streaming();
    let lab = Lab::new(respond);
    let mut body = lab.get("/api/v1/pods?watch=1").await.into_body();
    lab.shared.closing.cancel();
    assert!(body.frame().await.is_none());
    let (_server, respond) = streaming();
    let lab = Lab::new(respond);
    let mut list = lab.get("/apis/x.io/v1/things").await.into_body();
    lab.shared.closing.cancel();
    assert!(list.frame().now_or_never().is_none());
}

#[tokio::test]
async fn a_watch_of_the_ring_that_cannot_be_read_is_refused_and_any_other_passes() {
    for (name, value) in [("content-encoding", "gzip"), ("content-type", "application/cbor-seq")] {
        for (uri, status) in [("/apis/x.io/v1/things?watch=1", 502), ("/api/v1/pods?watch=1", 200)] {
            let (_server, respond) = streaming();
            let lab = Lab::new(move |seen| {
                let mut response = respond(seen);
                response.headers_mut().insert(name, HeaderValue::from_static(value));
                response
            });
            assert_eq!(lab.get(uri).await.status(), status, "{name} {uri}");
            assert_eq!(lab.shared.views.numbers().open, 0);
        }
    }
}

#[tokio::test]
async fn a_watch_of_the_ring_ends_where_it_cannot_be_read_any_more() {
    for (uri, ends) in [("/apis/x.io/v1/things?watch=1", true), ("/api/v1/pods?watch=1", false)] {
        let (server, respond) = streaming();
        let lab = Lab::new(respond);
        let mut body = lab.get(uri).await.into_body();
        server.unbounded_send("{\n  \"type\": \"DELETED\",\n").unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        // With an error: it is unknown whether the client has a whole event.
        let end = body.frame().now_or_never().flatten();
        assert_eq!(end.is_some_and(|frame| frame.is_err()), ends, "{uri}");
    }
}
