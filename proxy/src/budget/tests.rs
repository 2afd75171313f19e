#![allow(clippy::unwrap_used)]

use futures::FutureExt;

use super::*;
use crate::body::{BoxError, boxed};

fn pieces(pieces: &[&'static str]) -> Body {
    let frames: Vec<_> =
        pieces.iter().map(|it| Ok::<_, BoxError>(Frame::data(Bytes::from_static(it.as_bytes())))).collect();
    boxed(StreamBody::new(stream::iter(frames)))
}

fn taking(budget: &Budget, bytes: usize) -> BudgetPermit {
    let mut permit = budget.permit();
    assert!(permit.resize(bytes));
    permit
}

async fn all(body: Body) -> Bytes {
    body.collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn bytes_are_given_back_with_their_last_copy() {
    let budget = Budget::default();
    let (bytes, body) = budget.peek(pieces(&["half", "half"]), 8).await;
    assert_eq!((bytes.as_deref(), budget.used()), (Some(&b"halfhalf"[..]), 8));
    drop(bytes);
    assert_eq!(all(body).await, "halfhalf");
    assert_eq!(budget.used(), 0);
    let part = budget.collect(pieces(&["whole"]), 8).await.unwrap().slice(1..2);
    assert_eq!(budget.used(), 5);
    drop(part);
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_room_waits_a_second_and_a_body_that_passes_is_whole_all_the_same() {
    let budget = Budget::default();
    let mut others = taking(&budget, SIZE - 4);
    let start = tokio::time::Instant::now();
    assert!(matches!(budget.collect(pieces(&["half", "half"]), 8).await, Err(Unread::NoRoom)));
    assert_eq!(start.elapsed(), WAIT);
    let (read, body) = budget.peek(pieces(&["half", "half", "more"]), 20).await;
    assert_eq!((read, all(body).await), (None, Bytes::from_static(b"halfhalfmore")));
    let mut waits = Box::pin(budget.collect(pieces(&["half", "half"]), 8));
    assert!(waits.as_mut().now_or_never().is_none());
    assert!(others.resize(0));
    assert_eq!(waits.await.unwrap(), "halfhalf");
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn what_is_too_long_or_breaks_off_passes_as_it_came() {
    let budget = Budget::default();
    assert!(matches!(budget.collect(pieces(&["half", "half"]), 7).await, Err(Unread::TooLong(7))));
    let (read, body) = budget.peek(pieces(&["half", "half", "more"]), 7).await;
    assert_eq!((read, all(body).await), (None, Bytes::from_static(b"halfhalfmore")));
    let frames = [Ok(Frame::data(Bytes::from_static(b"half"))), Err(BoxError::from("gone"))];
    let (read, mut body) = budget.peek(boxed(StreamBody::new(stream::iter(frames))), 7).await;
    assert_eq!(read, None);
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "gone");
    drop(body);
    assert_eq!(budget.used(), 0);
}
