#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::eventually::eventually;

/// What came of a case: whether it passed, how often it was begun, and how often it passed only alone.
type Played = (bool, u32, usize);

/// How the machine and the case are.
struct Setting {
    is_late: bool,
    is_strict: bool,
    weight: Weight,
    open: BTreeMap<&'static str, Open>,
}

impl Setting {
    fn late(weight: Weight) -> Self {
        Self { is_late: true, is_strict: true, weight, open: BTreeMap::new() }
    }

    /// Plays a case in a stage of its own.
    fn play(self, run: fn(attempt: u32) -> Result<(), &'static str>) -> Played {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sensor = Sensor::of(if self.is_late { LATE } else { Duration::ZERO });
        let stage = Stage {
            handle: runtime.handle().clone(),
            admission: Admission::new(2),
            sensor,
            open: Mutex::new(self.open),
            verdict: Mutex::default(),
            all: false,
            missing: BTreeMap::new(),
            broken: BTreeMap::new(),
            renews: || {},
        };
        let begun = Arc::new(AtomicU32::new(0));
        let attempts = Arc::clone(&begun);
        let case = Case::new("case", move || {
            let attempt = attempts.fetch_add(1, Ordering::SeqCst) + 1;
            Box::pin(async move {
                let probe = || async { run(attempt).map_err(str::to_owned) };
                let met = eventually("the condition", Duration::from_millis(1), probe);
                assert!(run(attempt) != Err("broken"), "an assertion");
                met.await.unwrap();
            })
        });
        let case = if self.weight == Weight::Alone { case.alone() } else { case };
        let case = if self.is_strict { case.strict() } else { case };
        let played = std::panic::catch_unwind(AssertUnwindSafe(|| stage.play("group", "group::case", case)));
        let alone = stage.verdict().again.iter().filter(|(_, _, outcome)| *outcome == Outcome::Passed).count();
        (played.is_ok_and(|played| played.is_ok()), begun.load(Ordering::SeqCst), alone)
    }
}

const SECOND: fn(u32) -> Result<(), &'static str> = |attempt| if attempt == 2 { Ok(()) } else { Err("not yet") };
const BROKEN_FIRST: fn(u32) -> Result<(), &'static str> = |attempt| if attempt == 2 { Ok(()) } else { Err("broken") };

#[test]
fn a_deadline_missed_on_a_late_machine_is_tried_once_more_alone() {
    assert_eq!(Setting::late(Weight::Waits).play(SECOND), (true, 2, 1));
    assert_eq!(Setting::late(Weight::Alone).play(SECOND), (true, 2, 1));
    assert_eq!(Setting::late(Weight::Waits).play(|_| Err("never")), (false, 2, 0));
    assert_eq!(Setting::late(Weight::Waits).play(|_| Ok(())), (true, 1, 0));
}

#[test]
fn a_failure_on_a_machine_in_time_is_a_failure() {
    let in_time = |weight| Setting { is_late: false, ..Setting::late(weight) };
    assert_eq!(in_time(Weight::Waits).play(SECOND), (false, 1, 0));
    assert_eq!(in_time(Weight::Alone).play(SECOND), (false, 1, 0));
}

#[test]
fn a_broken_assertion_of_a_strict_case_is_not_tried_again() {
    assert_eq!(Setting::late(Weight::Waits).play(BROKEN_FIRST), (false, 1, 0));
    let lenient = Setting { is_strict: false, ..Setting::late(Weight::Waits) };
    assert_eq!(lenient.play(BROKEN_FIRST), (true, 2, 1));
}

#[test]
fn the_second_attempt_begins_with_nothing_shared() {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    let ends = || {
        ENDED.fetch_add(1, Ordering::SeqCst);
    };
    let open = BTreeMap::from([("group", Open { left: 2, whole: true, ends, settles: None })]);
    assert!(Setting { open, ..Setting::late(Weight::Waits) }.play(SECOND).0);
    assert_eq!(ENDED.load(Ordering::SeqCst), 1);
}

#[test]
fn the_end_tells_what_came_of_all_and_why() {
    let verdict = Verdict {
        passed: 7,
        failed: vec!["a::broken".to_owned()],
        ignored: BTreeMap::from([("can't run here: install Java".to_owned(), 2)]),
        again: vec![("a::slow".to_owned(), LATE, Outcome::Passed)],
        took: vec![(Duration::from_secs(3), "a::slow".to_owned())],
    };
    let late = [1, 30, 400].map(Duration::from_millis);
    let machine = Machine { cores: 2, late, at_once: (4, 20), took: Duration::from_secs(90) };
    let mut text = String::new();
    verdict.say(&mut text, &machine).unwrap();
    for part in [
        "7 passed, 1 failed, 2 ignored; 90 s",
        "ignored, 2: can't run here: install Java",
        "passed only alone; the machine was late by 12 ms when it failed: a::slow",
        "failed: a::broken",
        "2 cores; a timer with 4 ms of work was late by 1 ms in the median second, 30 ms in 1 of 100, 400 ms in the worst",
        "4 to 20 cases could run at once",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
