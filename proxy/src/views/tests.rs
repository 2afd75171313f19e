//! What holds an object, and for how long.
#![allow(clippy::unwrap_used)]

use futures::FutureExt;

use super::{
    fixtures::{at, drained, leaving, scope, watch},
    resumption::{EARLY, MAX_LISTS, REMEMBERED},
    *,
};
use crate::request::selector::Selector;

fn things() -> GroupResource {
    GroupResource { group: "x.io".into(), resource: "things".into() }
}

fn object(version: u64) -> Arc<DrainingObject> {
    leaving(things(), Some("mine"), version)
}

fn open(views: &Views, namespace: Option<&str>, kind: Kind) -> View {
    let view = views.open(scope(things(), namespace), kind).unwrap();
    view.begun();
    view
}

fn selecting(views: &Views, labels: &str, fields: &str) -> View {
    let (labels, fields) = (Selector::parse(labels).unwrap(), Fields::parse(fields));
    let view = views.open(Scope { labels, fields, ..scope(things(), None) }, Kind::Watch(Some(at(5)))).unwrap();
    view.begun();
    view
}

#[tokio::test]
async fn a_drain_waits_for_each_view_that_covers_it() {
    let views = Views::new();
    let (all, other) = (watch(&views, things(), Some(3)), open(&views, Some("other"), Kind::List));
    let ten = object(10);
    let mut past = Box::pin(views.wait_delivered(&ten));
    assert!((&mut past).now_or_never().is_none());
    all.advance(&at(9));
    assert!((&mut past).now_or_never().is_none(), "9 is not past 10");
    let late = open(&views, Some("mine"), Kind::Watch(None));
    all.advance(&at(10));
    assert!((&mut past).now_or_never().is_none(), "a watch of the present state may still show it");
    late.advance(&at(11));
    assert!(past.now_or_never().is_some(), "the view of another namespace does not count");
    drop(other);
}

#[tokio::test]
async fn a_list_that_ends_holds_nobody() {
    let views = Views::new();
    let list = open(&views, None, Kind::List);
    let (low, high) = (object(1), object(100));
    let mut waits = [Box::pin(views.wait_delivered(&low)), Box::pin(views.wait_delivered(&high))];
    assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()));
    drop(list);
    assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_some()));
    assert_eq!(views.numbers().open, 0);
}

#[tokio::test]
async fn views_of_one_resource_say_nothing_about_another() {
    let views = Views::new();
    let others = GroupResource { group: String::new(), resource: "things".into() };
    let _open = views.open(scope(others, None), Kind::List).unwrap();
    assert!(views.wait_delivered(&object(1)).now_or_never().is_some());
}

#[tokio::test]
async fn who_gives_up_leaves_nothing_behind() {
    let views = Views::new();
    let open = open(&views, None, Kind::List);
    assert!(views.wait_delivered(&object(5)).now_or_never().is_none());
    assert!(views.0.lock().resources.values().all(|of| of.waiting.is_empty()));
    drop(open);
}

#[tokio::test]
async fn a_position_never_goes_back() {
    let views = Views::new();
    let view = watch(&views, things(), Some(10));
    view.advance(&at(4));
    assert_eq!(views.count_blocking(&object(10)), 0);
}

#[tokio::test]
async fn a_name_decides_whether_a_watch_could_show_it() {
    let views = Views::new();
    for (fields, holds) in [
        ("metadata.name=b", 0),
        ("metadata.name=a", 1),
        ("metadata.namespace=other", 0),
        ("metadata.name!=b", 1),
        ("spec.x=1,metadata.name=b", 0),
    ] {
        let view = views.open(Scope { fields: Fields::parse(fields), ..scope(things(), None) }, Kind::List);
        assert_eq!(views.count_blocking(&object(10)), holds, "{fields}");
        drop(view);
    }
}

#[tokio::test]
async fn labels_decide_for_a_watch_whose_client_took_all_that_came() {
    let views = Views::new();
    for (labels, holds) in [("tier=back", false), ("tier", true), ("!tier", false), ("tier in (front,back)", true)] {
        let view = selecting(&views, labels, "");
        let ten = object(10);
        let mut past = Box::pin(views.wait_delivered(&ten));
        assert!((&mut past).now_or_never().is_none(), "{labels}: it may be on the way that it is selected no more");
        view.idle();
        assert_eq!((&mut past).now_or_never().is_none(), holds, "{labels}");
        view.passes(1);
        assert_eq!(views.count_blocking(&ten), 1, "{labels}: there is something in hand again");
        view.advance(&at(10));
        assert_eq!(views.count_blocking(&ten), 0, "{labels}");
    }
}

#[tokio::test]
async fn a_list_with_selectors_may_show_an_older_state() {
    let views = Views::new();
    let labels = Selector::parse("tier=back").unwrap();
    let list = views.open(Scope { labels, ..scope(things(), None) }, Kind::List).unwrap();
    list.idle();
    assert_eq!(views.count_blocking(&object(10)), 1);
}

#[tokio::test]
async fn who_is_excused_holds_that_object_no_more() {
    let views = Views::new();
    let view = selecting(&views, "", "spec.x=1");
    let (ten, eleven) = (object(10), object(11));
    assert!(views.open_blocking(&ten).iter().all(|it| !it.is_idle()), "it has something in hand");
    view.idle();
    let [holding] = &views.open_blocking(&ten)[..] else { panic!("one holds it") };
    assert!(holding.is_placed && holding.scope.fields.is_undecided());
    ten.prove_not_shown(holding.id);
    assert_eq!((views.count_blocking(&ten), views.count_blocking(&eleven)), (0, 1));
    holding.cut();
    assert!(view.cut().now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ended_holds_what_it_has_not_seen_go_until_it_is_continued() {
    let views = Views::new();
    let (ten, start) = (object(10), Instant::now());
    drop(watch(&views, things(), Some(10)));
    drop(views.open(scope(things(), None), Kind::Watch(None)).unwrap());
    assert_eq!(views.count_blocking(&ten), 0, "one is past it, one was refused");
    drop(watch(&views, things(), Some(9)));
    assert_eq!((views.count_blocking(&ten), views.numbers().open), (1, 0));
    views.wait_delivered(&ten).await;
    assert_eq!(start.elapsed(), WATCHES_AGAIN);

    drop(watch(&views, things(), Some(9)));
    let other = open(&views, Some("mine"), Kind::Watch(Some(at(10))));
    assert_eq!(views.count_blocking(&ten), 1, "that is another watch");
    let refused = views.open(scope(things(), None), Kind::Watch(Some(at(10)))).unwrap();
    assert_eq!(views.count_blocking(&ten), 1, "the API server has not answered it");
    refused.begun();
    assert_eq!(views.count_blocking(&ten), 0);
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_be_continued_before_its_end_is_noticed() {
    let (views, ten) = (Views::new(), object(10));
    let (before, again) = (watch(&views, things(), Some(9)), watch(&views, things(), Some(10)));
    drop(before);
    assert_eq!(views.count_blocking(&ten), 0, "the other one goes on in its place");
    let (before, again) = (again, watch(&views, things(), Some(20)));
    views.leaves(&ten);
    views.leaves(&object(15));
    drop(before);
    assert!(again.cut().now_or_never().is_some(), "it has to be told about the one at 15");
    drop(again);
    let (last, missed) = continued(&views, 21);
    assert_eq!(uids(&missed), ["uid-10", "uid-15"], "no watch had either");
    last.mark_notified(&missed);
    let late = watch(&views, things(), Some(21));
    tokio::time::sleep(EARLY).await;
    drop(last);
    assert_eq!(views.count_blocking(&object(30)), 2, "the other one is another client's");
    drop(late);
}

/// A watch that has begun, and the uids of what its client has to be told first.
fn continued(views: &Views, from: u64) -> (View, UnobservedDeletions) {
    let view = views.open(scope(things(), None), Kind::Watch(Some(at(from)))).unwrap();
    let missed = view.begun().unwrap_or(UnobservedDeletions { objects: Vec::new(), from: None });
    (view, missed)
}

fn uids(missed: &UnobservedDeletions) -> Vec<&str> {
    missed.objects.iter().map(|it| &it.uid[..]).collect()
}

#[tokio::test]
async fn what_a_client_missed_holds_until_it_is_told_by_whichever_watch() {
    let (views, ten) = (Views::new(), object(10));
    drop(watch(&views, things(), Some(5)));
    views.leaves(&ten);
    let (second, missed) = continued(&views, 20);
    assert_eq!((uids(&missed), views.count_blocking(&ten)), (vec!["uid-10"], 1), "its DELETED is on the way");
    // Its client was gone before it came.
    drop(second);
    assert_eq!(views.count_blocking(&ten), 1);
    let (third, missed) = continued(&views, 21);
    assert_eq!(uids(&missed), ["uid-10"]);
    third.mark_notified(&missed);
    assert_eq!(views.count_blocking(&ten), 0);
    drop(third);
    assert!(uids(&continued(&views, 22).1).is_empty(), "it was told");
}

#[tokio::test]
async fn a_drain_that_shows_up_behind_a_watch_that_skipped_it_makes_its_client_list_again() {
    let (views, twelve) = (Views::new(), object(12));
    drop(watch(&views, things(), Some(5)));
    let again = watch(&views, things(), Some(20));
    views.leaves(&object(5));
    views.leaves(&object(21));
    assert!(again.cut().now_or_never().is_none(), "the watch before saw the one, and this one will see the other");
    again.advance(&at(30));
    views.leaves(&twelve);
    assert!(again.cut().now_or_never().is_some(), "who listed between 12 and 20 does not know that it is gone");
    assert_eq!(views.count_blocking(&twelve), 1);
    drop(again);
    let (last, missed) = continued(&views, 31);
    assert_eq!(uids(&missed), ["uid-12"]);
    last.mark_notified(&missed);
    assert_eq!(views.count_blocking(&twelve), 0);
}

#[tokio::test]
async fn what_one_watch_skipped_is_remembered_for_those_that_go_on_from_where_it_was() {
    let views = Views::new();
    drop(watch(&views, things(), Some(5)));
    drop(watch(&views, things(), Some(20)));
    views.leaves(&object(11));
    let (third, missed) = continued(&views, 20);
    assert_eq!(uids(&missed), ["uid-11"], "it showed up while no client watched");
    third.mark_notified(&missed);
    views.leaves(&object(12));
    assert!(third.cut().now_or_never().is_some());
    drop(third);
    let (fourth, missed) = continued(&views, 20);
    assert_eq!(uids(&missed), ["uid-12"]);
    fourth.mark_notified(&missed);

    let replaces = open(&views, None, Kind::StreamingList);
    drop(fourth);
    views.leaves(&object(13));
    assert!(replaces.cut().now_or_never().is_none(), "its client notices what is gone");
}

#[tokio::test]
async fn where_it_is_not_known_when_an_object_was_drained_a_gap_before_may_have_hidden_it() {
    let inexact = |version| Arc::new(DrainingObject { is_exact: false, ..drained(things(), Some("mine"), version) });
    let views = Views::new();
    let straight_on = watch(&views, things(), Some(5));
    views.leaves(&inexact(40));
    assert!(straight_on.cut().now_or_never().is_none(), "it sees everything");
    drop(straight_on);
    let again = watch(&views, things(), Some(20));
    views.leaves(&inexact(30));
    assert!(again.cut().now_or_never().is_some(), "written at 30, and drained at some time before");
}

#[tokio::test]
async fn a_watch_from_a_state_of_unknown_age_has_skipped_what_was_before_its_first_bookmark() {
    let views = Views::new();
    drop(watch(&views, things(), Some(5)));
    let again = watch(&views, things(), None);
    again.advance(&at(20));
    again.advance(&at(30));
    views.leaves(&object(25));
    assert!(again.cut().now_or_never().is_none());
    views.leaves(&object(15));
    assert!(again.cut().now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_holds_what_is_drained_after_it_began_while_pages_come() {
    let views = Views::new();
    let (ten, start) = (object(10), Instant::now());
    let page = || open(&views, None, Kind::Page(at(9)));
    for _ in 0..3 {
        drop(page());
        tokio::time::sleep(NEXT_PAGE / 2).await;
        assert_eq!(views.count_blocking(&ten), 1);
    }
    assert!(views.0.lock().resources.values().all(|of| of.open.len() == 1), "of a list its last page is remembered");
    views.wait_delivered(&ten).await;
    assert_eq!(start.elapsed(), 2 * NEXT_PAGE);
    views.gone(&ten);
    assert_eq!(views.open(scope(things(), None), Kind::Page(at(9))).unwrap_err(), Expired);
    assert!(views.open(scope(things(), None), Kind::Page(at(10))).is_ok());
    assert!(views.open(scope(things(), None), Kind::Watch(Some(at(9)))).is_ok(), "it is sent the DELETED");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_did_not_begin_holds_what_its_list_has_shown_until_the_next_one_does() {
    let views = Views::new();
    let attempt = || views.open(scope(things(), None), Kind::Watch(Some(at(9)))).unwrap().postponed();
    attempt();
    tokio::time::sleep(WATCHES_AGAIN / 2).await;
    attempt();
    assert_eq!(views.count_blocking(&object(10)), 1, "it is one client that tries twice");
    tokio::time::sleep(WATCHES_AGAIN * 3 / 4).await;
    assert_eq!(views.count_blocking(&object(10)), 1);
    let next = watch(&views, things(), Some(9));
    next.advance(&at(10));
    assert_eq!(views.count_blocking(&object(10)), 0, "it goes on in its place");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_did_not_begin_behind_a_later_event_is_that_of_the_client_that_had_it() {
    // Not so where another client may have listed what this one goes on from, or where that is unknown: too much was
    // listed.
    let (all, other) = (scope(things(), None), scope(things(), Some("other")));
    for (lists, others) in [(vec![], 0), (vec![other.clone()], 0), (vec![all], 1), (vec![other; MAX_LISTS], 1)] {
        let views = Views::new();
        for scope in lists {
            views.open(scope, Kind::List).unwrap().begun();
        }
        // How far it had come was last said at 5, by a bookmark; then it was sent changes, the last one of 9.
        drop(watch(&views, things(), Some(5)));
        for _ in 0..2 {
            views.open(scope(things(), None), Kind::Watch(Some(at(9)))).unwrap().postponed();
            assert_eq!(views.count_blocking(&object(10)), 1 + others);
            tokio::time::sleep(WATCHES_AGAIN * 3 / 4).await;
        }
        assert_eq!(views.count_blocking(&object(10)), 1, "its client is waited for, and another one only so long");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_refused_for_long_is_waited_for_between_its_attempts() {
    // Whether it goes on from where it was, or lists first.
    for kind in [Kind::Watch(Some(at(9))), Kind::List, Kind::StreamingList] {
        let views = Views::new();
        drop(watch(&views, things(), Some(5)));
        for _ in 0..3 {
            views.open(scope(things(), None), kind.clone()).unwrap().postponed();
            tokio::time::sleep(TRIES_AGAIN * 9 / 10).await;
            assert_eq!(views.count_blocking(&object(10)), 1, "{kind:?}");
        }
        tokio::time::sleep(TRIES_AGAIN / 5).await;
        assert_eq!(views.count_blocking(&object(10)), 0, "{kind:?}");

        drop(watch(&views, things(), Some(5)));
        for _ in 0..REMEMBERED.as_secs() / WATCHES_AGAIN.as_secs() {
            assert_eq!(views.count_blocking(&object(10)), 1, "{kind:?}");
            views.open(scope(things(), None), kind.clone()).unwrap().postponed();
            tokio::time::sleep(WATCHES_AGAIN).await;
        }
        assert_eq!(views.count_blocking(&object(10)), 0, "it may be another client's: {kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_could_not_watch_again_at_once_holds_nothing_once_it_does() {
    let views = Views::new();
    drop(watch(&views, things(), Some(5)));
    views.open(scope(things(), None), Kind::Watch(Some(at(9)))).unwrap().postponed();
    // The API server has forgotten what was at 9; then the client begins again, and is cut before it has a state.
    drop(watch(&views, things(), Some(9)));
    drop(open(&views, None, Kind::StreamingList));
    let again = watch(&views, things(), Some(20));
    assert_eq!(views.count_blocking(&object(15)), 0, "one client watches, and begins behind it");
    drop(again);
}

#[tokio::test(start_paused = true)]
async fn lists_are_remembered_up_to_a_bound_and_counted() {
    let views = Views::new();
    for _ in 0..MAX_LISTS + 10 {
        drop(open(&views, None, Kind::List));
    }
    assert_eq!(views.numbers(), Numbers { lists: MAX_LISTS, lists_evicted: 10, ..Numbers::default() });
    tokio::time::sleep(TRIES_AGAIN).await;
    assert_eq!(views.numbers(), Numbers { lists_evicted: 10, ..Numbers::default() });
    drop(open(&views, None, Kind::List));
    assert_eq!(views.numbers(), Numbers { lists: 1, lists_evicted: 10, ..Numbers::default() }, "old ones make room");
}

#[tokio::test(start_paused = true)]
async fn what_ended_is_remembered_up_to_a_bound() {
    let views = Views::new();
    let ended: Vec<_> = (0..MAX_ENDED + 10).map(|_| watch(&views, things(), Some(9))).collect();
    tokio::time::sleep(EARLY).await;
    drop(ended);
    assert_eq!(views.count_blocking(&object(10)), MAX_ENDED);
    assert_eq!(views.numbers(), Numbers { ended: MAX_ENDED, ended_evicted: 10, ..Numbers::default() });
    tokio::time::sleep(WATCHES_AGAIN).await;
    assert_eq!(views.numbers().ended, MAX_ENDED, "they hold nothing, and take its place");
    tokio::time::sleep(REMEMBERED).await;
    assert_eq!(views.numbers().ended, 0);
    drop(watch(&views, things(), Some(9)));
    assert!(views.0.lock().resources.values().all(|of| of.open.len() == 1));
}
