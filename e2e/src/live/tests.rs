#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::eventually::eventually;

/// Plays a case in a stage of its own. Returns whether it passed, how often it was begun, and who passed only alone.
fn play(weight: Weight, run: fn(attempt: u32) -> Result<(), &'static str>) -> (bool, u32, Vec<String>) {
    play_in(true, weight, run)
}

fn play_in(
    is_strict: bool,
    weight: Weight,
    run: fn(attempt: u32) -> Result<(), &'static str>,
) -> (bool, u32, Vec<String>) {
    play_among(BTreeMap::new(), is_strict, weight, run)
}

fn play_among(
    open: BTreeMap<&'static str, Open>,
    is_strict: bool,
    weight: Weight,
    run: fn(attempt: u32) -> Result<(), &'static str>,
) -> (bool, u32, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let stage = Stage {
        handle: runtime.handle().clone(),
        tokens: Semaphore::new(CAPACITY as usize),
        open: Mutex::new(open),
        seconds: Mutex::default(),
        passed_alone: Mutex::default(),
        all: false,
    };
    let begun = Arc::new(AtomicU32::new(0));
    let attempts = Arc::clone(&begun);
    let case = Case::new("case", move || {
        let attempt = attempts.fetch_add(1, Ordering::SeqCst) + 1;
        Box::pin(async move {
            let met =
                eventually("the condition", Duration::from_millis(1), || async { run(attempt).map_err(str::to_owned) });
            assert!(run(attempt) != Err("broken"), "an assertion");
            met.await.unwrap();
        })
    });
    let case = if weight == Weight::Alone { case.alone() } else { case };
    let case = if is_strict { case.strict() } else { case };
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| stage.play("group", "group::case", case)));
    let passed_alone = std::mem::take(&mut *stage.passed_alone.lock().unwrap());
    (played.is_ok_and(|played| played.is_ok()), begun.load(Ordering::SeqCst), passed_alone)
}

#[test]
fn a_missed_deadline_is_tried_once_more_and_named() {
    let second = |attempt| if attempt == 2 { Ok(()) } else { Err("not yet") };
    assert_eq!(play(Weight::Waits, second), (true, 2, vec!["group::case".to_owned()]));
    assert_eq!(play(Weight::Waits, |_| Err("never")), (false, 2, vec![]));
}

#[test]
fn what_ran_alone_or_broke_an_assertion_is_not_tried_again() {
    assert_eq!(play(Weight::Alone, |_| Err("not yet")), (false, 1, vec![]));
    assert_eq!(play(Weight::Waits, |_| Err("broken")), (false, 1, vec![]));
    assert_eq!(play(Weight::Waits, |_| Ok(())), (true, 1, vec![]));
}

#[test]
fn a_broken_assertion_is_tried_once_more_alone_where_the_case_is_not_strict() {
    let second = |attempt| if attempt == 2 { Ok(()) } else { Err("broken") };
    assert_eq!(play_in(false, Weight::Waits, second), (true, 2, vec!["group::case".to_owned()]));
    assert_eq!(play_in(false, Weight::Waits, |_| Err("broken")), (false, 2, vec![]));
    assert_eq!(play_in(false, Weight::Alone, second), (false, 1, vec![]));
}

#[test]
fn the_second_attempt_begins_with_nothing_shared() {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    let ends = || {
        ENDED.fetch_add(1, Ordering::SeqCst);
    };
    let open = Open { left: 2, whole: true, ends, settles: None };
    let second = |attempt| if attempt == 2 { Ok(()) } else { Err("not yet") };
    assert!(play_among(BTreeMap::from([("group", open)]), true, Weight::Waits, second).0);
    assert_eq!(ENDED.load(Ordering::SeqCst), 1);
}
