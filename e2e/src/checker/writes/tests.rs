//! Records of each fault: the checker must find every one.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use ringside_ring::cluster_ring::GroupResource;

use super::*;

/// The version that a write makes is also the second in which it is made.
fn write(version: u32, shard: Option<&str>, change: Change, resource: &str, object: Object) -> Write {
    let at = Timestamp::from_second(version.into()).unwrap();
    let version =
        (change != Change::Deleted && change != Change::Refused).then(|| version.to_string().parse().unwrap());
    Write {
        id: at.to_string(),
        received: at,
        answered: at,
        shard: shard.map(str::to_owned),
        by_sharder: shard.is_none(),
        change,
        resource: GroupResource { group: String::new(), resource: resource.to_owned() },
        object: Object { version, ..object },
    }
}

fn labels(shard: &str, drain: bool) -> Option<Labels> {
    let shard = Some(shard.to_owned()).filter(|shard| !shard.is_empty());
    Some(Labels { shard, drain: drain.then(|| "move".to_owned()) })
}

/// The Website `o` with this shard.
fn owner(shard: &str) -> Object {
    Object { uid: "o".to_owned(), name: "default/o".to_owned(), labels: labels(shard, false), ..Object::default() }
}

fn child(shard: &str) -> Object {
    let controller = Some("o".to_owned());
    Object {
        uid: "c".to_owned(),
        name: "default/c".to_owned(),
        labels: labels(shard, false),
        controller,
        ..Object::default()
    }
}

fn grandchild(shard: &str) -> Object {
    let controller = Some("c".to_owned());
    Object {
        uid: "g".to_owned(),
        name: "default/g".to_owned(),
        labels: labels(shard, false),
        controller,
        ..Object::default()
    }
}

fn lease(version: u32, shard: &str, holder: &str) -> Write {
    let object = Object {
        uid: shard.to_owned(),
        name: format!("default/{shard}"),
        holder: Some(holder.to_owned()),
        ..Object::default()
    };
    write(version, None, Change::Updated, "leases", object)
}

fn site(version: u32, by: Option<&str>, change: Change, shard: &str) -> Write {
    write(version, by, change, "websites", owner(shard))
}

fn map(version: u32, by: Option<&str>, change: Change, shard: &str) -> Write {
    write(version, by, change, "configmaps", child(shard))
}

/// An owner and a child of shard `a`, which is drained and goes to `b`, with the versions of it all.
fn moved() -> Vec<Write> {
    let drained = Object { labels: labels("a", true), ..owner("a") };
    vec![
        lease(1, "a", "a"),
        lease(2, "b", "b"),
        site(10, None, Change::Created, "a"),
        map(20, Some("a"), Change::Created, "a"),
        write(30, None, Change::Updated, "websites", drained),
        // The acknowledgement.
        site(40, Some("a"), Change::Updated, ""),
        map(50, None, Change::Updated, "b"),
        site(60, None, Change::Updated, "b"),
        site(70, Some("b"), Change::Updated, "b"),
        map(80, Some("b"), Change::Updated, "b"),
    ]
}

fn verdict(records: impl IntoIterator<Item = Write>) -> Verdict {
    let mut writes = Writes::new();
    // As they come is not as they were made.
    let mut records: Vec<_> = records.into_iter().collect();
    records.reverse();
    records.into_iter().for_each(|record| writes.record(record));
    writes.verdict()
}

/// An owner goes and one of its name comes, at another shard; that one goes to the first shard, whose controller has yet to
/// notice and names the owner that is gone in what it writes to the child. `maker` has made that, and what is below it.
#[test]
fn whose_a_child_was_when_it_was_made_is_not_told_by_who_adopts_it_later() {
    let again = |version, by, labels: Option<Labels>| {
        let change = if version == 30 { Change::Created } else { Change::Updated };
        write(version, by, change, "websites", Object { uid: "p".to_owned(), labels, ..owner("") })
    };
    let child = |version, by, change, shard, owner: &str| {
        let object = Object { uid: "d".to_owned(), controller: Some(owner.to_owned()), ..child(shard) };
        write(version, by, change, "configmaps", object)
    };
    let below = |version, by, change, shard| {
        let object = Object { uid: "e".to_owned(), controller: Some("d".to_owned()), ..grandchild(shard) };
        write(version, by, change, "secrets", object)
    };
    // The child is moved before its owner was let go, or after that.
    for (maker, moved, foreign, overtaken, behind) in
        [("b", 70, 0, 0, 0), ("a", 70, 2, 0, 0), ("b", 48, 0, 1, 0), ("b", 85, 0, 0, 1)]
    {
        let judged = verdict([
            lease(1, "a", "a"),
            lease(2, "b", "b"),
            site(10, None, Change::Created, "a"),
            site(20, None, Change::Deleted, "a"),
            again(30, None, labels("b", false)),
            child(40, Some(maker), Change::Created, "b", "p"),
            below(45, Some(maker), Change::Created, "b"),
            again(50, None, labels("b", true)),
            again(60, Some("b"), labels("", false)),
            child(moved, None, Change::Updated, "a", "p"),
            below(75, None, Change::Updated, "a"),
            again(80, None, labels("a", false)),
            child(90, Some("a"), Change::Updated, "a", "o"),
        ]);
        let found = (judged.foreign.len(), judged.late.len(), judged.overtaken.len(), judged.left_behind.len());
        assert_eq!(found, (foreign, 0, overtaken, behind), "{maker}: {judged:#?}");
    }
}

/// A child goes from one owner to another, which had changed its shard before.
#[test]
fn a_child_is_left_behind_by_none_whose_it_was_not_yet() {
    for (adopted, behind) in [(60, 0), (45, 1)] {
        let next = |version, change, shard| {
            write(version, None, change, "websites", Object { uid: "p".to_owned(), ..owner(shard) })
        };
        let adopt = Object { controller: Some("p".to_owned()), ..child("a") };
        let judged = verdict([
            lease(1, "a", "a"),
            site(10, None, Change::Created, "a"),
            map(20, Some("a"), Change::Created, "a"),
            next(30, Change::Created, "b"),
            next(40, Change::Updated, ""),
            write(adopted, None, Change::Updated, "configmaps", adopt),
            next(50, Change::Updated, "c"),
        ]);
        assert_eq!(judged.left_behind.len(), behind, "{judged:#?}");
    }
}

fn with(more: impl IntoIterator<Item = Write>) -> Verdict {
    verdict(moved().into_iter().chain(more))
}

fn without(version: u32) -> Vec<Write> {
    let version = Some(version.to_string().parse().unwrap());
    moved().into_iter().filter(|write| write.object.version != version).collect()
}

#[test]
fn a_move_as_it_should_be_is_clean_and_timed() {
    let verdict = with([]);
    assert!(verdict.is_clean(), "{verdict:#?}");
    assert_eq!(verdict.by_shards, 4);
    let [handover] = &verdict.handovers[..] else { panic!("{:?}", verdict.handovers) };
    assert_eq!((handover.let_go.as_secs(), handover.assigned.as_secs()), (10, 20));
    let Stages { rest, acknowledgement, search, children, assignment } = handover.stages;
    assert_eq!([rest, acknowledgement, search, children, assignment].map(|part| part.as_secs()), [10, 0, 10, 0, 10]);
    assert_eq!(verdict.beyond(Duration::from_secs(25)), [Duration::from_secs(5)]);
    assert_eq!(verdict.beyond(Duration::from_secs(40)), [Duration::ZERO]);
}

#[test]
fn a_write_to_what_is_anothers_is_foreign() {
    let verdict = with([site(65, Some("a"), Change::Updated, "b")]);
    let [landed] = &verdict.foreign[..] else { panic!("{verdict:#?}") };
    assert_eq!((&*landed.shard, landed.owner.as_deref(), &*landed.version), ("a", Some("b"), "65"));
    assert!(!verdict.is_clean() && verdict.late.is_empty());
}

#[test]
fn a_label_that_a_former_owner_puts_back_is_foreign() {
    let verdict = with([site(90, Some("a"), Change::Updated, "a"), site(91, Some("a"), Change::Updated, "a")]);
    assert_eq!(verdict.foreign.iter().map(|landed| &*landed.version).collect::<Vec<_>>(), ["90"]);
}

/// What `a` loses that has the object from 10 on, and its Lease from 1 on.
fn lost(writes: impl IntoIterator<Item = Write>) -> [Vec<Landed>; 2] {
    let before = [lease(1, "a", "a"), lease(2, "b", "b"), site(10, None, Change::Created, "a")];
    let Verdict { lost, forced, .. } = verdict(before.into_iter().chain(writes));
    [lost, forced]
}

fn drained(version: u32) -> Write {
    let object = Object { labels: labels("a", true), ..owner("a") };
    write(version, None, Change::Updated, "websites", object)
}

fn user(write: Write) -> Write {
    Write { by_sharder: false, ..write }
}

#[test]
fn what_a_shard_loses_it_has_let_go() {
    let none = [Vec::new(), Vec::new()];
    let told = |losses: [Vec<Landed>; 2]| {
        losses.map(|all| all.iter().map(|one| one.drained.map_or(0, |it| it.as_secs())).collect::<Vec<_>>())
    };
    for to in ["", "b"] {
        let moves = |by| site(30, by, Change::Updated, to);
        // By the webhook, the acknowledgement may name the next one.
        assert_eq!(lost([drained(20), moves(Some("a"))]), none);
        for by in [Some("a"), Some("b"), None] {
            assert_eq!(told(lost([moves(by)])), [vec![0], vec![]], "nobody asked: {by:?}");
        }
        let asked = |by: Option<&str>, at| site(at, by, Change::Unanswered, "");
        assert_eq!(lost([asked(None, 25), moves(Some("a"))]), none, "it was drained: its patch tests that");
        for not in [asked(None, 5), asked(Some("b"), 25), user(asked(None, 25))] {
            assert_ne!(lost([not, moves(Some("a"))]), none);
        }
        assert_ne!(lost([asked(None, 25), moves(Some("b"))]), none);
        assert_eq!(told(lost([drained(20), moves(Some("b"))])), [vec![10], vec![]], "another let go");
        assert_eq!(told(lost([drained(20), user(moves(None))])), [vec![10], vec![]], "a user let go");
        let unanswered = |at| site(at, Some("a"), Change::Unanswered, "");
        assert_eq!(lost([drained(20), unanswered(25), moves(None)]), none, "it may have let go");
        assert_ne!(lost([drained(20), unanswered(15), moves(None)]), none, "not of this drain");
        assert_eq!(told(lost([drained(20), moves(None)])), [vec![], vec![10]], "the sharder did not wait");
    }
}

#[test]
fn a_shard_without_its_lease_loses_nothing_and_neither_does_one_that_came_when_it_was_drained() {
    let none = [Vec::new(), Vec::new()];
    for by in [None, Some("b")] {
        let moves = || site(30, by, Change::Updated, "b");
        assert_eq!(lost([lease(15, "a", "ringside-sharder"), moves()]), none);
        assert_eq!(lost([lease(15, "a", ""), drained(20), lease(25, "a", "a"), moves()]), none);
        assert_ne!(lost([lease(15, "a", ""), lease(25, "a", "a"), moves()]), none);
        assert_eq!(lost([Write { id: String::new(), ..moves() }]), none, "nobody knows whose write it was");
    }
    let mut gone = site(30, None, Change::Deleted, "a");
    gone.object.labels = None;
    assert_eq!(lost([gone]), none);
}

#[test]
fn a_write_between_acknowledgement_and_assignment_is_late() {
    let verdict = with([site(45, Some("a"), Change::Updated, "")]);
    assert_eq!((verdict.late.len(), verdict.foreign.len()), (1, 0));
    assert!(!verdict.is_clean());
}

#[test]
fn what_a_shard_had_begun_may_land_on_what_was_made_again_under_the_name_before_anybody_has_that() {
    let again = |version, by, change, shard| {
        write(version, by, change, "websites", Object { uid: "again".to_owned(), ..owner(shard) })
    };
    let late = |by, at, was| {
        let gone = [site(90, None, Change::Deleted, ""), again(91, None, Change::Created, was)];
        with(gone.into_iter().chain([again(92, None, Change::Updated, ""), again(at, Some(by), Change::Updated, "")]))
            .late
            .len()
    };
    assert_eq!(late("b", 93, ""), 0);
    assert_eq!(late("b", 95, ""), 1, "it knows that it is gone");
    assert_eq!(late("a", 93, ""), 1, "it had let go of it before");
    assert_eq!(late("b", 93, "a"), 1, "somebody had the new one already");
}

#[test]
fn a_write_while_the_drain_is_under_way_is_the_owners() {
    let drained = Object { labels: labels("a", true), ..owner("a") };
    // As well as those to what follows it, from which on the grace counts.
    for (last, more) in [(35, vec![]), (36, vec![map(36, Some("a"), Change::Updated, "a")])] {
        let write = write(35, Some("a"), Change::Updated, "websites", drained.clone());
        let verdict = with([write].into_iter().chain(more));
        assert!(verdict.is_clean());
        assert_eq!(verdict.handovers[0].busy.as_secs(), last - 30);
        assert_eq!(verdict.beyond(Duration::from_secs(20)), [Duration::from_secs(10 - (last - 30))]);
    }
}

/// A write by `shard` that the fence refused at this time, of what is not there yet to this owner.
fn barred(at: u32, shard: &str, resource: &str, controller: Option<&str>) -> Write {
    let name = if resource == "websites" { "default/o" } else { "default/c" };
    let object =
        Object { name: name.to_owned(), controller: controller.map(str::to_owned), labels: None, ..Object::default() };
    Write {
        object: Object { version: None, ..object.clone() },
        ..write(at, Some(shard), Change::Barred, resource, object)
    }
}

#[test]
fn an_owner_that_the_fence_keeps_from_its_own_is_a_fault_and_a_former_one_is_not() {
    for (write, own) in [
        (barred(25, "a", "websites", None), true),
        (barred(75, "b", "websites", None), true),
        (barred(25, "b", "websites", None), false),
        (barred(65, "a", "websites", None), false),
        // While it is drained it is still the shard's, and what follows it for as long as its label is.
        (barred(35, "a", "websites", None), true),
        (barred(35, "a", "configmaps", None), true),
        (barred(45, "a", "websites", None), false),
        (barred(55, "a", "configmaps", None), false),
        (barred(65, "b", "configmaps", None), true),
        // It names the one above.
        (barred(15, "a", "configmaps", Some("o")), true),
        (barred(15, "b", "configmaps", Some("o")), false),
        (barred(15, "a", "configmaps", Some("nobody")), false),
        // It might have been carried out after the acknowledgement.
        (Write { received: Timestamp::from_second(38).unwrap(), ..barred(42, "a", "websites", None) }, false),
    ] {
        let verdict = with([write.clone()]);
        assert_eq!((verdict.barred.len(), verdict.kept_out), (usize::from(own), usize::from(!own)), "{write:?}");
        assert_eq!(verdict.is_clean(), !own);
    }
}

#[test]
fn a_deletion_of_what_is_anothers_is_foreign() {
    let gone = Object { labels: None, ..owner("") };
    let verdict = with([write(90, Some("a"), Change::Deleted, "websites", gone.clone())]);
    assert_eq!((verdict.foreign.len(), verdict.late.len()), (1, 0));
    assert!(with([write(90, Some("b"), Change::Deleted, "websites", gone)]).is_clean());
}

#[test]
fn a_write_to_a_child_is_judged_by_its_owner_too() {
    // It has not been moved yet, its owner has been let go: nobody's. A moment later it is the next shard's.
    assert_eq!(with([map(55, Some("a"), Change::Updated, "b")]).foreign.len(), 1);
    let still_there = without(50).into_iter().chain([map(65, Some("a"), Change::Updated, "a")]);
    let verdict = verdict(still_there);
    assert!(verdict.foreign.iter().any(|landed| landed.version == "65" && landed.owner.as_deref() == Some("b")));
}

#[test]
fn a_child_created_for_anothers_object_is_foreign_and_for_nobodys_is_late() {
    let new = || Object { uid: "new".to_owned(), name: "default/new".to_owned(), ..child("b") };
    let create = |version| with([write(version, Some("a"), Change::Created, "secrets", new())]);
    assert_eq!(create(65).foreign.len(), 1);
    assert_eq!((create(45).late.len(), create(45).foreign.len()), (1, 0));
    assert!(create(35).foreign.is_empty() && create(35).late.is_empty());
}

#[test]
fn a_grandchild_follows_the_owner_at_the_top() {
    let made = write(25, Some("a"), Change::Created, "secrets", grandchild("a"));
    let follows = write(49, None, Change::Updated, "secrets", grandchild("b"));
    assert!(with([made.clone(), follows.clone()]).is_clean());
    let foreign = write(75, Some("a"), Change::Updated, "secrets", grandchild("b"));
    assert_eq!(with([made.clone(), follows, foreign]).foreign.len(), 1);
    let stays = with([made]);
    assert_eq!(stays.left_behind.len(), 1);
    assert_eq!((stays.left_behind[0].owner.as_deref(), &*stays.left_behind[0].shard), (Some("b"), "a"));
}

#[test]
fn a_child_that_overtakes_its_owner_is_found() {
    let early = map(33, None, Change::Updated, "b");
    let found = verdict(without(50).into_iter().chain([early.clone()]));
    assert_eq!(found.overtaken.len(), 1);
    assert_eq!(found.overtaken[0].drained, Some(Duration::from_secs(3)));
    assert!(!found.is_clean());
    // Nor what may have been let go: the API server ended before it answered.
    let tried = |by: &str, at| Write {
        received: Timestamp::from_second(at).unwrap(),
        ..site(0, Some(by), Change::Unanswered, "")
    };
    let overtaken = |other: Write| {
        let unanswered = without(50).into_iter().filter(|write| write.received.as_second() != 40);
        verdict(unanswered.chain([other, early.clone()])).overtaken.len()
    };
    assert_eq!(overtaken(tried("a", 32)), 0);
    for other in [tried("b", 32), tried("a", 29), tried("a", 34)] {
        assert_eq!(overtaken(other), 1);
    }
    // It was not: it lets go later.
    assert_eq!(with_early_after(tried("a", 32), early.clone()).overtaken.len(), 1);
    // Of a shard that lost its Lease, nobody works on the owner, whatever it says.
    assert!(with_early_after(lease(31, "a", "shardlease-controller"), early.clone()).overtaken.is_empty());
    // Nor does one that came back after the owner was drained. One that was back by then does.
    let back = |lost, held| [lease(lost, "a", ""), lease(held, "a", "a")];
    assert!(with_all(back(31, 32), early.clone()).overtaken.is_empty());
    assert!(with_all(back(29, 31), early.clone()).overtaken.is_empty());
    assert_eq!(with_all(back(28, 29), early).overtaken.len(), 1);
}

fn with_early_after(before: Write, early: Write) -> Verdict {
    with_all([before], early)
}

fn with_all(leases: impl IntoIterator<Item = Write>, early: Write) -> Verdict {
    verdict(without(50).into_iter().chain(leases).chain([early]))
}

#[test]
fn a_second_create_is_found_whether_it_is_refused_or_not() {
    let refused = write(66, Some("b"), Change::Refused, "configmaps", Object { uid: String::new(), ..child("") });
    let found = with([refused.clone()]).second_creates;
    assert_eq!((found.len(), found[0].owner.as_deref()), (1, Some("b")), "of what was its own");
    assert_eq!(found[0].moved.map(Timestamp::as_second), Some(50), "from `a`");
    let of_its_own = write(36, Some("a"), Change::Refused, "configmaps", Object { uid: String::new(), ..child("") });
    assert_eq!(with([of_its_own]).second_creates[0].moved, None);
    assert!(with([Write { shard: None, ..refused }]).is_clean(), "others may try");
    let gone = Object { labels: None, ..child("") };
    let again = Object { uid: "c2".to_owned(), ..child("b") };
    let verdict = with([
        write(81, Some("b"), Change::Deleted, "configmaps", gone),
        write(82, Some("b"), Change::Created, "configmaps", again),
    ]);
    assert_eq!((verdict.second_creates.len(), verdict.deleted.len()), (1, 1));
    assert_eq!(verdict.second_creates[0].version, "82");
}

#[test]
fn what_a_shard_has_just_made_itself_is_in_the_way_of_no_move() {
    let own = |shard: &str| Object { uid: "n".to_owned(), name: "default/n".to_owned(), ..child(shard) };
    let made = |by: &str| write(80, Some(by), Change::Created, "configmaps", own(by));
    let moved = || write(81, None, Change::Updated, "configmaps", own("b"));
    let refused = |at: i64| Write {
        received: Timestamp::from_second(at).unwrap(),
        ..write(90, Some("b"), Change::Refused, "configmaps", Object { uid: String::new(), ..own("") })
    };
    let found = |writes: Vec<Write>| {
        let verdict = with(writes);
        (verdict.second_creates.len(), verdict.just_made)
    };
    assert_eq!(found(vec![made("b"), refused(81)]), (0, 1));
    assert_eq!(found(vec![made("b"), refused(82)]), (1, 0), "it sees that by then");
    assert_eq!(found(vec![made("a"), moved(), refused(81)]), (1, 0), "another has made it");
}

#[test]
fn what_is_made_for_an_owner_that_is_gone_is_no_second_create() {
    let gone = Object { uid: "o".to_owned(), name: "default/o".to_owned(), ..Object::default() };
    let again = |at: u32, uid: &str| {
        write(at, Some("b"), Change::Created, "configmaps", Object { uid: uid.to_owned(), ..child("b") })
    };
    let taken = || write(90, None, Change::Deleted, "configmaps", Object { labels: None, ..child("") });
    let made =
        |before: u32| with([write(before, None, Change::Deleted, "websites", gone.clone()), taken(), again(91, "c2")]);
    assert_eq!(made(89).second_creates, []);
    assert_eq!(made(92).second_creates.len(), 1, "it was there");
}

#[test]
fn what_an_owner_that_is_gone_has_left_is_in_nobodys_way() {
    let refused = |at| write(at, Some("b"), Change::Refused, "configmaps", Object { uid: String::new(), ..child("") });
    let gone = Object { uid: "o".to_owned(), name: "default/o".to_owned(), ..Object::default() };
    let deleted = || write(90, None, Change::Deleted, "websites", gone.clone());
    let left = with([deleted(), refused(91)]);
    assert_eq!((left.second_creates, left.of_the_gone), (vec![], 1));
    assert_eq!(with([deleted(), refused(89)]).second_creates.len(), 1, "its owner was there");
    let another = || write(92, None, Change::Created, "websites", Object { uid: "o2".to_owned(), ..owner("b") });
    let adopted = Object { controller: Some("o2".to_owned()), ..child("b") };
    let adopted = || write(93, Some("b"), Change::Updated, "configmaps", adopted.clone());
    assert_eq!(with([deleted(), another(), refused(92), adopted()]).second_creates, []);
    let made = |owner: &str| {
        let object = Object { controller: Some(owner.to_owned()), ..refused(94).object };
        let verdict = with([deleted(), another(), adopted(), Write { object, ..refused(94) }]);
        (verdict.second_creates.len(), verdict.of_the_gone)
    };
    assert_eq!((made("o2"), made("o")), ((1, 0), (0, 1)), "it is the other's, which is there");
}

#[test]
fn a_child_that_was_adopted_is_judged_by_who_has_it() {
    let deleted = Object { uid: "o".to_owned(), name: "default/o".to_owned(), ..Object::default() };
    let another = |shard| Object { uid: "o2".to_owned(), ..owner(shard) };
    let adopted = |shard| Object { controller: Some("o2".to_owned()), ..child(shard) };
    let made_again = || {
        [
            write(90, None, Change::Deleted, "websites", deleted.clone()),
            write(91, None, Change::Created, "websites", another("b")),
            write(92, Some("b"), Change::Updated, "configmaps", adopted("b")),
            // Both go to `a`.
            write(94, None, Change::Updated, "websites", Object { labels: labels("b", true), ..another("b") }),
            write(95, Some("b"), Change::Updated, "websites", another("")),
            write(96, None, Change::Updated, "configmaps", adopted("a")),
            write(97, None, Change::Updated, "websites", another("a")),
        ]
    };
    let then =
        |by| with(made_again().into_iter().chain([write(98, Some(by), Change::Updated, "configmaps", adopted("a"))]));
    assert!(then("a").is_clean(), "{:#?}", then("a"));
    assert_eq!(then("b").foreign.len(), 1);
}

#[test]
fn a_child_may_go_with_its_owner() {
    let gone = |uid: &str| Object { uid: uid.to_owned(), name: format!("default/{uid}"), ..Object::default() };
    let verdict = with([
        write(90, None, Change::Deleted, "websites", gone("o")),
        write(91, None, Change::Deleted, "configmaps", gone("c")),
    ]);
    assert!(verdict.deleted.is_empty() && verdict.is_clean(), "{verdict:#?}");
}

#[test]
fn a_write_that_changes_nothing_did_not_land() {
    // Answered with the version that it found, a moment after that was made.
    let found = Write { answered: Timestamp::from_second(76).unwrap(), ..site(70, Some("a"), Change::Updated, "b") };
    assert!(with([found]).is_clean());
}

/// The client was gone before the answer; the write landed, and only a watch showed it.
#[test]
fn a_write_without_an_answer_is_found_by_what_a_watch_showed() {
    let nameless = Object { name: "default/o".to_owned(), ..Object::default() };
    let unanswered = |second| Write {
        received: Timestamp::from_second(second).unwrap(),
        ..write(0, Some("a"), Change::Unanswered, "websites", nameless.clone())
    };
    let judge = |records: Vec<Write>, seen: Option<Write>| {
        let mut writes = Writes::new();
        records.into_iter().for_each(|record| writes.record(record));
        for Write { answered, resource, object, .. } in moved().into_iter().chain(seen) {
            if resource.resource != "leases" {
                writes.seen(Seen { at: answered, resource, object });
            }
        }
        writes.verdict()
    };
    // An acknowledgement: the move is timed all the same.
    let verdict = judge(without(40).into_iter().chain([unanswered(39)]).collect(), None);
    assert!(verdict.is_clean() && verdict.handovers.len() == 1, "{verdict:#?}");
    let late = || Some(site(90, None, Change::Updated, "b"));
    assert_eq!(judge(moved().into_iter().chain([unanswered(89)]).collect(), late()).foreign.len(), 1);
    assert!(judge(moved().into_iter().chain([unanswered(89)]).collect(), None).is_clean(), "it did not land");
    assert!(judge(moved().into_iter().chain([unanswered(91)]).collect(), late()).is_clean(), "it was another's");
}

/// The API server was killed before it answered the sharder, and the watch broke as well.
#[test]
fn a_shard_that_finds_its_own_label_was_given_the_object_in_between_if_the_sharder_tried() {
    let nameless = Object { name: "default/c".to_owned(), ..Object::default() };
    let tried = |by: Option<&str>, at| Write {
        received: Timestamp::from_second(at).unwrap(),
        ..write(0, by, Change::Unanswered, "configmaps", nameless.clone())
    };
    let found = |tried: Option<Write>| {
        let verdict = verdict(without(50).into_iter().chain(tried));
        (verdict.foreign.len(), verdict.left_behind.len(), verdict.is_clean())
    };
    assert_eq!(found(Some(tried(None, 49))), (0, 0, true));
    let users = Write { by_sharder: false, ..tried(None, 49) };
    for other in [None, Some(users), Some(tried(Some("b"), 49)), Some(tried(None, 19)), Some(tried(None, 81))] {
        assert_eq!(found(other), (1, 1, false));
    }
}

/// Where nobody's label was, the webhook may have put one into whatever was written.
#[test]
fn a_shard_that_finds_its_own_label_where_none_was_was_given_the_object_if_anybody_else_tried() {
    let nameless = Object { name: "default/o".to_owned(), ..Object::default() };
    let tried = |by: Option<&str>| Write {
        received: Timestamp::from_second(72).unwrap(),
        by_sharder: false,
        ..write(0, by, Change::Unanswered, "websites", nameless.clone())
    };
    let free = || site(71, None, Change::Updated, "");
    let found = |tried: Option<Write>, label| {
        let verdict = with([free(), site(73, Some("b"), Change::Updated, label)].into_iter().chain(tried));
        (verdict.late.len(), verdict.foreign.len())
    };
    assert_eq!(found(Some(tried(None)), "b"), (0, 0));
    assert_eq!(found(None, "b"), (1, 0), "it gave it to itself");
    assert_eq!(found(Some(tried(Some("b"))), "b"), (1, 0));
    assert_eq!(found(Some(tried(None)), ""), (1, 0));
}

#[test]
fn labels_that_an_answer_does_not_show_are_those_of_before() {
    let scaled = write(75, Some("b"), Change::Updated, "websites", Object { labels: None, ..owner("") });
    assert!(with([scaled, site(76, Some("b"), Change::Updated, "b")]).is_clean());
}

#[test]
fn an_object_without_a_past_is_no_proof() {
    let stranger = Object { uid: "s".to_owned(), ..owner("a") };
    let verdict = with([write(90, Some("a"), Change::Updated, "websites", stranger)]);
    assert_eq!(verdict.unknown, 1);
    assert!(!verdict.is_clean());
}
