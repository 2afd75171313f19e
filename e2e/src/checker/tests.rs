#![allow(clippy::unwrap_used)]

use super::{report::percentile, *};

const BOUND: Duration = Duration::from_secs(10);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn started(uid: &str, instance: &str) -> Event {
    Event::Started { uid: uid.into(), generation: 1, instance: instance.into() }
}

fn ended(uid: &str, generation: i64, instance: &str) -> Event {
    Event::Ended { uid: uid.into(), generation, instance: instance.into(), outcome: Outcome::Done }
}

fn seen(uid: &str, generation: i64, shard: Option<&str>) -> Event {
    Event::Seen {
        uid: uid.into(),
        name: format!("default/{uid}"),
        generation,
        shard: shard.map(Into::into),
        draining: false,
    }
}

fn draining(uid: &str, shard: &str) -> Event {
    Event::Seen {
        uid: uid.into(),
        name: format!("default/{uid}"),
        generation: 1,
        shard: Some(shard.into()),
        draining: true,
    }
}

fn shard(shard: &str) -> Event {
    Event::ShardAvailable { shard: shard.into() }
}

fn unavailable(shard: &str, cause: Cause) -> Event {
    Event::ShardUnavailable { shard: shard.into(), cause }
}

fn judge(events: &[(u64, Event)], now: u64) -> Report {
    let mut checker = Checker::new();
    for (at, event) in events {
        checker.record(Record { at: s(*at), event: event.clone() });
    }
    checker.report(s(now), BOUND)
}

#[test]
fn a_run_without_faults_is_clean() {
    let report = judge(
        &[
            (0, shard("a")),
            (0, shard("b")),
            (1, seen("x", 1, Some("a"))),
            (2, started("x", "a-1")),
            (3, ended("x", 1, "a-1")),
            (4, seen("x", 1, None)),
            (5, seen("x", 1, Some("b"))),
            (5, seen("x", 2, Some("b"))),
            (6, started("x", "b-1")),
            (7, ended("x", 2, "b-1")),
        ],
        1_000,
    );
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.times_without_owner(Cause::Unassigned), [s(1)]);
    assert_eq!(report.reconciles.values().sum::<usize>(), 2);
    assert_eq!(report.objects, BTreeMap::from([("b".to_owned(), 1)]));
}

#[test]
fn two_instances_at_work_on_one_object_are_an_overlap() {
    let report =
        judge(&[(1, started("x", "a")), (2, started("x", "b")), (3, ended("x", 1, "a")), (4, ended("x", 1, "b"))], 5);
    let overlap = Overlap { uid: "x".into(), first: ("a".into(), s(1)), second: ("b".into(), s(2)) };
    assert_eq!(report.overlaps, [overlap]);
    assert!(!report.is_clean());
}

#[test]
fn one_after_the_other_or_on_two_objects_is_no_overlap() {
    let one_after_the_other =
        [(1, started("x", "a")), (2, ended("x", 1, "a")), (2, started("x", "b")), (3, ended("x", 1, "b"))];
    assert_eq!(judge(&one_after_the_other, 4).overlaps, []);
    assert_eq!(judge(&[(1, started("x", "a")), (2, started("y", "b"))], 4).overlaps, []);
}

#[test]
fn a_killed_instance_works_no_more_but_only_from_then_on() {
    let killed = |instance: &str| Event::Killed { instance: instance.into() };
    assert_eq!(judge(&[(1, started("x", "a")), (2, killed("a")), (3, started("x", "b"))], 4).overlaps, []);
    assert_eq!(judge(&[(1, started("x", "a")), (2, started("x", "b")), (3, killed("a"))], 4).overlaps.len(), 1);
    // Its last report, overtaken by the news of its death.
    let late = [(1, killed("a")), (2, started("x", "a")), (3, started("x", "b"))];
    assert_eq!(judge(&late, 4).overlaps, []);
}

#[test]
fn a_generation_that_nobody_works_on_is_forgotten() {
    let events =
        [(0, shard("a")), (1, seen("x", 1, Some("a"))), (2, ended("x", 1, "a")), (20, seen("x", 2, Some("a")))];
    assert_eq!(judge(&events, 30).forgotten, []);
    let forgotten = judge(&events, 31).forgotten;
    assert_eq!((forgotten[0].generation, forgotten[0].waited), (Some(2), s(11)));
}

#[test]
fn a_generation_that_somebody_works_on_too_late_was_forgotten() {
    let events = [(0, shard("a")), (1, seen("x", 1, Some("a"))), (15, ended("x", 1, "a"))];
    assert_eq!(judge(&events, 16).forgotten[0].waited, s(14));
}

#[test]
fn work_that_failed_does_not_count() {
    let failed = |outcome| Event::Ended { uid: "x".into(), generation: 1, instance: "a".into(), outcome };
    let events = [
        (0, shard("a")),
        (1, seen("x", 1, Some("a"))),
        (2, failed(Outcome::Failed)),
        (3, failed(Outcome::AlreadyExists)),
    ];
    let report = judge(&events, 12);
    assert_eq!((report.forgotten.len(), report.second_creates), (1, 1));
}

#[test]
fn an_object_without_owner_is_forgotten_after_the_bound() {
    let events = [(0, shard("a")), (1, seen("x", 1, Some("a"))), (2, ended("x", 1, "a")), (3, seen("x", 1, None))];
    assert_eq!(judge(&events, 13).forgotten, []);
    let forgotten = judge(&events, 14).forgotten;
    assert_eq!((forgotten.len(), forgotten[0].generation), (1, None));
    // Labelled for a shard that nobody ever saw is no better.
    let nobody = [(1, ended("x", 1, "a")), (1, seen("x", 1, Some("nobody")))];
    assert_eq!(judge(&nobody, 12).forgotten.len(), 1);
}

#[test]
fn an_object_that_got_its_owner_too_late_was_forgotten() {
    let late = |until| {
        [
            (0, shard("a")),
            (1, seen("x", 1, Some("a"))),
            (2, ended("x", 1, "a")),
            (3, seen("x", 1, None)),
            (until, seen("x", 1, Some("a"))),
        ]
    };
    assert!(judge(&late(13), 1_000).is_clean());
    let forgotten = judge(&late(14), 1_000).forgotten;
    assert_eq!((forgotten.len(), forgotten[0].generation, forgotten[0].waited), (1, None, s(11)));
}

#[test]
fn a_change_that_no_watch_has_shown_has_to_be_worked_on_too() {
    let written = Event::Written { uid: "x".into(), name: "default/x".into(), generation: 2 };
    let begin = [(0, shard("a")), (1, seen("x", 1, Some("a"))), (2, ended("x", 1, "a")), (3, written.clone())];
    let forgotten = judge(&begin, 14).forgotten;
    assert_eq!((forgotten.len(), forgotten[0].generation), (1, Some(2)));
    // The controller may be faster than the answer to the one who wrote.
    let overtaken = [(0, shard("a")), (1, seen("x", 1, Some("a"))), (2, ended("x", 2, "a")), (3, written)];
    assert!(judge(&overtaken, 1_000).is_clean());
}

/// What follows when "x" is worked on by "a", beside "b".
fn taken_after(events: &[(u64, Event)]) -> Vec<Taken> {
    let begin = [(0, shard("a")), (0, shard("b")), (1, seen("x", 1, Some("a"))), (2, ended("x", 1, "a"))];
    let report = judge(&[&begin, events].concat(), 1_000);
    assert_eq!(report.is_clean(), report.taken.is_empty(), "{report:?}");
    report.taken
}

#[test]
fn an_object_that_goes_from_a_live_shard_to_another_was_taken() {
    let taken = Taken { uid: "x".into(), name: "default/x".into(), from: "a".into(), to: "b".into(), at: s(10) };
    assert_eq!(taken_after(&[(10, seen("x", 1, Some("b")))]), [taken]);
}

#[test]
fn an_object_that_its_owner_let_go_was_not_taken() {
    assert_eq!(taken_after(&[(10, seen("x", 1, None)), (11, seen("x", 1, Some("b")))]), []);
    // Acknowledged and assigned in one write: the webhook sees the acknowledgement.
    assert_eq!(taken_after(&[(10, draining("x", "a")), (11, seen("x", 1, Some("b")))]), []);
    // A drain that was called off asks for nothing any more.
    let called_off = [(10, draining("x", "a")), (11, seen("x", 1, Some("a"))), (12, seen("x", 1, Some("b")))];
    assert_eq!(taken_after(&called_off).len(), 1);
}

#[test]
fn an_object_of_a_shard_that_lost_its_lease_was_not_taken() {
    let moved = |at| (at, seen("x", 1, Some("b")));
    let lost = |at| (at, unavailable("a", Cause::Released));
    assert_eq!(taken_after(&[lost(10), moved(15)]), []);
    assert_eq!(taken_after(&[moved(10), lost(12)]), [], "two watches: the Lease was seen later");
    assert_eq!(taken_after(&[lost(10), (10, shard("a")), moved(12)]), [], "and it came back before the move was seen");
    assert_eq!(taken_after(&[moved(10), lost(13)]).len(), 1);
    assert_eq!(taken_after(&[lost(5), (6, shard("a")), moved(10)]).len(), 1);
}

#[test]
fn what_happened_while_nobody_watched_is_no_fault() {
    assert_eq!(taken_after(&[(10, Event::Relisted), (10, seen("x", 1, Some("b")))]), []);
    let later = [(10, Event::Relisted), (10, seen("x", 1, Some("a"))), (11, seen("x", 1, Some("b")))];
    assert_eq!(taken_after(&later).len(), 1);
}

#[test]
fn a_child_apart_from_its_owner_is_a_fault() {
    let apart = Apart { kind: "Secret".into(), owner: "default/x".into(), owner_shard: None, child_shard: None };
    assert!(!Report { apart: vec![apart], ..Report::default() }.is_clean());
}

#[test]
fn the_time_without_owner_counts_from_what_took_the_owner_away() {
    for cause in [Cause::Released, Cause::Dead] {
        let report = judge(
            &[
                (0, shard("a")),
                (0, shard("b")),
                (1, seen("x", 1, Some("a"))),
                (5, unavailable("a", cause)),
                (8, seen("x", 1, Some("b"))),
            ],
            9,
        );
        assert_eq!(report.times_without_owner(cause), [s(3)]);
    }
    let created = [(0, shard("a")), (1, seen("x", 1, None)), (3, seen("x", 1, Some("a")))];
    assert_eq!(judge(&created, 4).times_without_owner(Cause::Created), [s(2)]);
    let back = [(0, shard("a")), (1, seen("x", 1, Some("a"))), (2, unavailable("a", Cause::Dead)), (6, shard("a"))];
    assert_eq!(judge(&back, 7).times_without_owner(Cause::Dead), [s(4)]);
}

#[test]
fn a_move_from_a_shard_that_is_gone_to_another_that_is_gone_goes_on() {
    let events = [
        (0, shard("a")),
        (0, shard("b")),
        (1, seen("x", 1, Some("a"))),
        (2, unavailable("b", Cause::Dead)),
        (3, unavailable("a", Cause::Released)),
        (4, seen("x", 1, Some("b"))),
        (5, shard("c")),
        (6, seen("x", 1, Some("c"))),
    ];
    assert_eq!(judge(&events, 7).times_without_owner(Cause::Released), [s(3)]);
}

#[test]
fn deleted_objects_are_not_forgotten() {
    let events = [(0, shard("a")), (1, seen("x", 1, None)), (2, Event::Gone { uid: "x".into() })];
    assert!(judge(&events, 100).is_clean());
}

#[test]
fn what_was_deleted_after_it_was_forgotten_was_forgotten() {
    let gone = |at| (at, Event::Gone { uid: "x".into() });
    let unowned = [(0, shard("a")), (1, seen("x", 1, None)), gone(500)];
    let forgotten = judge(&unowned, 1_000).forgotten;
    assert!(forgotten.iter().any(|one| one.generation.is_none()), "{forgotten:?}");
    let pending = [(0, shard("a")), (1, seen("x", 1, Some("a"))), gone(500)];
    assert_eq!(judge(&pending, 1_000).forgotten.len(), 1);
}

#[test]
fn percentiles_are_of_the_nearest_rank() {
    let times: Vec<_> = (1..=200).map(s).collect();
    assert_eq!(
        (percentile(&times, 50), percentile(&times, 99), percentile(&times, 100)),
        (Some(s(100)), Some(s(198)), Some(s(200)))
    );
    assert_eq!((percentile(&[s(7)], 99), percentile(&[], 99)), (Some(s(7)), None));
}
