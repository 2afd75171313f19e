//! The writes of the handover, as JSON patches that test what they rely on.
//!
//! The API server applies a JSON patch to the stored object, and again after each conflict; a failed
//! `test` refuses the whole write with 422. So a decision that was made on an old view changes nothing.

use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation, jsonptr::PointerBuf};
use serde_json::{Value, json};

use crate::{
    labels::{Ownership, RingLabels},
    name::ShardName,
};

/// What a patch can rely on about the object that it was decided for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// The object's uid: one deleted and made again under the same name is another object.
    pub uid: &'a str,
    /// The object's resourceVersion.
    pub resource_version: &'a str,
    /// The labels that the decision was made on.
    pub ownership: Ownership<'a>,
    /// Whether the object has a labels map at all.
    pub has_labels: bool,
}

impl Seen<'_> {
    /// Tests that the object is the same in every respect.
    fn unchanged(&self) -> Vec<PatchOperation> {
        vec![test(["metadata", "uid"], self.uid), test(["metadata", "resourceVersion"], self.resource_version)]
    }
}

/// Names `to` as the shard of a main object and takes a drain label off, whichever shard had it before.
///
/// The absence of a label can't be tested, so for an object without owner the resourceVersion is.
pub fn assign(labels: &RingLabels, seen: &Seen<'_>, to: &ShardName) -> Patch {
    let mut operations = match seen.ownership.shard {
        Some(from) => vec![test(["metadata", "uid"], seen.uid), test(["metadata", "labels", &labels.shard], from)],
        None => seen.unchanged(),
    };
    operations.extend(seen.ownership.drain.map(|drain| test(["metadata", "labels", &labels.drain], drain)));
    name(labels, seen, to, operations)
}

/// Names `to` as the shard of a child and takes a drain label off.
///
/// Moves of its owner follow one another. A write of one of them that hangs in the API server can land when a later one has
/// brought the child back to the shard that it had before. So no label says enough: the resourceVersion is tested.
pub fn gather(labels: &RingLabels, seen: &Seen<'_>, to: &ShardName) -> Patch {
    name(labels, seen, to, seen.unchanged())
}

/// What makes an object the shard's where `operations` find it as it was `seen`.
fn name(labels: &RingLabels, seen: &Seen<'_>, to: &ShardName, mut operations: Vec<PatchOperation>) -> Patch {
    if seen.ownership.drain.is_some() {
        operations.push(remove(["metadata", "labels", &labels.drain]));
    }
    if !seen.has_labels {
        operations.push(add(["metadata", "labels"], json!({})));
    }
    operations.push(add(["metadata", "labels", &labels.shard], json!(to.as_str())));
    Patch(operations)
}

/// Asks `from` to release the object; `value` is unique to this move.
pub fn drain(labels: &RingLabels, uid: &str, from: &str, value: &str) -> Patch {
    Patch(vec![
        test(["metadata", "uid"], uid),
        test(["metadata", "labels", &labels.shard], from),
        add(["metadata", "labels", &labels.drain], json!(value)),
    ])
}

/// Takes a drain back: the object is the shard's as before. That shard's acknowledgement of this drain is refused from then on;
/// one that came first has this refused.
pub fn take_back(labels: &RingLabels, uid: &str, from: &str, drain: &str) -> Patch {
    let drain_path = ["metadata", "labels", labels.drain.as_str()];
    Patch(vec![
        test(["metadata", "uid"], uid),
        test(["metadata", "labels", &labels.shard], from),
        test(drain_path, drain),
        remove(drain_path),
    ])
}

/// The shard's acknowledgement: it has released the object, which has no owner then (DESIGN, "Handover", 3).
///
/// 404 means that there is nothing left to acknowledge; 422 that something changed: read again.
pub fn acknowledge(labels: &RingLabels, uid: &str, shard: &ShardName, drain: &str) -> Patch {
    let shard_path = ["metadata", "labels", labels.shard.as_str()];
    let drain_path = ["metadata", "labels", labels.drain.as_str()];
    Patch(vec![
        test(["metadata", "uid"], uid),
        test(shard_path, shard.as_str()),
        test(drain_path, drain),
        remove(drain_path),
        remove(shard_path),
    ])
}

/// Takes the ring's labels off an object that it does not distribute; nothing when there are none.
pub fn release(labels: &RingLabels, seen: &Seen<'_>) -> Option<Patch> {
    let both = [(&labels.shard, seen.ownership.shard), (&labels.drain, seen.ownership.drain)];
    let there = both.into_iter().filter_map(|(key, value)| value.map(|_| remove(["metadata", "labels", key])));
    let operations: Vec<_> = there.collect();
    (!operations.is_empty()).then(|| Patch([seen.unchanged(), operations].concat()))
}

/// Whether the object has a shard by a patch that finds it as `before`.
pub fn leaves_shard(labels: &RingLabels, patch: &Patch, before: &Ownership<'_>) -> bool {
    let shard = pointer(["metadata", "labels", &labels.shard]);
    patch.iter().fold(before.shard.is_some(), |has, operation| match operation {
        PatchOperation::Add(it) if it.path == shard => true,
        PatchOperation::Remove(it) if it.path == shard => false,
        _ => has,
    })
}

/// Makes the labels of an object in an admission review say `ownership`, where nothing needs testing: the object is in our
/// hands. `new` is what it would say otherwise.
pub fn admit(labels: &RingLabels, ownership: &Ownership<'_>, new: &Ownership<'_>, has_labels: bool) -> Patch {
    let mut operations = Vec::new();
    if !has_labels {
        operations.push(add(["metadata", "labels"], json!({})));
    }
    let both = [(&labels.shard, ownership.shard, new.shard), (&labels.drain, ownership.drain, new.drain)];
    operations.extend(both.into_iter().filter_map(|(key, wanted, there)| {
        let path = ["metadata", "labels", key];
        match wanted {
            Some(value) => Some(add(path, json!(value))),
            None => there.map(|_| remove(path)),
        }
    }));
    Patch(operations)
}

/// A JSON pointer; the `/` in a label's key is escaped as `~1` (RFC 6901).
fn pointer<const N: usize>(path: [&str; N]) -> PointerBuf {
    PointerBuf::from_tokens(path)
}

fn test<const N: usize>(path: [&str; N], value: &str) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: pointer(path), value: json!(value) })
}

fn add<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: pointer(path), value })
}

fn remove<const N: usize>(path: [&str; N]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: pointer(path) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn labels() -> RingLabels {
        RingLabels::of(&"example".parse().unwrap())
    }

    fn object(ownership: &[(&str, &str)]) -> Value {
        let labels: serde_json::Map<_, _> = ownership.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
        json!({"metadata": {"uid": "u1", "resourceVersion": "7", "labels": labels}})
    }

    fn seen<'a>(ownership: Ownership<'a>, has_labels: bool) -> Seen<'a> {
        Seen { uid: "u1", resource_version: "7", ownership, has_labels }
    }

    fn apply(patch: &Patch, mut to: Value) -> Option<Value> {
        json_patch::patch(&mut to, patch).ok().map(|()| to)
    }

    #[test]
    fn assigning_works_with_and_without_a_labels_map_and_escapes_the_key() {
        let keys = labels();
        let to = "a".parse().unwrap();
        let bare = json!({"metadata": {"uid": "u1", "resourceVersion": "7"}});
        let wanted = object(&[(&keys.shard, "a")]);
        assert_eq!(apply(&assign(&keys, &seen(Ownership::default(), false), &to), bare), Some(wanted.clone()));
        assert_eq!(apply(&assign(&keys, &seen(Ownership::default(), true), &to), object(&[])), Some(wanted.clone()));
        let from = Ownership { shard: Some("dead"), drain: Some("m") };
        let drained = object(&[(&keys.shard, "dead"), (&keys.drain, "m")]);
        assert_eq!(apply(&assign(&keys, &seen(from, true), &to), drained), Some(wanted));
        let text = serde_json::to_string(&assign(&keys, &seen(Ownership::default(), true), &to)).unwrap();
        assert!(text.contains("/metadata/labels/shard.alpha.sharding.timebertt.dev~1clusterring-50d858e0-example"));
    }

    #[test]
    fn a_write_that_was_decided_on_an_old_view_is_refused() {
        let keys = labels();
        let to = "a".parse().unwrap();
        let mut newer = object(&[]);
        newer["metadata"]["resourceVersion"] = json!("8");
        assert_eq!(apply(&assign(&keys, &seen(Ownership::default(), true), &to), newer), None);
        let mut labelled = object(&[("app", "x")]);
        labelled["metadata"]["resourceVersion"] = json!("8");
        let bare = seen(Ownership::default(), false);
        assert_eq!(
            apply(&assign(&keys, &bare, &to), labelled),
            None,
            "it would lose what its user has put there since"
        );
        let from = Ownership { shard: Some("dead"), drain: None };
        assert_eq!(apply(&assign(&keys, &seen(from, true), &to), object(&[(&keys.shard, "b")])), None);
        assert_eq!(apply(&drain(&keys, "u1", "a", "m"), object(&[(&keys.shard, "b")])), None);
        assert_eq!(apply(&drain(&keys, "u2", "b", "m"), object(&[(&keys.shard, "b")])), None);
        let draining = object(&[(&keys.shard, "a"), (&keys.drain, "m2")]);
        assert_eq!(apply(&acknowledge(&keys, "u1", &to, "m1"), draining.clone()), None);
        assert_eq!(apply(&acknowledge(&keys, "u2", &to, "m2"), draining.clone()), None, "it is another object");
        let another = object(&[(&keys.shard, "b"), (&keys.drain, "m2")]);
        assert_eq!(apply(&acknowledge(&keys, "u1", &to, "m2"), another), None, "it is another shard's");
        assert_eq!(apply(&acknowledge(&keys, "u1", &to, "m2"), draining), Some(object(&[])));
        assert_eq!(apply(&acknowledge(&keys, "u1", &to, "m1"), object(&[(&keys.shard, "a")])), None);
    }

    #[test]
    fn of_an_acknowledgement_and_the_drain_taken_back_one_wins() {
        let (keys, shard) = (labels(), "a".parse().unwrap());
        let draining = object(&[(&keys.shard, "a"), (&keys.drain, "m1")]);
        let [taken, acknowledged] = [take_back(&keys, "u1", "a", "m1"), acknowledge(&keys, "u1", &shard, "m1")];
        let kept = apply(&taken, draining.clone()).unwrap();
        assert_eq!((&kept, apply(&acknowledged, kept.clone())), (&object(&[(&keys.shard, "a")]), None));
        assert_eq!(apply(&taken, apply(&acknowledged, draining).unwrap()), None);
        for other in [[("a", "m2")], [("b", "m1")]] {
            let [(shard, drain)] = other;
            assert_eq!(apply(&taken, object(&[(&keys.shard, shard), (&keys.drain, drain)])), None);
        }
    }

    #[test]
    fn a_child_is_moved_only_while_nobody_has_written_to_it() {
        let keys = labels();
        let to = "b".parse().unwrap();
        let of_a = object(&[(&keys.shard, "a"), (&keys.drain, "copied")]);
        let seen = seen(Ownership { shard: Some("a"), drain: Some("copied") }, true);
        let patch = gather(&keys, &seen, &to);
        assert_eq!(apply(&patch, of_a.clone()), Some(object(&[(&keys.shard, "b")])));
        for (field, value) in [("resourceVersion", "9"), ("uid", "u2")] {
            let mut other = of_a.clone();
            other["metadata"][field] = json!(value);
            assert_eq!(
                apply(&patch, other),
                None,
                "it was sent to another shard and brought back since, or made again"
            );
        }
        let bare = json!({"metadata": {"uid": "u1", "resourceVersion": "7"}});
        let unseen = Seen { ownership: Ownership::default(), has_labels: false, ..seen };
        assert_eq!(apply(&gather(&keys, &unseen, &to), bare), Some(object(&[(&keys.shard, "b")])));
    }

    #[test]
    fn it_is_known_of_a_patch_whether_the_object_has_a_shard_by_it() {
        let (keys, to) = (labels(), "a".parse().unwrap());
        let (nobodys, owned) = (Ownership::default(), Ownership { shard: Some("b"), drain: None });
        let drained = Ownership { drain: Some("m"), ..owned };
        for (patch, before, after) in [
            (assign(&keys, &seen(nobodys, true), &to), nobodys, true),
            (assign(&keys, &seen(owned, true), &to), owned, true),
            (drain(&keys, "u1", "b", "m"), owned, true),
            (take_back(&keys, "u1", "b", "m"), drained, true),
            (acknowledge(&keys, "u1", &to, "m"), drained, false),
            (release(&keys, &seen(drained, true)).unwrap(), drained, false),
        ] {
            assert_eq!(leaves_shard(&keys, &patch, &before), after, "{patch:?}");
        }
    }

    #[test]
    fn what_a_ring_has_left_is_taken_off() {
        let keys = labels();
        for (left, there) in [
            (Ownership { shard: Some("a"), drain: Some("m") }, vec![(&*keys.shard, "a"), (&*keys.drain, "m")]),
            (Ownership { shard: Some("a"), drain: None }, vec![(&*keys.shard, "a")]),
            (Ownership { shard: None, drain: Some("m") }, vec![(&*keys.drain, "m")]),
        ] {
            let patch = release(&keys, &seen(left, true)).unwrap();
            assert_eq!(apply(&patch, object(&there)), Some(object(&[])));
            let mut newer = object(&there);
            newer["metadata"]["resourceVersion"] = json!("8");
            assert_eq!(apply(&patch, newer), None, "it may be another's by now");
        }
        assert_eq!(release(&keys, &seen(Ownership::default(), true)), None);
    }

    #[test]
    fn admission_restores_both_labels() {
        let keys = labels();
        let old = Ownership { shard: Some("a"), drain: Some("m") };
        let bare = json!({"metadata": {"uid": "u1", "resourceVersion": "7"}});
        let restored = object(&[(&keys.shard, "a"), (&keys.drain, "m")]);
        assert_eq!(apply(&admit(&keys, &old, &Ownership::default(), false), bare), Some(restored));
    }

    #[test]
    fn admission_takes_a_drain_off_that_nobody_asked_for() {
        let keys = labels();
        let (to, copied) = (Ownership { shard: Some("a"), drain: None }, Ownership { shard: None, drain: Some("m") });
        let assigned = apply(&admit(&keys, &to, &copied, true), object(&[(&keys.drain, "m")]));
        assert_eq!(assigned, Some(object(&[(&keys.shard, "a")])));
    }
}
