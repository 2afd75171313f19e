#![allow(clippy::unwrap_used)]

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::{FutureExt, future::join_all};
use http_body::SizeHint;

use super::*;
use crate::body::{BoxError, boxed, full};

fn pieces(pieces: &[&'static str]) -> Body {
    let frames: Vec<_> =
        pieces.iter().map(|it| Ok::<_, BoxError>(Frame::data(Bytes::from_static(it.as_bytes())))).collect();
    boxed(StreamBody::new(stream::iter(frames)))
}

/// A body of unknown length in pieces of 32 KiB.
fn long(bytes: usize) -> Body {
    let piece = Bytes::from_static(&[b'x'; 32 << 10]);
    let frames = vec![piece.clone(); bytes / piece.len()].into_iter().map(|it| Ok::<_, BoxError>(Frame::data(it)));
    boxed(StreamBody::new(stream::iter(frames)))
}

/// A body that says how long it is.
struct Announced(u64, Body);

impl http_body::Body for Announced {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.1).poll_frame(context)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

/// One that says so, and sends nothing.
fn silent(len: usize) -> Body {
    Announced(len as u64, boxed(StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>()))).boxed_unsync()
}

/// A body that comes piece by piece, while others come as well.
fn slow(len: usize, is_known: bool) -> Body {
    let pieces = BodyStream::new(long(len)).then(async |frame| {
        tokio::task::yield_now().await;
        frame
    });
    let pieces = boxed(StreamBody::new(Box::pin(pieces)));
    if is_known { Announced(len as u64, pieces).boxed_unsync() } else { pieces }
}

impl Budget {
    /// Draws all that is left but for so many.
    pub(crate) fn fill_but(&self, left: usize) -> BudgetPermit {
        let mut permit = self.permit();
        assert!(permit.resize_within(SIZE - left, SIZE));
        permit
    }
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
    assert_eq!((bytes.as_ref().unwrap().as_deref(), budget.used()), (Some(&b"halfhalf"[..]), 8));
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
    let mut others = budget.fill_but(4);
    let start = tokio::time::Instant::now();
    assert!(matches!(budget.collect(pieces(&["half", "half"]), 8).await, Err(Unread::NoRoom(_))));
    assert_eq!(start.elapsed(), WAIT);
    let (read, body) = budget.peek(pieces(&["half", "half", "more"]), 20).await;
    assert!(read.is_err());
    assert_eq!(all(body).await, "halfhalfmore");
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
    assert_eq!((read.unwrap(), all(body).await), (None, Bytes::from_static(b"halfhalfmore")));
    let frames = [Ok(Frame::data(Bytes::from_static(b"half"))), Err(BoxError::from("gone"))];
    let (read, mut body) = budget.peek(boxed(StreamBody::new(stream::iter(frames))), 7).await;
    assert_eq!(read.unwrap(), None);
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "gone");
    drop(body);
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_longest_object_is_read_whether_its_length_is_known_or_not() {
    const MAX_OBJECT: usize = 8 << 20;
    let budget = Budget::default();
    for body in [long(MAX_OBJECT), full(vec![b'x'; MAX_OBJECT])] {
        let bytes = budget.collect(body, MAX_OBJECT).await.unwrap();
        assert_eq!((bytes.len(), budget.used()), (MAX_OBJECT, MAX_OBJECT));
    }
    assert_eq!(budget.used(), 0);
    for (len, most) in [(MAX_OBJECT + 1, MAX_OBJECT), (SIZE, usize::MAX)] {
        assert!(matches!(budget.collect(silent(len), most).now_or_never().unwrap(), Err(Unread::TooLong(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_much_keeps_nothing_from_others() {
    let budget = Budget::default();
    let others = taking(&budget, 2 << 20);
    let mut waits = Box::pin(budget.collect(full(vec![b'x'; 8 << 20]), 8 << 20));
    assert!(waits.as_mut().now_or_never().is_none());
    assert_eq!(budget.collect(long(1 << 20), 8 << 20).now_or_never().unwrap().unwrap().len(), 1 << 20);
    drop(others);
    assert_eq!(waits.await.unwrap().len(), 8 << 20);
}

#[tokio::test(start_paused = true)]
async fn bodies_that_come_together_do_not_all_wait_for_each_other() {
    let budget = Budget::default();
    let read = async |count: usize, len: usize, is_known| {
        let read = |_| async { budget.collect(slow(len, is_known), 8 << 20).await.map(drop) };
        join_all((0..count).map(read)).await
    };
    assert!(read(9, 2 << 20, true).await.iter().all(Result::is_ok), "each has begun when it has room for all of it");
    assert!(read(10, 1 << 20, false).await.iter().any(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn body_draws_what_has_come_of_it() {
    let budget = Budget::default();
    let mut unended: Vec<_> = (0..19).map(|_| Box::pin(budget.collect(silent(3 << 20), 8 << 20))).collect();
    assert!(unended.iter_mut().all(|body| body.as_mut().now_or_never().is_none()));
    assert_eq!(budget.used(), 0);
    assert_eq!(budget.collect(long(8 << 20), 8 << 20).now_or_never().unwrap().unwrap().len(), 8 << 20);
}

#[tokio::test(start_paused = true)]
async fn account_draws_no_more_than_its_share() {
    let budget = Budget::default();
    let [jane, bob, eve] = ["jane", "bob", "eve"].map(|name| budget.of_account(name.into()));
    let jane_holds = jane.collect(long(SHARE), 8 << 20).await.unwrap();
    assert!(matches!(jane.collect(pieces(&["x"]), 8 << 20).await, Err(Unread::NoRoom(_))));
    let _bob_holds = bob.collect(long(SHARES - SHARE), 8 << 20).await.unwrap();
    assert!(matches!(eve.collect(pieces(&["x"]), 8 << 20).await, Err(Unread::NoRoom(_))), "of all shares");
    assert!(matches!(eve.collect(silent(SHARE + 1), 8 << 20).await, Err(Unread::TooLong(SHARE))));
    assert_eq!(budget.collect(long(SHARE), 8 << 20).await.unwrap().len(), SHARE, "the controller's");
    drop(jane_holds);
    assert!(eve.collect(pieces(&["x"]), 8 << 20).await.is_ok());
    assert_eq!(budget.0.shared.used.lock().by_account.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_small_has_room_beside_what_is_not() {
    let budget = Budget::default();
    let _others = taking(&budget, SIZE - RESERVE);
    assert!(budget.hold(vec![b'x']).is_none(), "of these there may be many");
    assert!(matches!(budget.collect(long(128 << 10), 8 << 20).await, Err(Unread::NoRoom(_))));
    for small in [long(SMALL), full(vec![b'x'; SMALL])] {
        assert_eq!(budget.collect(small, 8 << 20).await.unwrap().len(), SMALL);
    }
}

#[test]
fn windows_of_watches_are_counted_and_bounded_by_account() {
    let budget = Budget::default();
    let [jane, bob, eve] = ["jane", "bob", "eve"].map(|name| budget.of_account(name.into()));
    let take = |of: &Budget, most: usize| (0..most).map_while(|_| of.window().ok()).collect::<Vec<_>>();
    let theirs = [take(&jane, WATCHES), take(&bob, WATCHES), take(&eve, WATCHES)];
    assert_eq!(theirs.each_ref().map(Vec::len), [WATCHES_OF_ACCOUNT, WATCHES_OF_ACCOUNT, 0]);
    let ours = take(&budget, usize::MAX);
    assert_eq!((ours.len(), budget.windows()), (WATCHES / 2, 128 << 20));
    drop(theirs);
    assert!(jane.window().is_ok());
    drop(ours);
    assert_eq!(budget.windows(), 0);
}
