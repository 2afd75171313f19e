//! Watches that say nothing without the Lease: of children, and of what is not the ring's.

use std::collections::BTreeSet;

use super::*;

/// Things are children: their owner would be worked on because they leave.
fn of_children(respond: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static) -> Lab {
    let lab = Lab::new(respond);
    let policy = Policy { resources: BTreeSet::from([things()]), ..Policy::default() };
    lab.shared.knowledge.send_replace(RingState::Known(Arc::new(policy)));
    lab
}

/// A client that gives up a watch which breaks off, or one that is refused, lives on.
#[tokio::test(start_paused = true)]
async fn any_other_watch_is_silent_without_the_lease_and_ends_in_order_with_it() {
    for (uri, lists_again) in [("/apis/x.io/v1/things?watch=1", true), ("/api/v1/pods?watch=1", false)] {
        for within in [false, true] {
            let (server, respond) = streaming();
            let lab = of_children(respond);
            let mut body = lab.get(uri).await.into_body();
            let (first, second) = ADDED.split_at(if within { 40 } else { ADDED.len() });
            server.unbounded_send(first).unwrap();
            assert_eq!(piece(&mut body).await, first);
            lab.shared.gate.close();
            if within {
                server.unbounded_send(second).unwrap();
                assert_eq!(piece(&mut body).await, second, "{uri}: half an event is of no use");
            }
            server.unbounded_send(DELETED).unwrap();
            server.unbounded_send(ADDED).unwrap();
            let told = timeout(Duration::from_secs(60), body.frame()).await;
            assert!(told.is_err(), "{uri}: {told:?}");
            assert!(server.is_closed(), "{uri}: nothing of it is the client's");
            lab.shared.gate.open(term());
            if lists_again {
                assert!(piece(&mut body).await.contains("410"), "what was withheld it must list");
            }
            assert!(body.frame().await.is_none(), "{uri}");
        }
    }
}

/// By what it says a controller may begin with an object that another shard has by then.
#[tokio::test(start_paused = true)]
async fn half_an_event_that_does_not_end_soon_breaks_off_its_watch() {
    for (uri, is_main) in [
        ("/apis/x.io/v1/things?watch=1", true),
        ("/apis/x.io/v1/things?watch=1", false),
        ("/api/v1/pods?watch=1", false),
    ] {
        let (server, respond) = streaming();
        let lab = if is_main { Lab::new(respond) } else { of_children(respond) };
        let mut body = lab.get(uri).await.into_body();
        server.unbounded_send(ADDED.split_at(40).0).unwrap();
        assert!(piece(&mut body).await.starts_with('{'));
        lab.shared.gate.close();
        let since = Instant::now();
        assert!(body.frame().await.unwrap().is_err(), "{uri}");
        assert_eq!(since.elapsed().as_secs(), 1, "{uri}");
    }
}

/// Who wakes hears at once of all that happened, and not in this order.
#[tokio::test(start_paused = true)]
async fn by_the_clock_alone_a_watch_is_silent() {
    let (server, respond) = streaming();
    let lab = of_children(respond);
    let held = Arc::new(AtomicBool::new(true));
    lab.shared.gate.open(term_by(&held));
    let mut body = lab.get("/apis/x.io/v1/things?watch=1").await.into_body();
    held.store(false, Ordering::Relaxed);
    server.unbounded_send(ADDED).unwrap();
    assert!(body.frame().now_or_never().is_none());
}

/// What the controller had in view then is known as if it had been broken off: it is waited for when the Lease is held again.
#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_no_view() {
    let (_server, respond) = streaming();
    let lab = of_children(respond);
    let mut body = lab.get("/apis/x.io/v1/things?watch=1&resourceVersion=5").await.into_body();
    assert!(body.frame().now_or_never().is_none());
    lab.shared.gate.close();
    assert!(body.frame().now_or_never().is_none());
    assert_eq!((lab.shared.views.numbers().open, lab.shared.views.numbers().ended), (0, 1));
    assert!(lab.shared.views.interrupted(&things(), None, Instant::now()).await, "it was broken off");
}
