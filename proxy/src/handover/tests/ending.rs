//! What is drained when the controller has ended.

use super::*;
use crate::handover::{ANSWERS_WITHIN, FINISHES_WITHIN};

const MOMENT: Duration = Duration::from_millis(1);

/// Ends in the background; tells how long that took.
fn finish(scene: &Scene) -> tokio::task::JoinHandle<Duration> {
    let handover = scene.handover.clone();
    tokio::spawn(async move {
        let start = Instant::now();
        handover.finish().await;
        start.elapsed()
    })
}

#[tokio::test(start_paused = true)]
async fn the_grace_counts_from_what_was_sent_last_and_what_is_under_way_is_waited_for() {
    let mut scene = Scene::new();
    let writing = write(&scene.handover.fence, "b");
    let (before, after) = (watch(&scene.views, Some(5)), watch(&scene.views, Some(5)));
    drop(before);
    for name in ["a", "b"] {
        scene.drained(name, 10, "m1");
    }
    scene.pass(2 * GRACE).await;
    assert_eq!(scene.acknowledged(), [], "a watch that ended may be continued");
    drop(write(&scene.handover.fence, "another"));
    scene.pass(GRACE / 2).await;
    finish(&scene);
    tokio::task::yield_now().await;
    // Its connection was gone before.
    drop(after);
    scene.pass(GRACE / 2 - MOMENT).await;
    assert_eq!(scene.acknowledged(), [], "something was sent");
    scene.drained("c", 11, "m1");
    scene.pass(2 * MOMENT).await;
    let mut acknowledged = scene.acknowledged();
    acknowledged.sort();
    assert_eq!(acknowledged, [ack("a", "m1"), ack("c", "m1")], "no controller was at work on it since the end");
    drop(writing);
    scene.drained("d", 12, "m1");
    scene.pass(GRACE - MOMENT).await;
    assert_eq!(scene.acknowledged().len(), 2, "something was sent in between");
    scene.pass(2 * MOMENT).await;
    assert_eq!(scene.acknowledged().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_what_is_drained_and_not_for_what_can_not_be_let_go() {
    let mut scene = Scene::new();
    drop(write(&scene.handover.fence, "a"));
    assert_eq!(finish(&scene).await.unwrap(), Duration::ZERO, "nothing is drained");
    scene.drained("a", 10, "m1");
    let waits = finish(&scene);
    scene.pass(2 * GRACE).await;
    assert_eq!((waits.await.unwrap(), scene.acknowledged()), (GRACE, vec![ack("a", "m1")]));

    let refuses = Scene::new();
    *refuses.recorder.refusing.lock() = Some("no".into());
    let mut scene = refuses;
    scene.drained("a", 10, "m1");
    let waits = finish(&scene);
    scene.pass(2 * GRACE).await;
    assert_eq!(waits.await.unwrap(), GRACE, "the API server does not take it");

    let mut scene = Scene::new();
    let _writing = write(&scene.handover.fence, "a");
    scene.drained("a", 10, "m1");
    for (passes, takes) in [(Duration::ZERO, FINISHES_WITHIN), (GRACE, ANSWERS_WITHIN)] {
        scene.pass(passes).await;
        let waits = finish(&scene);
        scene.pass(2 * FINISHES_WITHIN).await;
        assert_eq!((waits.await.unwrap(), scene.acknowledged()), (takes, vec![]), "something may yet be carried out");
    }

    let mut scene = Scene::new();
    scene.handover.grace = FINISHES_WITHIN + MOMENT;
    drop(write(&scene.handover.fence, "a"));
    scene.drained("a", 10, "m1");
    scene.pass(Duration::ZERO).await;
    assert_eq!(scene.drains.all(Instant::now()).0, 1);
    assert_eq!(finish(&scene).await.unwrap(), Duration::ZERO, "it would not rest long enough");
}

#[tokio::test(start_paused = true)]
async fn before_the_end_the_grace_begins_with_the_drain_however_long_nothing_was_sent() {
    let mut scene = Scene::new();
    drop(write(&scene.handover.fence, "a"));
    scene.pass(10 * GRACE).await;
    scene.drained("a", 10, "m1");
    scene.pass(GRACE - MOMENT).await;
    assert_eq!(scene.acknowledged(), [], "the controller may be at work on what it read before");
    scene.pass(2 * MOMENT).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1")]);
}
