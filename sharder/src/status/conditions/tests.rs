#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use ringside_ring::lease::ShardState;

use super::*;
use crate::snapshot::tests::{example_spec, ring as ring_of, snapshot, snapshot_of};

fn status(
    ring: &Snapshot,
    problems: &[String],
    findings: impl IntoIterator<Item = Finding>,
    objects: Option<ObjectCounts>,
    now: Timestamp,
) -> ClusterRingStatus {
    super::status(ring, ring.status.as_ref(), problems, findings, objects, now)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_ring_that_is_set_up_is_ready() {
    let status = status(&snapshot(), &[], [], None, at(1));
    let ready = &status.conditions[0];
    assert_eq!((status.shards, status.available_shards, status.observed_generation), (3, 2, 1));
    assert_eq!(
        (&*ready.status, &*ready.reason, &*ready.message),
        ("True", REASON_SUCCEEDED, "ClusterRing was successfully reconciled")
    );
}

#[test]
fn pods_without_proxy_are_named_and_the_condition_goes_with_the_injector() {
    let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let of =
        |pods: &[&str], unread: &[&str]| injected(Some(&Uninjected { pods: all(pods), unread: all(unread) })).unwrap();
    let found = of(&["a/p", "a/q"], &["b: forbidden"]);
    assert!(
        !found.holds && found.reason == "WithoutProxy" && found.message.contains(": a/p; a/q; delete"),
        "{found:?}"
    );
    assert_eq!((of(&[], &["b: forbidden"]).reason, of(&[], &[]).holds), ("NotLookedAt", true));
    let mut ring = snapshot();
    ring.status = Some(status(&ring, &[], [found], None, at(1)));
    let later = status(&ring, &[], injected(None), None, at(2));
    assert_eq!(later.conditions.len(), 2, "another leader has not looked yet");
    assert_eq!(without_injector(later).conditions.len(), 1);
}

#[test]
fn paused_ring_says_how_to_resume_and_is_ready() {
    let mut spec = example_spec();
    spec["paused"] = true.into();
    let ring = snapshot_of(&ring_of(&spec), &[("a", ShardState::Ready)]);
    let status = status(&ring, &[], [moves(&ring)], None, at(1));
    let found: Vec<_> = status.conditions.iter().map(|it| (&*it.type_, &*it.status, &*it.reason)).collect();
    assert_eq!(found, [("Ready", "True", REASON_SUCCEEDED), (CONDITION_MOVES, "False", "Paused")]);
    assert!(status.conditions[1].message.ends_with("`ringside resume example`"), "{:?}", status.conditions[1]);
    assert!(moves(&snapshot()).holds);
}

#[test]
fn the_status_stays_the_same_while_nothing_changes() {
    let mut ring = snapshot();
    let first = status(&ring, &[], [], None, at(1));
    ring.status = Some(first.clone());
    assert_eq!(status(&ring, &[], [], None, at(2)), first);
}

#[test]
fn a_problem_is_told_and_dated_and_other_conditions_are_kept() {
    let mut ring = snapshot();
    let mut before = status(&ring, &[], [], None, at(1));
    let foreign = Condition { type_: "Audited".into(), ..before.conditions[0].clone() };
    before.conditions.insert(0, foreign.clone());
    ring.status = Some(before);
    ring.problems = vec!["resource 'websites' is not served".into()];
    let after = status(&ring, &["no permission".into()], [], None, at(5));
    assert_eq!(after.conditions[0], foreign);
    let ready = &after.conditions[1];
    assert_eq!((&*ready.status, ready.last_transition_time.0), ("False", at(5)));
    assert_eq!(ready.message, "resource 'websites' is not served; no permission");
}

#[test]
fn what_is_found_out_has_a_condition_of_its_own() {
    let finding = |holds| Finding { type_: "LabelsProtected", holds, reason: "SoIt", message: "is".to_owned() };
    let mut ring = snapshot();
    ring.status = Some(status(&ring, &[], [finding(false)], None, at(1)));
    let after = status(&ring, &["no permission".into()], [finding(true)], None, at(5));
    let told: Vec<_> = after.conditions.iter().map(|it| (&*it.type_, &*it.status, it.last_transition_time.0)).collect();
    assert_eq!(told, [(CONDITION_READY, "False", at(5)), ("LabelsProtected", "True", at(5))]);
}

#[test]
fn the_fence_is_told_only_where_it_is_asked_for() {
    let mut ring = snapshot();
    let of = |status: &ClusterRingStatus| {
        let found = status.conditions.iter().find(|condition| condition.type_ == CONDITION_FENCED);
        found.map(|condition| (condition.status.clone(), condition.reason.clone()))
    };
    let said = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
    for (report, wanted) in [
        (Report::Pending, said("False", "Pending")),
        (Report::Leaky(vec!["x".into()]), said("False", "ShardsOutside")),
        (Report::Impossible("x".into()), said("False", "Impossible")),
        (Report::InPlace, said("True", "InPlace")),
        (Report::Unasked, None),
    ] {
        let status = status(&ring, &[], fenced_by(&report), None, at(1));
        assert_eq!(of(&status), wanted);
        ring.status = Some(status);
    }
}

#[test]
fn a_weight_that_can_not_be_read_leaves_the_ring_ready() {
    let found = weighed(&["shard 'a' counts with weight 1: why".into()]);
    let status = status(&snapshot(), &[], [found], None, at(1));
    let told: Vec<_> = status.conditions.iter().map(|it| (&*it.type_, &*it.status)).collect();
    assert_eq!(told, [(CONDITION_READY, "True"), ("WeightsValid", "False")]);
}

#[test]
fn a_lease_that_is_no_shards_is_named_and_leaves_the_ring_ready() {
    assert!(leased(&[]).holds);
    let told = leased(&["Lease 'a/lock': why".into()]);
    assert_eq!((told.type_, told.holds, &*told.message), ("LeasesValid", false, "Lease 'a/lock': why"));
}

#[test]
fn shared_names_are_told_once_every_shard_knows_whether_it_is_admitted() {
    assert_eq!(admitted(None, (false, &[])), None);
    let found = admitted(None, (true, &[])).unwrap();
    assert_eq!((found.holds, found.reason), (true, "Valid"));
    let before = status(&snapshot(), &[], [found], None, at(1));
    let found = admitted(Some(&before), (false, &["shard 's-0': why".into()])).unwrap();
    assert_eq!((found.holds, found.reason), (false, "SharedName"), "what was told is not taken back");
}

#[test]
fn a_shard_that_comes_and_goes_is_named() {
    let mut ring = snapshot();
    assert!(stable(&ring).holds);
    ring.members = ring.members.with_unstable(["a".parse().unwrap()].into());
    let told = stable(&ring);
    assert_eq!((told.type_, told.reason, told.holds), ("ShardsStable", "Unstable", false));
    assert!(told.message.starts_with("shard 'a' came back twice"), "{}", told.message);
}

#[test]
fn absent_controllers_are_named_once_they_last() {
    let of = |shard: &str, lasts| Absent { shard: shard.parse().unwrap(), since: at(0), lasts };
    let told = controllers(&[]).unwrap();
    assert_eq!((told.type_, told.holds, told.reason), ("ControllersWorking", true, "Working"));
    assert_eq!(controllers(&[of("a", false)]), None, "its pod may have begun just now");
    let told = controllers(&[of("a", false), of("b", true), of("c", true)]).unwrap();
    assert_eq!((told.holds, told.reason), (false, "ControllerAbsent"));
    let wanted = "controllers that do not work: that of shard 'b' since 1970-01-01T00:00:00Z; that of shard 'c' since";
    assert!(told.message.starts_with(wanted), "{}", told.message);
}

#[test]
fn what_is_wrong_is_one_sentence() {
    let ring = snapshot();
    assert!(worked_on(&ring).holds);
    let of = |shards: &[(&str, ShardState)]| worked_on(&snapshot_of(&ring_of(&example_spec()), shards));
    assert_eq!(of(&[]).reason, "NoShards");
    assert!(of(&[]).message.ends_with("see that its --ring is 'example'"));
    assert_eq!(of(&[("a", ShardState::Dead), ("b", ShardState::Orphaned)]).reason, "NoneAvailable");
    let configuration = |rules: usize| Standing::InPlace {
        since: tokio::time::Instant::now(),
        object: std::sync::Arc::new(
            serde_json::from_value(serde_json::json!({"metadata": {}, "webhooks": [{"rules": vec![1; rules]}]}))
                .unwrap(),
        ),
    };
    assert_eq!(reached(None, &configuration(1)), None);
    assert!(reached(Some(&Ok(())), &configuration(1)).unwrap().holds);
    assert!(!reached(Some(&Ok(())), &configuration(0)).unwrap().holds, "it is still out of the way");
    let why = "failed calling webhook: connection refused".to_owned();
    let refused = Standing::Refused { code: Some(403), why: why.clone() };
    assert_eq!(reached(None, &refused).unwrap().reason, "NotConfigured");
    let told = |rules| reached(Some(&Err(why.clone())), &configuration(rules)).unwrap().message;
    assert!(told(1).ends_with(&why) && !told(1).contains("not told to ask"));
    assert!(told(0).ends_with(&why) && told(0).contains("not told to ask"));
    for standing in [Standing::NotOurs { why: why.clone() }, Standing::Edited { why: why.clone() }] {
        assert!(!reached(Some(&Ok(())), &standing).unwrap().holds, "its own configuration is not in place");
    }
    assert!(in_time(&ring, &BTreeMap::new()).holds);
    assert!(weighed(&[]).holds);
    let unweighed = |shards: usize| {
        let faults = (0..shards).map(|shard| format!("shard 's-{shard}' counts with weight 1: why"));
        weighed(&faults.collect::<Vec<_>>())
    };
    assert_eq!(unweighed(1).message, "shard 's-0' counts with weight 1: why");
    assert!(unweighed(7).message.ends_with("shard 's-4' counts with weight 1: why; and 2 more"));
    let three = || Overdue { objects: 3, first: "default/o".into() };
    let late = |shards: usize| (0..shards).map(|shard| (format!("s-{shard}"), three())).collect();
    let told = in_time(&ring, &late(1)).message;
    let begins = "objects were not released within 60 s: shard 's-0' of 3, such as 'default/o'. They stay with it, and";
    assert!(told.starts_with(begins), "{told}");
    let told = in_time(&ring, &late(7)).message;
    assert!(told.contains("shard 's-4' of 3, such as 'default/o'; and 2 more shards."), "{told}");
    assert!(children_written(&BTreeMap::new()).holds);
}

#[test]
fn counts_stay_until_there_are_others() {
    let mut ring = snapshot();
    let counts = |assigned| Some(ObjectCounts { assigned, ..ObjectCounts::default() });
    ring.status = Some(status(&ring, &[], [], counts(7), at(1)));
    assert_eq!(status(&ring, &[], [], None, at(2)).objects, counts(7));
    assert_eq!(status(&ring, &[], [], counts(8), at(2)).objects, counts(8));
}

#[test]
fn objects_that_no_shard_sees_are_told_and_leave_the_ring_ready() {
    let of = |name: &str| GroupResource { group: String::new(), resource: name.into() };
    let lone = |controllers: &[bool]| {
        let count = |of: bool| controllers.iter().filter(|has_one| **has_one == of).count() as u64;
        Lone { uncontrolled: count(false), foreign: count(true), example: Some("o-1".into()), ..Lone::default() }
    };
    let told = |secrets: &[bool]| controlled(&[(of("configmaps"), lone(&[])), (of("secrets"), lone(secrets))].into());
    let (none, foreign, both) = (told(&[]), told(&[true]), told(&[true, false]));
    assert_eq!(
        (none.holds, none.reason, foreign.holds, foreign.reason),
        (true, "AllControlled", true, "ControlledByOthers")
    );
    assert_eq!((both.holds, both.reason), (false, LONE_OBJECTS));
    assert!(
        both.message.contains(": of 'secrets' 1 without a controller and 1 with one outside the ring, such as 'o-1';"),
        "{}",
        both.message
    );
    assert!(!both.message.contains("configmaps"));
    let ready = &status(&snapshot(), &[], [both], None, at(1)).conditions[0];
    assert_eq!((&*ready.type_, &*ready.status), (CONDITION_READY, "True"));
}

#[test]
fn lone_objects_stay_told_until_they_were_looked_for_again() {
    let mut ring = snapshot();
    let counts = |lone| Some(ObjectCounts { lone, ..ObjectCounts::default() });
    ring.status = Some(status(&ring, &[], [], counts(Some(7)), at(1)));
    for (found, told) in [(None, Some(7)), (Some(0), Some(0))] {
        assert_eq!(status(&ring, &[], [], counts(found), at(2)).objects.unwrap().lone, told);
    }
}
