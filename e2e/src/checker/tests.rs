#![allow(clippy::unwrap_used)]

use super::{report::percentile, *};

const BOUND: Duration = Duration::from_secs(10);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Reads an event: when, what, of what (an object as `x@GENERATION`, or `x` in its first), and whose or by whom.
fn record(text: &str) -> Record {
    let words: Vec<_> = text.split(' ').collect();
    let [at, what, of, by @ ..] = &words[..] else { panic!("{text}") };
    let (uid, generation) = of.split_once('@').unwrap_or((of, "1"));
    let (uid, name, generation) = (uid.to_owned(), format!("default/{uid}"), generation.parse().unwrap());
    let by = by.first().map(|&by| by.to_owned());
    let instance = by.clone().unwrap_or_default();
    let event = match *what {
        "starts" => Event::Started { uid, generation, instance },
        "done" => Event::Ended { uid, generation, instance, outcome: Outcome::Done },
        "failed" => Event::Ended { uid, generation, instance, outcome: Outcome::Failed },
        "exists" => Event::Ended { uid, generation, instance, outcome: Outcome::AlreadyExists },
        "killed" => Event::Killed { instance: uid },
        "written" => Event::Written { uid, name, generation },
        "seen" => Event::Seen { uid, name, generation, shard: by },
        "gone" => Event::Gone { uid },
        "available" => Event::ShardAvailable { shard: uid },
        "released" => Event::ShardUnavailable { shard: uid, cause: Cause::Released },
        "dead" => Event::ShardUnavailable { shard: uid, cause: Cause::Dead },
        _ => panic!("{text}"),
    };
    Record { at: s(at.parse().unwrap()), event }
}

/// Judges events, which are separated by commas.
fn judge(events: &str, now: u64) -> Report {
    let mut checker = Checker::default();
    events.split(", ").for_each(|event| checker.record(record(event)));
    checker.report(s(now), BOUND)
}

#[test]
fn a_run_without_faults_is_clean() {
    let events = "0 available a, 0 available b, 1 seen x a, 2 starts x a-1, 3 done x a-1, 4 seen x, 5 seen x b, \
                  5 seen x@2 b, 6 starts x b-1, 7 done x@2 b-1";
    let report = judge(events, 1_000);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.times_without_owner(Cause::Unassigned), [s(1)]);
    assert_eq!(report.reconciles.values().sum::<usize>(), 2);
    assert_eq!(report.objects, BTreeMap::from([("b".to_owned(), 1)]));
}

#[test]
fn two_instances_at_work_on_one_object_are_an_overlap() {
    let report = judge("1 starts x a, 2 starts x b, 3 done x a, 4 done x b", 5);
    let overlap = Overlap { uid: "x".into(), first: ("a".into(), s(1)), second: ("b".into(), s(2)) };
    assert_eq!(report.overlaps, [overlap]);
    assert!(!report.is_clean());
}

#[test]
fn one_after_the_other_or_on_two_objects_is_no_overlap() {
    assert_eq!(judge("1 starts x a, 2 done x a, 2 starts x b, 3 done x b", 4).overlaps, []);
    assert_eq!(judge("1 starts x a, 2 starts y b", 4).overlaps, []);
}

/// A timer's beats beside a reconcile: one of both may end before the other, and none makes a generation done.
#[test]
fn work_of_no_generation_counts_beside_a_reconcile_and_not_as_one() {
    let both = "1 starts x a, 2 starts x@0 a, 3 done x@0 a, 4 starts x b";
    assert_eq!(judge(both, 5).overlaps.len(), 1, "the reconcile goes on");
    assert_eq!(
        judge("1 starts x a, 2 starts x@0 a, 3 done x a, 4 starts x@0 b", 5).overlaps.len(),
        1,
        "so does the beat"
    );
    let report = judge("0 available a, 1 seen x a, 2 starts x@0 a, 3 done x@0 a", 30);
    assert_eq!((report.forgotten.len(), report.reconciles.len(), report.overlaps.len()), (1, 0, 0), "{report:?}");
    assert_eq!(judge("1 starts x@0 a, 2 killed a, 3 starts x b", 4).overlaps, []);
}

#[test]
fn a_killed_instance_works_no_more_but_only_from_then_on() {
    assert_eq!(judge("1 starts x a, 2 killed a, 3 starts x b", 4).overlaps, []);
    assert_eq!(judge("1 starts x a, 2 starts x b, 3 killed a", 4).overlaps.len(), 1);
    // Its last report, overtaken by the news of its death.
    assert_eq!(judge("1 killed a, 2 starts x a, 3 starts x b", 4).overlaps, []);
}

#[test]
fn what_waits_for_longer_than_the_bound_is_forgotten() {
    for (events, now, found) in [
        ("0 available a, 1 seen x a, 2 done x a, 20 seen x@2 a", 30, &[][..]),
        ("0 available a, 1 seen x a, 2 done x a, 20 seen x@2 a", 31, &[(Some(2), 11)]),
        ("0 available a, 1 seen x a, 15 done x a", 16, &[(Some(1), 14)]),
        // Work that failed does not count.
        ("0 available a, 1 seen x a, 2 failed x a, 3 exists x a", 12, &[(Some(1), 11)]),
        // A change counts that no watch has shown. The controller may be faster than the answer to the one who wrote.
        ("0 available a, 1 seen x a, 2 done x a, 3 written x@2", 14, &[(Some(2), 11)]),
        ("0 available a, 1 seen x a, 2 done x@2 a, 3 written x@2", 1_000, &[]),
        // Without an owner, or with a label for a shard that was never seen; also where it gets one too late.
        ("0 available a, 1 seen x a, 2 done x a, 3 seen x", 13, &[]),
        ("0 available a, 1 seen x a, 2 done x a, 3 seen x", 14, &[(None, 11)]),
        ("1 done x a, 1 seen x unknown", 12, &[(None, 11)]),
        ("0 available a, 1 seen x a, 2 done x a, 3 seen x, 13 seen x a", 1_000, &[]),
        ("0 available a, 1 seen x a, 2 done x a, 3 seen x, 14 seen x a", 1_000, &[(None, 11)]),
        // What is deleted is forgotten only if it was before.
        ("0 available a, 1 seen x, 2 gone x", 100, &[]),
        ("0 available a, 1 seen x, 500 gone x", 1_000, &[(Some(1), 499), (None, 499)]),
        ("0 available a, 1 seen x a, 500 gone x", 1_000, &[(Some(1), 499)]),
    ] {
        let report = judge(events, now);
        let forgotten: Vec<_> = report.forgotten.iter().map(|one| (one.generation, one.waited.as_secs())).collect();
        assert_eq!((&*forgotten, report.is_clean()), (found, found.is_empty()), "{events}");
    }
    assert_eq!(judge("1 exists x a", 2).second_creates, 1);
}

#[test]
fn a_child_apart_from_its_owner_is_a_fault() {
    let apart = Apart { kind: "Secret".into(), owner: "default/x".into(), owner_shard: None, child_shard: None };
    assert!(!Report { apart: vec![apart], ..Report::default() }.is_clean());
}

#[test]
fn the_time_without_owner_counts_from_what_took_the_owner_away() {
    for (what, cause) in [("released", Cause::Released), ("dead", Cause::Dead)] {
        let report = judge(&format!("0 available a, 0 available b, 1 seen x a, 5 {what} a, 8 seen x b"), 9);
        assert_eq!(report.times_without_owner(cause), [s(3)]);
    }
    let created = judge("0 available a, 1 seen x, 3 seen x a", 4);
    assert_eq!(created.times_without_owner(Cause::Created), [s(2)]);
    let back = judge("0 available a, 1 seen x a, 2 dead a, 6 available a", 7);
    assert_eq!(back.times_without_owner(Cause::Dead), [s(4)]);
}

#[test]
fn a_move_from_a_shard_that_is_gone_to_another_that_is_gone_goes_on() {
    let events =
        "0 available a, 0 available b, 1 seen x a, 2 dead b, 3 released a, 4 seen x b, 5 available c, 6 seen x c";
    assert_eq!(judge(events, 7).times_without_owner(Cause::Released), [s(3)]);
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
