//! Watches that hold a drain, and what is asked and done about them.

use http::HeaderValue;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::handover::settle::{ASK_AFTER, CUT_AFTER};

fn selecting(views: &Views, labels: &str, fields: &str, from: Option<u64>) -> View {
    let (labels, fields) = (Selector::parse(labels).unwrap(), Fields::parse(fields));
    let scope = Scope { labels, fields, ..fixtures::scope(things(), None) };
    let view = views.open(scope, Kind::Watch(from.map(at))).unwrap();
    view.begun().inspect(|missed| view.mark_notified(missed));
    view.idle();
    view
}

fn is_cut(view: &View) -> bool {
    use futures::FutureExt;
    view.cut().now_or_never().is_some()
}

#[tokio::test(start_paused = true)]
async fn the_api_server_is_asked_about_a_watch_with_a_selector_that_only_it_understands_and_only_then() {
    let mut scene = Scene::new();
    scene.recorder.answers.lock().push(Shown::No);
    let _by_field = selecting(&scene.views, "", "spec.x=1", Some(5));
    let _by_label = selecting(&scene.views, "tier=front", "", Some(5));
    let whole = watch(&scene.views, Some(5));
    scene.drained("a", 10, "m1");
    whole.advance(&at(10));
    scene.pass(ASK_AFTER / 2).await;
    assert_eq!(*scene.recorder.asked.lock(), [""; 0], "its DELETED may be on the way");
    scene.pass(ASK_AFTER).await;
    assert_eq!(*scene.recorder.asked.lock(), ["spec.x=1,metadata.name=a"]);
    scene.pass(GRACE).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1")]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_did_show_it_holds_it_and_one_that_nobody_remembers_is_ended() {
    let mut scene = Scene::new();
    let shows = selecting(&scene.views, "", "spec.x=1", Some(5));
    scene.drained("a", 10, "m1");
    scene.pass(2 * CUT_AFTER).await;
    assert_eq!((scene.acknowledged(), scene.recorder.asked.lock().len(), is_cut(&shows)), (vec![], 1, false));
    shows.advance(&at(10));
    scene.pass(2 * GRACE).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1")]);

    scene.recorder.answers.lock().extend([Shown::Compacted, Shown::Unanswered("busy".into())]);
    scene.drained("b", 20, "m1");
    scene.pass(4 * ASK_AFTER).await;
    assert!(is_cut(&shows), "after the second question");
    assert_eq!(scene.acknowledged().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_say_anything_about_is_ended_after_a_while() {
    // Drained before our watch began, so by another write than the one that we see; or from a state of unknown age.
    for (exact, from) in [(false, Some(5)), (true, None)] {
        let mut scene = Scene::new();
        let view = selecting(&scene.views, "", "", from);
        let object = scene.object("a", 10, "m1");
        scene.work.take(if exact { watcher::Event::Apply(object) } else { watcher::Event::InitApply(object) });
        scene.pass(CUT_AFTER / 2).await;
        assert!(!is_cut(&view), "there may be a bookmark");
        scene.pass(CUT_AFTER).await;
        assert!(is_cut(&view));
        assert_eq!((scene.acknowledged(), scene.recorder.asked.lock().len()), (vec![], 0));
        drop(view);
        // Its client lists again, and watches from there.
        let _again = selecting(&scene.views, "", "", Some(12));
        scene.pass(2 * GRACE).await;
        assert_eq!(scene.acknowledged(), [ack("a", "m1")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_just_begun_has_time_to_say_where_it_is() {
    let mut scene = Scene::new();
    let list = list(&scene.views);
    scene.drained("a", 10, "m1");
    scene.pass(2 * CUT_AFTER + ASK_AFTER / 2).await;
    let view = selecting(&scene.views, "", "", None);
    drop(list);
    scene.pass(ASK_AFTER * 3 / 4).await;
    assert!(!is_cut(&view), "its initial events may be on the way");
    scene.pass(2 * ASK_AFTER).await;
    assert!(is_cut(&view));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_begins_behind_a_drain_under_way_is_told_of_it() {
    let mut scene = Scene::new();
    drop(watch(&scene.views, Some(5)));
    scene.drained("a", 10, "m1");
    scene.pass(GRACE / 2).await;
    let again = scene.views.open(fixtures::scope(things(), None), Kind::Watch(Some(at(12)))).unwrap();
    let missed = again.begun().unwrap();
    assert_eq!(missed.objects.iter().map(|it| &it.uid[..]).collect::<Vec<_>>(), ["uid-a"]);
    again.mark_notified(&missed);
    scene.pass(2 * GRACE).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1")], "it waited for the client to watch again");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_its_deleted_is_left_alone() {
    let mut scene = Scene::new();
    let view = selecting(&scene.views, "", "", Some(5));
    scene.drained("a", 10, "m1");
    scene.pass(2 * CUT_AFTER).await;
    assert!(!is_cut(&view) && scene.recorder.asked.lock().is_empty(), "it will have it");
}

#[tokio::test(start_paused = true)]
async fn a_page_of_an_old_list_is_refused_once_the_object_may_be_let_go_and_holds_it_before() {
    let mut scene = Scene::new();
    let page = |views: &Views| views.open(fixtures::scope(things(), None), Kind::Page(at(9)));
    let view = page(&scene.views).unwrap();
    scene.drained("a", 10, "m1");
    scene.pass(5 * GRACE).await;
    assert_eq!(scene.acknowledged(), []);
    drop(view);
    scene.pass(GRACE / 2).await;
    drop(page(&scene.views).unwrap());
    scene.pass(2 * GRACE).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1")]);
    assert!(page(&scene.views).is_err());
}

/// What was handed to it may be the object, or what comes before its `DELETED`.
#[tokio::test(start_paused = true)]
async fn a_stream_that_its_client_does_not_read_is_closed_after_half_the_deadline_and_named() {
    let open: [fn(&Views) -> View; 2] = [|views| watch(views, Some(5)), list];
    for open in open {
        let (mut scene, connection) = (Scene::new(), CancellationToken::new());
        let view = open(&scene.views);
        view.shown_to(Some(&HeaderValue::from_static("client-java/27")), connection.clone());
        view.begun();
        scene.drained("a", 10, "m1");
        scene.pass(DEADLINE).await;
        assert!(!connection.is_cancelled(), "nothing came that it could read");
        // One that reads, if seldom, goes on.
        for _ in 0..2 {
            view.passes(4096);
            scene.pass(DEADLINE / 2 - 2 * ASK_AFTER).await;
        }
        assert!(!connection.is_cancelled());
        scene.pass(3 * ASK_AFTER).await;
        assert!(connection.is_cancelled());
        let [Report { line, .. }] = &scene.drains.report(Instant::now())[..] else { panic!("one") };
        assert!(line.contains("4096 bytes or more wait to be read by the client client-java/27"), "{line}");
        drop(view);
        scene.pass(DEADLINE + 2 * GRACE).await;
        assert_eq!(scene.acknowledged(), [ack("a", "m1")]);
    }
}
