//! No broken promise passes.

use super::*;
use crate::{
    chaos::schedule::{Fault, Kind},
    checker::{Apart, Change, Child, Forgotten, Taken},
};

fn injected(hit: Result<usize, String>) -> Injected {
    let fault = Fault { kind: Kind::Kill, shard: Some("a".to_owned()), objects: Vec::new(), lasts: Duration::ZERO };
    Injected { at: Duration::ZERO, until: Duration::ZERO, fault, hit }
}

fn clean() -> Verdict {
    Verdict {
        report: Report::default(),
        writes: checker::Verdict::default(),
        overlaps: Vec::new(),
        excused: Vec::new(),
        begun_late: Vec::new(),
        early: Vec::new(),
        unseen: Vec::new(),
        unseen_moved: Vec::new(),
        forced: Vec::new(),
        overdue: Vec::new(),
        unsettled: None,
        injected: vec![injected(Ok(1))],
        revived: BTreeMap::new(),
        changes: 1,
        histories: Vec::new(),
    }
}

fn ended(name: &str, said: &str) -> Verdict {
    let ended = Ended { name: name.to_owned(), said: said.to_owned() };
    Verdict { revived: BTreeMap::from([(ended, 1)]), ..clean() }
}

fn overlap() -> Judged {
    let at = |instance: &str| (instance.to_owned(), Duration::ZERO);
    let overlap = Overlap { uid: "u".to_owned(), first: at("a.1"), second: at("b.2") };
    Judged { overlap, name: "default/o".to_owned(), silent: None, begun_late: false }
}

fn landed() -> Landed {
    Landed {
        id: "id".to_owned(),
        shard: "a".to_owned(),
        change: Change::Updated,
        object: "websites default/o".to_owned(),
        version: "7".to_owned(),
        received: Timestamp::UNIX_EPOCH,
        answered: Timestamp::UNIX_EPOCH,
        owner: Some("b".to_owned()),
        moved: None,
    }
}

fn lost() -> Lost {
    Lost {
        object: "websites default/o".to_owned(),
        shard: "a".to_owned(),
        to: None,
        id: "id".to_owned(),
        version: "7".to_owned(),
        at: Timestamp::UNIX_EPOCH,
        drained: Duration::ZERO,
    }
}

fn child() -> Child {
    Child {
        object: "secrets default/o".to_owned(),
        owner: None,
        shard: None,
        version: "7".to_owned(),
        at: Timestamp::UNIX_EPOCH,
        drained: None,
    }
}

#[test]
fn what_kept_all_promises_is_clean_and_an_excused_overlap_breaks_none() {
    assert!(clean().is_clean());
    let excused = Verdict { excused: vec![overlap()], begun_late: vec![overlap()], ..clean() };
    assert!(excused.is_clean());
    assert!(ended("shard-1-operator", "leader election lost").is_clean());
    assert!(excused.to_string().ends_with("all promises were kept"), "{excused}");
}

/// It left the shard `a` at 20, which was dead from 18 on, and `b` has it.
#[test]
fn either_side_of_an_overlap_may_be_the_one_that_lost_the_object() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let write = |received: i64, shard: &str| {
        let (uid, version) = ("u".to_owned(), received.to_string());
        let object = history::State { uid, version, shard: Some(shard.to_owned()), drain: None };
        let what = ("patch".to_owned(), "websites".to_owned());
        let (received, answered) = (at(received), at(received));
        Request { received, answered, who: "sharder".to_owned(), what, code: 200, object: Some(object) }
    };
    let requests = [write(5, "a"), write(20, "b")];
    let dead = [Dead { shard: "a", silent: at(14), from: at(18), until: None }];
    let begins = |instance: &str, second: u64| (instance.to_owned(), Duration::from_secs(second));
    let silent = |first, second, dead: &[Dead<'_>]| {
        let overlap = Overlap { uid: "u".to_owned(), first, second };
        silent(&overlap, &requests, Timestamp::UNIX_EPOCH, &[], dead).map_or(Duration::ZERO, |silence| silence.lasted)
    };
    let (lost, has) = (begins("a.1", 22), begins("b.2", 21));
    assert_eq!(silent(has.clone(), lost.clone(), &dead), Duration::from_secs(8));
    assert_eq!(silent(has, lost, &[]), Duration::ZERO, "it has its Lease");
    assert_eq!(silent(begins("a.1", 19), begins("b.2", 21), &dead), Duration::from_secs(6));
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
    let (uid, name, owner) = ("u".to_owned(), "default/o".to_owned(), "default/o".to_owned());
    let (from, to, at) = ("a".to_owned(), "b".to_owned(), Duration::ZERO);
    let taken = Taken { uid: uid.clone(), name: name.clone(), from, to, at };
    let forgotten = Forgotten { uid, name, generation: None, waited: Duration::from_secs(91) };
    let apart = Apart { kind: "Secret".to_owned(), owner, owner_shard: None, child_shard: None };
    let report = |broken: Report| Verdict { report: broken, ..clean() };
    let writes = |broken: checker::Verdict| Verdict { writes: broken, ..clean() };
    let unrest = Unrest { why: "it drains".to_owned(), ..Unrest::default() };
    let broken = [
        Verdict { overlaps: vec![overlap()], ..clean() },
        Verdict { early: vec![("a".to_owned(), SignedDuration::ZERO)], ..clean() },
        Verdict { unsettled: Some(unrest), ..clean() },
        Verdict { injected: Vec::new(), ..clean() },
        Verdict { changes: 0, ..clean() },
        ended("shard-1-proxy", "leader election lost"),
        ended("shard-1-operator", "panic: assignment to entry in nil map"),
        Verdict { injected: vec![injected(Ok(0))], ..clean() },
        Verdict { injected: vec![injected(Err("no".to_owned()))], ..clean() },
        report(Report { taken: vec![taken], ..Report::default() }),
        report(Report { forgotten: vec![forgotten], ..Report::default() }),
        report(Report { apart: vec![apart], ..Report::default() }),
        writes(checker::Verdict { foreign: vec![landed()], ..checker::Verdict::default() }),
        writes(checker::Verdict { late: vec![landed()], ..checker::Verdict::default() }),
        writes(checker::Verdict { lost: vec![lost()], ..checker::Verdict::default() }),
        writes(checker::Verdict { forced: vec![lost()], ..checker::Verdict::default() }),
        writes(checker::Verdict { second_creates: vec![landed()], ..checker::Verdict::default() }),
        writes(checker::Verdict { barred: vec![landed()], ..checker::Verdict::default() }),
        writes(checker::Verdict { deleted: vec![child()], ..checker::Verdict::default() }),
        writes(checker::Verdict { overtaken: vec![child()], ..checker::Verdict::default() }),
        writes(checker::Verdict { left_behind: vec![child()], ..checker::Verdict::default() }),
        writes(checker::Verdict { unknown: 1, ..checker::Verdict::default() }),
    ];
    for verdict in broken {
        let verdict = Verdict { histories: vec!["history of default/o".to_owned()], ..verdict };
        assert!(verdict.to_string().contains("history of default/o"), "{verdict}");
        assert!(!verdict.is_clean() && verdict.to_string().ends_with("FAILED"), "{verdict}");
    }
}

#[test]
fn of_each_broken_promise_the_object_is_known() {
    let writes =
        checker::Verdict { left_behind: vec![child()], foreign: vec![landed()], ..checker::Verdict::default() };
    assert_eq!(objects_of(&Report::default(), &writes), ["default/o", "default/o"]);
}
