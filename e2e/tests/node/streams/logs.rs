//! What a container has written.

use std::{fmt::Write as _, sync::Arc};

use super::start_pod;
use crate::Shared;

const LINES: usize = 2000;

/// Those of the guest's `lines`.
fn lines(from: usize, to: usize) -> String {
    (from..to).fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "line {line}");
        text
    })
}

pub(crate) async fn logs_are_the_same(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    start_pod(&shared.node, "logs", "", &format!("[lines, '{LINES}', 1ms]")).await.unwrap();
    // It is still writing: whoever follows sees all of it, and the end.
    let followed = streams.run(&["logs", "--follow", "logs"], b"").await;
    assert_eq!(String::from_utf8_lossy(&followed.stdout), lines(0, LINES));
    let all = streams.run(&["logs", "logs"], b"").await;
    assert_eq!(String::from_utf8_lossy(&all.stdout), lines(0, LINES));
    let some = streams.run(&["logs", "--tail=10", "logs"], b"").await;
    assert_eq!(String::from_utf8_lossy(&some.stdout), lines(LINES - 10, LINES));
}
