#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const NOBODY: Ownership<'_> = Ownership { shard: None, drain: None };

fn owned(shard: &str) -> Ownership<'_> {
    Ownership { shard: Some(shard), drain: None }
}

fn draining(shard: &str) -> Ownership<'_> {
    Ownership { shard: Some(shard), drain: Some("move-1") }
}

fn update<'a>(old: Ownership<'a>, new: Ownership<'a>) -> Write<'a> {
    Write::Update { old, new, writer: None, manager: None }
}

#[test]
fn the_webhook_leaves_an_acknowledgement_to_the_controller_when_children_must_move_first() {
    // By the shard itself, or by a client of which nothing is known.
    for writer in [Some("a"), None] {
        let write = Write::Update { old: draining("a"), new: NOBODY, writer, manager: None };
        assert_eq!(review(write, true), Verdict::Leave);
        assert_eq!(review(write, false), Verdict::Assign);
    }
    // And a user's write in the moment between acknowledgement and assignment is no occasion either.
    let between = update(NOBODY, NOBODY);
    assert_eq!(review(between, true), Verdict::Leave);
    assert_eq!(review(between, false), Verdict::Assign);
}

#[test]
fn the_webhook_puts_dropped_labels_back() {
    // A PUT from a template that knows no labels.
    assert_eq!(review(update(owned("a"), NOBODY), true), Verdict::Restore(owned("a")));
    assert_eq!(review(update(owned("a"), NOBODY), false), Verdict::Restore(owned("a")));
    // Only half of an acknowledgement.
    let half = update(draining("a"), Ownership { shard: None, drain: Some("move-1") });
    assert_eq!(review(half, true), Verdict::Restore(draining("a")));
    // The whole of one, by a Pod that is another one's.
    let foreign = Write::Update { old: draining("a"), new: NOBODY, writer: Some("b"), manager: Some(ACKNOWLEDGER) };
    for waits in [true, false] {
        assert_eq!(review(foreign, waits), Verdict::Restore(draining("a")));
    }
}

/// A controller that PUTs its own object from a template while it is drained.
#[test]
fn a_drain_that_carries_a_grace_is_acknowledged_by_the_field_manager_of_the_proxy_alone() {
    let by = |drain, manager| {
        let old = Ownership { drain: Some(drain), ..draining("a") };
        review(Write::Update { old, new: NOBODY, writer: Some("a"), manager }, true)
    };
    let kept = Ownership { drain: Some("move-1.1000ms"), ..draining("a") };
    for manager in [None, Some(""), Some("the-controller")] {
        assert_eq!(by("move-1.1000ms", manager), Verdict::Restore(kept), "{manager:?}");
        assert_eq!(by("move-1", manager), Verdict::Leave, "a shard that promised none, by {manager:?}");
    }
    assert_eq!(by("move-1.1000ms", Some(ACKNOWLEDGER)), Verdict::Leave);
}

#[test]
fn the_webhook_assigns_what_is_created_without_an_owner() {
    assert_eq!(review(Write::Create { new: NOBODY }, true), Verdict::Assign);
    assert_eq!(review(Write::Create { new: owned("a") }, true), Verdict::Leave);
    // The sharder's own assignment.
    assert_eq!(review(update(NOBODY, owned("a")), true), Verdict::Leave);
    assert_eq!(review(update(owned("a"), draining("a")), true), Verdict::Leave);
}

proptest! {
    /// Without a drain the webhook never removes the shard label of an owner.
    #[test]
    fn the_webhook_never_releases_an_undrained_object(
        owner in "[a-c]",
        drain in proptest::option::of("[a-z]{0,4}"),
        writer in proptest::option::of("[a-c]"),
        waits: bool,
    ) {
        let old = owned(&owner);
        let new = Ownership { shard: None, drain: drain.as_deref() };
        let write = Write::Update { old, new, writer: writer.as_deref(), manager: Some(ACKNOWLEDGER) };
        prop_assert_eq!(review(write, waits), Verdict::Restore(old));
    }
}
