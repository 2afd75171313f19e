#![allow(clippy::unwrap_used)]

use ringside_ring::decide::{How, Waiting};

use super::*;

fn target(uid: &str, namespace: &str, shard: Option<&str>) -> Target {
    Target {
        uid: uid.into(),
        name: uid.into(),
        namespace: Some(namespace.into()),
        shard: shard.map(Into::into),
        ..Target::default()
    }
}

fn shard(name: &str) -> ShardName {
    name.parse().unwrap()
}

fn labels() -> RingLabels {
    RingLabels::of(&"example".parse().unwrap())
}

#[test]
fn each_object_is_moved_once_as_it_was_seen_last() {
    let batch = vec![target("u1", "n", Some("dead")), target("u2", "n", None), target("u1", "n", None)];
    let step = |target: &Target| match target.uid.as_str() {
        "u1" => Action::Assign { to: shard("a"), how: How::Unassigned },
        _ => Action::Keep,
    };
    let moves = moves(batch, step, |uid| Some(format!("had-{uid}")), |_| None);
    assert_eq!(moves.len(), 1);
    assert_eq!((moves[0].target.shard.as_deref(), moves[0].from.as_deref()), (None, Some("had-u1")));
}

#[test]
fn an_object_of_a_dead_shard_comes_from_that_shard_whatever_is_remembered() {
    let step = |_: &Target| Action::Assign { to: shard("a"), how: How::Takeover };
    let moves = moves(vec![target("u1", "n", Some("dead"))], step, |_| Some("before".into()), |_| None);
    assert_eq!(moves[0].from.as_deref(), Some("dead"));
}

/// What is decided of objects that an available shard has.
fn waiting() -> [Action<ShardName>; 5] {
    let waits = Action::Wait(Waiting::Acknowledgement);
    [Action::Keep, Action::Stay, waits, Action::Overdue, Action::Drain { from: shard("a") }]
}

#[test]
fn nothing_is_done_about_objects_that_wait_or_are_where_they_belong() {
    for step in waiting().into_iter().chain([Action::NoShard]) {
        assert_eq!(moves(vec![target("u1", "n", Some("a"))], |_| step.clone(), |_| None, |_| None), []);
    }
}

#[test]
fn children_come_from_anywhere_to_an_owner_that_stays() {
    for step in waiting() {
        let owner = target("u1", "n", Some("a"));
        let to = Move { target: owner.clone(), to: shard("a"), from: None };
        assert_eq!(moves(vec![owner], |_| step.clone(), |_| Some("b".into()), |_| Some(shard("a"))), [to]);
    }
}

fn sought(uid: &str, namespace: &str, from: Option<&str>) -> Sought {
    Sought::of(&Move { target: target(uid, namespace, None), to: shard("b"), from: from.map(Into::into) })
}

fn found(namespace: Option<&str>, shards: Option<&str>) -> Search {
    let selector = shards.map(|shards| format!("{} in ({shards})", labels().shard));
    Search { namespace: namespace.map(Into::into), selector }
}

#[test]
fn children_are_looked_for_where_they_can_be() {
    assert_eq!(searches(&[], &labels()), []);
    let known = [sought("1", "n", Some("y")), sought("2", "n", Some("x")), sought("3", "n", Some("y"))];
    assert_eq!(searches(&known, &labels()), [found(Some("n"), Some("x,y"))]);
    let spread = [sought("1", "n", Some("x")), sought("2", "m", Some("x"))];
    assert_eq!(searches(&spread, &labels()), [found(None, Some("x"))]);
}

#[test]
fn objects_whose_shard_is_not_known_don_t_widen_the_search_for_the_others() {
    let some = [sought("1", "n", Some("x")), sought("2", "m", None), sought("3", "k", None), sought("4", "m", None)];
    assert_eq!(
        searches(&some, &labels()),
        [found(Some("n"), Some("x")), found(Some("k"), None), found(Some("m"), None)]
    );
}
