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
        unseen: Vec::new(),
        forced: Vec::new(),
        unsettled: None,
        injected: vec![injected(Ok(1))],
        revived: BTreeMap::new(),
        changes: 1,
        histories: Vec::new(),
    }
}

fn overlap() -> Judged {
    let at = |instance: &str| (instance.to_owned(), Duration::ZERO);
    let overlap = Overlap { uid: "u".to_owned(), first: at("a.1"), second: at("b.2") };
    Judged { overlap, name: "default/o".to_owned(), silent: None }
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
    let excused = Verdict { excused: vec![overlap()], ..clean() };
    assert!(excused.is_clean());
    let ended = Verdict { revived: BTreeMap::from([("shard-1-operator".to_owned(), 1)]), ..clean() };
    assert!(ended.is_clean(), "it no longer led");
    assert!(excused.to_string().ends_with("all promises were kept"), "{excused}");
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
        Verdict { unsettled: Some(unrest), ..clean() },
        Verdict { injected: Vec::new(), ..clean() },
        Verdict { changes: 0, ..clean() },
        Verdict { revived: BTreeMap::from([("shard-1-proxy".to_owned(), 1)]), ..clean() },
        Verdict { injected: vec![injected(Ok(0))], ..clean() },
        Verdict { injected: vec![injected(Err("no".to_owned()))], ..clean() },
        report(Report { taken: vec![taken], ..Report::default() }),
        report(Report { forgotten: vec![forgotten], ..Report::default() }),
        report(Report { apart: vec![apart], ..Report::default() }),
        writes(checker::Verdict { foreign: vec![landed()], ..checker::Verdict::default() }),
        writes(checker::Verdict { late: vec![landed()], ..checker::Verdict::default() }),
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
