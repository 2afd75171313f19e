//! Records of each fault: the checker must find every one.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use ringside_ring::cluster_ring::GroupResource;

use super::*;

/// Reads a write: when it arrived, which is its version, and with `-` when it was answered, if later; by whom: a shard,
/// `sharder` or `user`; what it did; to what resource; to which object, as `UID` or `UID:NAME`, with `<UID` of its controller;
/// and the shard label that came of it, with `!` where it is drained, or `-` where there is none. Of a Lease that is the holder.
fn write(text: &str) -> Write {
    let words: Vec<_> = text.split(' ').collect();
    let [at, by, did, resource, which, label @ ..] = &words[..] else { panic!("{text}") };
    let (received, answered) = at.split_once('-').unwrap_or((at, at));
    let [arrival, answer] = [received, answered].map(|at| Timestamp::from_second(at.parse().unwrap()).unwrap());
    let (which, controller) = which.split_once('<').map_or((*which, None), |(it, above)| (it, Some(above.to_owned())));
    let (uid, name) = which.split_once(':').unwrap_or((which, which));
    let change = match *did {
        "creates" => Change::Created,
        "updates" => Change::Updated,
        "deletes" => Change::Deleted,
        "asks" => Change::Unanswered,
        "refused" => Change::Refused,
        "barred" => Change::Barred,
        _ => panic!("{text}"),
    };
    let label = label.first().map(|label| label.trim_matches('-'));
    let (labels, holder) = match label {
        Some(holder) if *resource == "leases" => (None, Some(holder.to_owned())),
        label => (label.map(labels), None),
    };
    let is_there = matches!(change, Change::Created | Change::Updated);
    let version = is_there.then(|| received.parse().unwrap());
    Write {
        id: text.to_owned(),
        received: arrival,
        answered: answer,
        shard: Some((*by).to_owned()).filter(|by| !["sharder", "user"].contains(&&**by)),
        by_sharder: *by == "sharder",
        change,
        resource: GroupResource { group: String::new(), resource: (*resource).to_owned() },
        object: Object { uid: uid.to_owned(), name: format!("default/{name}"), version, labels, controller, holder },
    }
}

fn labels(label: &str) -> Labels {
    let shard = Some(label.trim_end_matches('!').to_owned()).filter(|shard| !shard.is_empty());
    Labels { shard, drain: label.ends_with('!').then(|| "move".to_owned()) }
}

/// Reads writes, which are separated by commas.
fn writes(text: &str) -> Vec<Write> {
    text.split(", ").filter(|text| !text.is_empty()).map(write).collect()
}

/// An owner and a child of shard `a`, which is drained, acknowledges that at 40, and goes to `b`.
const MOVED: &str = "1 sharder updates leases a a, 2 sharder updates leases b b, 10 sharder creates sites o a, \
    20 a creates maps c<o a, 30 sharder updates sites o a!, 40 a updates sites o -, 50 sharder updates maps c<o b, \
    60 sharder updates sites o b, 70 b updates sites o b, 80 b updates maps c<o b";

fn judge(mut records: Vec<Write>) -> Verdict {
    let mut writes = Writes::new();
    // As they come is not as they were made.
    records.reverse();
    records.into_iter().for_each(|record| writes.record(record));
    writes.verdict()
}

/// The verdict on the move, and more.
fn with(more: &str) -> Verdict {
    without(&[], more)
}

/// The same, but for what was made at these times.
fn without(times: &[i64], more: &str) -> Verdict {
    let mut all = writes(MOVED);
    all.retain(|write| !times.contains(&write.received.as_second()));
    judge([all, writes(more)].concat())
}

/// An owner goes and one of its name comes, at another shard; that one goes to the first shard, whose controller has yet to
/// notice and names the owner that is gone in what it writes to the child. `maker` has made that, and what is below it.
#[test]
fn whose_a_child_was_when_it_was_made_is_not_told_by_who_adopts_it_later() {
    // The child is moved before its owner was released, or after that.
    for (maker, moved, foreign, overtaken, behind) in
        [("b", 70, 0, 0, 0), ("a", 70, 2, 0, 0), ("b", 48, 0, 1, 0), ("b", 85, 0, 0, 1)]
    {
        let judged = judge(writes(&format!(
            "1 sharder updates leases a a, 2 sharder updates leases b b, 10 sharder creates sites o a, \
             20 sharder deletes sites o a, 30 sharder creates sites p:o b, 40 {maker} creates maps d:c<p b, \
             45 {maker} creates secrets e:g<d b, 50 sharder updates sites p:o b!, 60 b updates sites p:o -, \
             {moved} sharder updates maps d:c<p a, 75 sharder updates secrets e:g<d a, 80 sharder updates sites p:o a, \
             90 a updates maps d:c<o a"
        )));
        let found = (judged.foreign.len(), judged.late.len(), judged.overtaken.len(), judged.left_behind.len());
        assert_eq!(found, (foreign, 0, overtaken, behind), "{maker}: {judged:#?}");
    }
}

/// A child goes from one owner to another, which had changed its shard before.
#[test]
fn a_child_is_left_behind_by_none_whose_it_was_not_yet() {
    for (adopted, behind) in [(60, 0), (45, 1)] {
        let judged = judge(writes(&format!(
            "1 sharder updates leases a a, 10 sharder creates sites o a, 20 a creates maps c<o a, \
             30 sharder creates sites p:o b, 40 sharder updates sites p:o -, {adopted} sharder updates maps c<p a, \
             50 sharder updates sites p:o c"
        )));
        assert_eq!(judged.left_behind.len(), behind, "{judged:#?}");
    }
}

#[test]
fn a_move_as_it_should_be_is_clean_and_timed() {
    let verdict = with("");
    assert!(verdict.is_clean(), "{verdict:#?}");
    assert_eq!(verdict.by_shards, 4);
    let [handover] = &verdict.handovers[..] else { panic!("{:?}", verdict.handovers) };
    assert_eq!((handover.let_go.as_secs(), handover.assigned.as_secs()), (10, 20));
    let Stages { rest, acknowledgement, search, children, assignment } = handover.stages;
    assert_eq!([rest, acknowledgement, search, children, assignment].map(|part| part.as_secs()), [10, 0, 10, 0, 10]);
    assert_eq!(verdict.beyond(Duration::from_secs(25)), [Duration::from_secs(5)]);
    assert_eq!(verdict.beyond(Duration::from_secs(40)), [Duration::ZERO]);
}

/// What a shard may not write, and what it may.
#[test]
fn a_write_to_what_is_anothers_is_foreign_and_to_what_has_no_owner_late() {
    for (write, foreign, late) in [
        ("65 a updates sites o b", 1, 0),
        ("90 a deletes sites o", 1, 0),
        ("90 b deletes sites o", 0, 0),
        // Of a label that a former owner puts back, what follows is its own.
        ("90 a updates sites o a, 91 a updates sites o a", 1, 0),
        // Between acknowledgement and assignment.
        ("45 a updates sites o -", 0, 1),
        // A child that has been moved is the next shard's before its owner is.
        ("55 a updates maps c<o b", 1, 0),
        ("65 a creates secrets new<o b", 1, 0),
        ("45 a creates secrets new<o b", 0, 1),
        ("35 a creates secrets new<o b", 0, 0),
        // Answered with the version that it found, a moment after that was made: it changed nothing.
        ("70-76 a updates sites o b", 0, 0),
        // Labels that an answer does not show are those of before.
        ("75 b updates sites o, 76 b updates sites o b", 0, 0),
    ] {
        let verdict = with(write);
        assert_eq!((verdict.foreign.len(), verdict.late.len()), (foreign, late), "{write}: {verdict:#?}");
        assert!(!verdict.is_clean() || foreign + late == 0, "{write}");
    }
    let foreign = with("65 a updates sites o b").foreign.remove(0);
    assert_eq!((&*foreign.shard, foreign.owner.as_deref(), &*foreign.version), ("a", Some("b"), "65"));
    // Of a child that has not been moved, its owner tells.
    let verdict = without(&[50], "65 a updates maps c<o a");
    assert!(verdict.foreign.iter().any(|landed| landed.version == "65" && landed.owner.as_deref() == Some("b")));
}

#[test]
fn an_object_without_a_past_is_no_proof() {
    let verdict = with("90 a updates sites s:o a");
    assert_eq!(verdict.unknown, 1);
    assert!(!verdict.is_clean());
}

/// What is lost, and what is taken, by `a` that has the object from 10 on, and its Lease from 1 on: for how long it was drained.
fn lost(more: Vec<Write>) -> [Vec<u64>; 2] {
    let before = "1 sharder updates leases a a, 2 sharder updates leases b b, 10 sharder creates sites o a";
    let Verdict { lost, forced, .. } = judge([writes(before), more].concat());
    [lost, forced].map(|all| all.iter().map(|one| one.drained.map_or(0, |drained| drained.as_secs())).collect())
}

#[test]
fn what_a_shard_loses_it_has_released() {
    let (none, unasked) = ([vec![], vec![]], [vec![0], vec![]]);
    for to in ["-", "b"] {
        for (events, found) in [
            // By the webhook, the acknowledgement may name the next one.
            ("20 sharder updates sites o a!, 30 a updates sites o TO", &none),
            ("30 a updates sites o TO", &unasked),
            ("30 b updates sites o TO", &unasked),
            ("30 sharder updates sites o TO", &unasked),
            // It was drained: its patch tests that.
            ("25 sharder asks sites o, 30 a updates sites o TO", &none),
            ("5 sharder asks sites o, 30 a updates sites o TO", &unasked),
            ("25 b asks sites o, 30 a updates sites o TO", &unasked),
            ("25 user asks sites o, 30 a updates sites o TO", &unasked),
            ("25 sharder asks sites o, 30 b updates sites o TO", &unasked),
            // Another released it, or a user.
            ("20 sharder updates sites o a!, 30 b updates sites o TO", &[vec![10], vec![]]),
            ("20 sharder updates sites o a!, 30 user updates sites o TO", &[vec![10], vec![]]),
            // It may have released it, by this drain.
            ("20 sharder updates sites o a!, 25 a asks sites o, 30 sharder updates sites o TO", &none),
            ("20 sharder updates sites o a!, 15 a asks sites o, 30 sharder updates sites o TO", &[vec![], vec![10]]),
            // The sharder did not wait.
            ("20 sharder updates sites o a!, 30 sharder updates sites o TO", &[vec![], vec![10]]),
        ] {
            assert_eq!(lost(writes(&events.replace("TO", to))), *found, "{to}: {events}");
        }
    }
}

#[test]
fn a_shard_without_its_lease_loses_nothing_and_neither_does_one_that_came_when_it_was_drained() {
    let none = [vec![], vec![]];
    for by in ["sharder", "b"] {
        let moves = format!("30 {by} updates sites o b");
        for (before, found) in [
            ("15 sharder updates leases a ringside-sharder", &none),
            ("15 sharder updates leases a -, 20 sharder updates sites o a!, 25 sharder updates leases a a", &none),
            ("15 sharder updates leases a -, 25 sharder updates leases a a", &[vec![0], vec![]]),
        ] {
            assert_eq!(lost(writes(&format!("{before}, {moves}"))), *found, "{by}: {before}");
        }
        assert_eq!(lost(vec![Write { id: String::new(), ..write(&moves) }]), none, "it is unknown whose write it was");
    }
    assert_eq!(lost(writes("30 sharder deletes sites o")), none);
}

#[test]
fn a_lease_of_that_name_in_another_namespace_is_not_the_shards() {
    let mut foreign = write("16 user updates leases a a");
    foreign.object.name = "strangers/a".to_owned();
    let taken = writes("15 sharder updates leases a ringside-sharder, 30 sharder updates sites o b");
    let none: [Vec<u64>; 2] = [vec![], vec![]];
    assert_eq!(lost(taken.into_iter().chain([foreign]).collect()), none);
}

#[test]
fn what_a_shard_had_begun_may_land_on_what_was_made_again_under_the_name_before_a_shard_has_that() {
    for (by, at, was, late) in [
        ("b", 93, "-", 0),
        // It knows that it is gone; or had released it before; or a shard had the new one already.
        ("b", 95, "-", 1),
        ("a", 93, "-", 1),
        ("b", 93, "a", 1),
    ] {
        let verdict = with(&format!(
            "90 sharder deletes sites o -, 91 sharder creates sites again:o {was}, 92 sharder updates sites again:o -, \
             {at} {by} updates sites again:o -"
        ));
        assert_eq!(verdict.late.len(), late, "{by} at {at}, {was}");
    }
}

#[test]
fn a_write_while_the_drain_is_under_way_is_the_owners() {
    // As well as those to what follows it, from which on the grace counts.
    for (last, writes) in [(35, "35 a updates sites o a!"), (36, "35 a updates sites o a!, 36 a updates maps c<o a")] {
        let verdict = with(writes);
        assert!(verdict.is_clean());
        assert_eq!(verdict.handovers[0].busy.as_secs(), last - 30);
        assert_eq!(verdict.beyond(Duration::from_secs(20)), [Duration::from_secs(10 - (last - 30))]);
    }
}

#[test]
fn an_owner_that_the_fence_keeps_from_its_own_is_a_fault_and_a_former_one_is_not() {
    for (write, own) in [
        ("25 a barred sites o", true),
        ("75 b barred sites o", true),
        ("25 b barred sites o", false),
        ("65 a barred sites o", false),
        // While it is drained it is still the shard's, and what follows it for as long as its label is.
        ("35 a barred sites o", true),
        ("35 a barred maps c", true),
        ("45 a barred sites o", false),
        ("55 a barred maps c", false),
        ("65 b barred maps c", true),
        // It names the one above.
        ("15 a barred maps c<o", true),
        ("15 b barred maps c<o", false),
        ("15 a barred maps c<nobody", false),
        // It might have been carried out after the acknowledgement.
        ("38-42 a barred sites o", false),
    ] {
        let verdict = with(write);
        assert_eq!((verdict.barred.len(), verdict.kept_out), (usize::from(own), usize::from(!own)), "{write}");
        assert_eq!(verdict.is_clean(), !own);
    }
}

#[test]
fn a_grandchild_follows_the_owner_at_the_top() {
    let (made, follows) = ("25 a creates secrets g<c a", "49 sharder updates secrets g<c b");
    assert!(with(&format!("{made}, {follows}")).is_clean());
    assert_eq!(with(&format!("{made}, {follows}, 75 a updates secrets g<c b")).foreign.len(), 1);
    let behind = with(made).left_behind;
    assert_eq!((behind.len(), behind[0].owner.as_deref(), &*behind[0].shard), (1, Some("b"), "a"));
}

#[test]
fn a_child_that_overtakes_its_owner_is_found() {
    let early = "33 sharder updates maps c<o b";
    let found = without(&[50], early);
    assert_eq!((found.overtaken.len(), found.overtaken[0].drained), (1, Some(Duration::from_secs(3))));
    assert!(!found.is_clean());
    for (left_out, before, found) in [
        // It may have been released: the API server ended before it answered. It was not, where the shard releases it
        // later.
        (&[40, 50][..], "32 a asks sites o", 0),
        (&[40, 50], "32 b asks sites o", 1),
        (&[40, 50], "29 a asks sites o", 1),
        (&[40, 50], "34 a asks sites o", 1),
        (&[50], "32 a asks sites o", 1),
        // A shard that lost its Lease does not work on the owner, whatever it says.
        (&[50], "31 sharder updates leases a shardlease-controller", 0),
        // Nor does one that came back after the owner was drained. One that was back by then does.
        (&[50], "31 sharder updates leases a -, 32 sharder updates leases a a", 0),
        (&[50], "29 sharder updates leases a -, 31 sharder updates leases a a", 0),
        (&[50], "28 sharder updates leases a -, 29 sharder updates leases a a", 1),
    ] {
        assert_eq!(without(left_out, &format!("{before}, {early}")).overtaken.len(), found, "{before}");
    }
}

#[test]
fn a_second_create_is_found_whether_it_is_refused_or_not() {
    let found = with("66 b refused maps c<o").second_creates;
    assert_eq!((found.len(), found[0].owner.as_deref()), (1, Some("b")), "of what was its own");
    assert_eq!(found[0].moved.map(Timestamp::as_second), Some(50), "from `a`");
    assert_eq!(with("36 a refused maps c<o").second_creates[0].moved, None);
    assert!(with("66 user refused maps c<o").is_clean(), "others may try");
    let verdict = with("81 b deletes maps c<o, 82 b creates maps c2:c<o b");
    assert_eq!((verdict.second_creates.len(), verdict.deleted.len()), (1, 1));
    assert_eq!(verdict.second_creates[0].version, "82");
}

#[test]
fn a_second_create_that_no_move_has_to_do_with_is_counted_apart() {
    let adopted = "90 sharder deletes sites o, 92 sharder creates sites o2:o b, 93 b updates maps c<o2 b";
    for (writes, second, just_made, of_the_gone) in [
        ("80 b creates maps n<o b, 81-90 b refused maps n<o".to_owned(), 0, 1, 0),
        ("80 b creates maps n<o, 81 sharder updates maps n<o b, 81-90 b refused maps n<o".to_owned(), 0, 1, 0),
        // It sees that by then; or another has made it.
        ("80 b creates maps n<o b, 82-90 b refused maps n<o".to_owned(), 1, 0, 0),
        ("80 a creates maps n<o a, 81 sharder updates maps n<o b, 81-90 b refused maps n<o".to_owned(), 1, 0, 0),
        // For an owner that is gone, or was there.
        ("89 sharder deletes sites o, 90 sharder deletes maps c<o, 91 b creates maps c2:c<o b".to_owned(), 0, 0, 0),
        ("92 sharder deletes sites o, 90 sharder deletes maps c<o, 91 b creates maps c2:c<o b".to_owned(), 1, 0, 0),
        // What an owner that is gone has left is in no shard's way.
        ("90 sharder deletes sites o, 91 b refused maps c<o".to_owned(), 0, 0, 1),
        ("90 sharder deletes sites o, 89 b refused maps c<o".to_owned(), 1, 0, 0),
        ("90 sharder deletes sites o, 91-93 a creates maps n<o, 92-94 b refused maps n<o2".to_owned(), 0, 0, 1),
        ("95 sharder deletes sites o, 91-93 a creates maps n<o, 92-94 b refused maps n<o2".to_owned(), 1, 0, 0),
        (format!("{adopted}, 92 b refused maps c<o"), 0, 0, 1),
        // It is the other's, which is there.
        (format!("{adopted}, 94 b refused maps c<o2"), 1, 0, 0),
        (format!("{adopted}, 94 b refused maps c<o"), 0, 0, 1),
    ] {
        let verdict = with(&writes);
        let found = (verdict.second_creates.len(), verdict.just_made, verdict.of_the_gone);
        assert_eq!(found, (second, just_made, of_the_gone), "{writes}");
    }
}

#[test]
fn a_child_that_was_adopted_is_judged_by_who_has_it() {
    // Both go to `a`.
    let then = |by| {
        with(&format!(
            "90 sharder deletes sites o, 91 sharder creates sites o2:o b, 92 b updates maps c<o2 b, \
             94 sharder updates sites o2:o b!, 95 b updates sites o2:o -, 96 sharder updates maps c<o2 a, \
             97 sharder updates sites o2:o a, 98 {by} updates maps c<o2 a"
        ))
    };
    assert!(then("a").is_clean(), "{:#?}", then("a"));
    assert_eq!(then("b").foreign.len(), 1);
}

#[test]
fn a_child_may_go_with_its_owner() {
    let verdict = with("90 sharder deletes sites o, 91 sharder deletes maps c");
    assert!(verdict.deleted.is_empty() && verdict.is_clean(), "{verdict:#?}");
}

/// The client was gone before the answer; the write landed, and only a watch showed it.
#[test]
fn a_write_without_an_answer_is_found_by_what_a_watch_showed() {
    let judge = |left_out: i64, asked: &str, late: &str| {
        let mut judged = Writes::new();
        let answered = writes(MOVED).into_iter().filter(|write| write.received.as_second() != left_out);
        answered.chain(writes(asked)).for_each(|record| judged.record(record));
        let shown = writes(MOVED).into_iter().chain(writes(late)).filter(|write| write.resource.resource != "leases");
        for Write { answered, resource, object, .. } in shown {
            judged.seen(Seen { at: answered, resource, object });
        }
        judged.verdict()
    };
    // An acknowledgement: the move is timed all the same.
    let verdict = judge(40, "39 a asks sites o", "");
    assert!(verdict.is_clean() && verdict.handovers.len() == 1, "{verdict:#?}");
    let late = "90 sharder updates sites o b";
    assert_eq!(judge(0, "89 a asks sites o", late).foreign.len(), 1);
    assert!(judge(0, "89 a asks sites o", "").is_clean(), "it did not land");
    assert!(judge(0, "91 a asks sites o", late).is_clean(), "it was another's");
    // A create: whose the object is, its owner tells.
    for (asked, made, foreign) in [
        ("89 b asks maps n, 95 sharder deletes maps n", "90 b creates maps n<o b", 0),
        ("89 a asks maps n", "90 a creates maps n<o b", 1),
    ] {
        let verdict = judge(0, asked, made);
        assert_eq!((verdict.foreign.len(), verdict.unknown), (foreign, 0), "{asked}");
    }
}

/// The API server was killed before it answered the sharder, and the watch broke as well.
#[test]
fn a_shard_that_finds_its_own_label_was_given_the_object_in_between_if_the_sharder_tried() {
    for (tried, found) in [
        ("49 sharder asks maps c", (0, 0, true)),
        ("", (1, 1, false)),
        ("49 user asks maps c", (1, 1, false)),
        ("49 b asks maps c", (1, 1, false)),
        ("19 sharder asks maps c", (1, 1, false)),
        ("81 sharder asks maps c", (1, 1, false)),
    ] {
        let verdict = without(&[50], tried);
        assert_eq!((verdict.foreign.len(), verdict.left_behind.len(), verdict.is_clean()), found, "{tried}");
    }
}

/// Where no shard's label was, the webhook may have put one into whatever was written.
#[test]
fn a_shard_that_finds_its_own_label_where_none_was_was_given_the_object_if_another_client_tried() {
    for (writes, late) in [
        ("72 user asks sites o, 73 b updates sites o b", 0),
        // It gave it to itself.
        ("73 b updates sites o b", 1),
        ("72 b asks sites o, 73 b updates sites o b", 1),
        ("72 user asks sites o, 73 b updates sites o -", 1),
    ] {
        let verdict = with(&format!("71 sharder updates sites o -, {writes}"));
        assert_eq!((verdict.late.len(), verdict.foreign.len()), (late, 0), "{writes}");
    }
}
