//! No broken promise passes.

use super::*;
use crate::{
    chaos::schedule::{Fault, Kind},
    checker::{Cause, Handover, Labels, Object, Stages, samples},
};

/// What else fails a run: no objects are concerned, whose histories would say more.
const WITHOUT_OBJECTS: [&str; 3] = ["early", "revived", "unknown"];

fn injected(hit: Result<usize, String>) -> Injected {
    let fault = Fault { kind: Kind::Kill, shard: Some("a".to_owned()), objects: Vec::new(), lasts: Duration::ZERO };
    Injected { at: Duration::ZERO, until: Duration::ZERO, fault, hit }
}

/// All promises were kept. Each field is named here and in what it rests on, and none is empty but what breaks a promise when
/// it is not: by that [`empty_fields`] knows those.
fn clean() -> Verdict {
    Verdict {
        report: report(),
        writes: writes(),
        overlaps: Vec::new(),
        excused: vec![overlap("o")],
        early: Vec::new(),
        forced: vec![landed("o")],
        overdue: vec![landed("o")],
        refused: vec![landed("o")],
        unsettled: None,
        injected: vec![injected(Ok(1))],
        revived: Vec::new(),
        changes: 1,
        histories: vec!["history of default/o".to_owned()],
    }
}

fn report() -> Report {
    let (uid, name, cause) = ("u".to_owned(), of("o"), Cause::Created);
    Report {
        overlaps: vec![overlap("o").overlap],
        forgotten: Vec::new(),
        gaps: vec![Gap { uid, name, cause, from: Duration::ZERO, until: None }],
        apart: Vec::new(),
        second_creates: 1,
        reconciles: BTreeMap::from([("a.1".to_owned(), 1)]),
        objects: BTreeMap::from([("a".to_owned(), 1)]),
    }
}

fn writes() -> checker::Verdict {
    let handover = Handover {
        between: ["a", "b"].map(str::to_owned),
        let_go: Duration::ZERO,
        assigned: Duration::ZERO,
        busy: Duration::ZERO,
        stages: Stages::default(),
        at: Timestamp::UNIX_EPOCH,
    };
    checker::Verdict {
        foreign: Vec::new(),
        late: Vec::new(),
        lost: Vec::new(),
        forced: Vec::new(),
        second_creates: Vec::new(),
        of_the_gone: 1,
        just_made: 1,
        deleted: Vec::new(),
        overtaken: Vec::new(),
        left_behind: Vec::new(),
        barred: Vec::new(),
        kept_out: 1,
        handovers: vec![handover],
        unknown: 0,
        by_shards: 1,
    }
}

/// The fields of a verdict in which there is nothing, and those of what it rests on.
fn empty_fields(verdict: &Verdict) -> Vec<String> {
    let text = format!("{verdict:#?}");
    let fields = text.lines().filter_map(|line| {
        let field = line.trim_start();
        let (name, value) = field.strip_suffix(',')?.split_once(": ")?;
        // Its own are indented by four spaces, those of what it rests on by eight, and all else by more.
        let is_one = line.len() - field.len() <= 8;
        (is_one && ["[]", "{}", "None", "0"].contains(&value)).then(|| name.to_owned())
    });
    fields.collect()
}

/// The object that is named after a list.
fn of(list: &str) -> String {
    format!("default/{list}")
}

fn ended(name: &str, said: &str) -> Verdict {
    let ended = Ended { name: name.to_owned(), said: said.to_owned() };
    Verdict { revived: vec![ended], ..clean() }
}

fn overlap(list: &str) -> Judged {
    Judged { overlap: samples::overlap(), name: of(list), silent: None }
}

fn landed(list: &str) -> Landed {
    samples::landed(&of(list))
}

/// Each list that fails a run where there is something in it, with one object in it.
fn with_objects() -> Vec<(&'static str, Verdict)> {
    let unrest = Unrest { why: "it drains".to_owned(), objects: BTreeSet::from([of("unsettled")]) };
    let own = [
        ("overlaps", Verdict { overlaps: vec![overlap("overlaps")], ..clean() }),
        ("unsettled", Verdict { unsettled: Some(unrest), ..clean() }),
    ];
    let reports = [
        ("forgotten", Report { forgotten: vec![samples::forgotten(&of("forgotten"))], ..report() }),
        ("apart", Report { apart: vec![samples::apart(&of("apart"))], ..report() }),
    ];
    type List = fn(&mut checker::Verdict) -> &mut Vec<Landed>;
    let lists: [(&str, List); 9] = [
        ("foreign", |all| &mut all.foreign),
        ("late", |all| &mut all.late),
        ("lost", |all| &mut all.lost),
        ("forced", |all| &mut all.forced),
        ("second_creates", |all| &mut all.second_creates),
        ("barred", |all| &mut all.barred),
        ("deleted", |all| &mut all.deleted),
        ("overtaken", |all| &mut all.overtaken),
        ("left_behind", |all| &mut all.left_behind),
    ];
    let written = lists.map(|(name, list)| {
        let mut verdict = clean();
        list(&mut verdict.writes).push(landed(name));
        (name, verdict)
    });
    let reports = reports.map(|(list, report)| (list, Verdict { report, ..clean() }));
    own.into_iter().chain(reports).chain(written).collect()
}

#[test]
fn what_kept_all_promises_is_clean_and_an_excused_overlap_breaks_none() {
    let kept = clean();
    assert!(!kept.excused.is_empty() && kept.is_clean(), "{kept}");
    assert!(ended("shard-1-operator", "leader election lost").is_clean());
    assert!(kept.to_string().ends_with("all promises were kept"), "{kept}");
}

/// It left the shard `a` at 20, which was dead from 18 on, and `b` has it.
#[test]
fn who_begins_when_the_object_has_left_is_not_excused() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let write = |received: i64, shard: &str| {
        let labels = Some(Labels { shard: Some(shard.to_owned()), drain: None });
        let object = Object { uid: "u".to_owned(), labels, ..Object::default() };
        let what = ("patch".to_owned(), "websites".to_owned());
        let (received, answered) = (at(received), at(received));
        Request { received, answered, who: "sharder".to_owned(), what, code: 200, object: Some(object) }
    };
    let requests = [write(5, "a"), write(20, "b")];
    let dead = [Dead { shard: "a", silent: at(14), from: at(18), until: None }];
    let begins = |instance: &str, second: u64| (instance.to_owned(), Duration::from_secs(second));
    let silent = |first, second, dead: &[Dead<'_>]| {
        let overlap = Overlap { uid: "u".to_owned(), first, second };
        silent(&overlap, &requests, Timestamp::UNIX_EPOCH, &[], dead).unwrap_or_default()
    };
    let (lost, has) = (begins("a.1", 22), begins("b.2", 21));
    assert_eq!([silent(has.clone(), lost.clone(), &dead), silent(lost, has.clone(), &dead)], [Duration::ZERO; 2]);
    assert_eq!(silent(begins("a.1", 12), has, &dead), Duration::from_secs(8));
}

#[test]
fn the_patience_with_drains_is_that_of_the_last_edit_that_can_be_known() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let edit = |second| silence::Fault { kind: Kind::EditRing, shard: None, from: at(second), until: at(second + 1) };
    let other = silence::Fault { kind: Kind::KillLeader, ..edit(20) };
    let faults = [edit(100), other, edit(200)];
    let patience = |second| patience(at(second), &faults).as_secs();
    assert_eq!([99, 100, 150, 200, 215, 216].map(patience), [60, 45, 45, 45, 45, 60]);
}

#[test]
fn each_broken_promise_fails_a_run_and_is_told() {
    let unrest = Unrest { why: "it drains".to_owned(), ..Unrest::default() };
    let unknown = checker::Verdict { unknown: 1, ..writes() };
    let without_objects = [
        Verdict { early: vec![("a".to_owned(), SignedDuration::ZERO)], ..clean() },
        Verdict { unsettled: Some(unrest), ..clean() },
        Verdict { injected: Vec::new(), ..clean() },
        Verdict { changes: 0, ..clean() },
        ended("shard-1-proxy", "leader election lost"),
        ended("shard-1-operator", "panic: assignment to entry in nil map"),
        Verdict { injected: vec![injected(Ok(0))], ..clean() },
        Verdict { injected: vec![injected(Err("no".to_owned()))], ..clean() },
        Verdict { writes: unknown, ..clean() },
    ];
    let with_objects = with_objects().into_iter().map(|(_, verdict)| verdict);
    for verdict in without_objects.into_iter().chain(with_objects) {
        assert!(verdict.to_string().contains("history of default/o"), "{verdict}");
        assert!(!verdict.is_clean() && verdict.to_string().ends_with("FAILED"), "{verdict}");
    }
}

#[test]
fn of_each_broken_promise_the_object_is_known() {
    for (list, verdict) in with_objects() {
        assert!(!verdict.is_clean(), "{list} is not looked at");
        assert_eq!(verdict.concerned(), [of(list)]);
    }
    assert_eq!(clean().concerned(), Vec::<String>::new(), "of what is excused there is nothing to tell");
}

/// A list that is added has to be among those with objects, or something has to be in it where all promises were kept: then it
/// can't fail a run.
#[test]
fn no_list_of_broken_promises_is_left_out() {
    let listed = with_objects().into_iter().map(|(list, _)| list);
    let mut known: Vec<_> = listed.chain(WITHOUT_OBJECTS).map(str::to_owned).collect();
    let mut empty = empty_fields(&clean());
    known.sort();
    empty.sort();
    assert_eq!(empty, known);
}

#[test]
fn a_dead_shard_that_wakes_works_on_what_it_has_for_a_moment() {
    let at = |seconds: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
    let dead = [Dead { shard: "a", silent: at(5), from: at(10), until: Some(at(40)) }];
    let pause = [silence::Fault { kind: Kind::Pause, shard: Some("a"), from: at(4), until: at(20) }];
    let woken = |instance: &str, seconds: u64, faults: &[silence::Fault<'_>]| {
        let began = (instance.to_owned(), Duration::from_secs(seconds));
        has_just_woken(&began, (Timestamp::UNIX_EPOCH, Duration::from_secs(2)), faults, &dead)
    };
    assert!(woken("a.3", 21, &pause) && woken("a.3", 30, &pause));
    assert!(!woken("a.3", 31, &pause), "it has given up by then");
    assert!(!woken("a.3", 9, &pause), "it has its Lease");
    assert!(!woken("b.1", 21, &pause) && !woken("a.3", 21, &[]));
    let controller = |from, until| {
        [silence::Fault { kind: Kind::PauseController, shard: Some("b"), from: at(from), until: at(until) }]
    };
    assert!(woken("b.1", 21, &controller(16, 20)) && !woken("b.1", 22, &controller(16, 20)));
    assert!(!woken("b.1", 21, &controller(19, 20)), "it stood still for less than the grace");
    let taken = |seconds| is_dead(&dead, "a", Timestamp::UNIX_EPOCH, Duration::from_secs(seconds));
    assert_eq!([9, 10, 39, 40].map(taken), [false, true, true, false]);
}
