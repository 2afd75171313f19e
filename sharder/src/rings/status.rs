//! The status of a ring: how many shards it has, and whether it was set up as its spec asks.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use ringside_ring::cluster_ring::{CONDITION_READY, ClusterRingStatus, MESSAGE_SUCCEEDED, REASON_SUCCEEDED};

use crate::{fence::Report, snapshot::Snapshot};

/// The reason in the condition when something could not be set up.
const REASON_FAILED: &str = "ReconciliationFailed";
/// The type of the condition that says whether the API server's fence is in place, where the ring asks for it.
const CONDITION_FENCED: &str = "Fenced";

/// What is found out about one aspect of a ring: a condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) type_: &'static str,
    pub(super) holds: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The status that the ring should have; `problems` are those of carrying it out, besides those of the snapshot.
pub(super) fn status(
    snapshot: &Snapshot,
    problems: &[String],
    findings: impl IntoIterator<Item = Finding>,
    now: Timestamp,
) -> ClusterRingStatus {
    let before = snapshot.status.clone().unwrap_or_default();
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    // Conditions that others set stay as they are.
    let mut conditions = before.conditions;
    let findings: Vec<_> = findings.into_iter().collect();
    conditions.retain(|it| it.type_ != CONDITION_FENCED || findings.iter().any(|found| found.type_ == it.type_));
    for finding in std::iter::once(ready(snapshot, problems)).chain(findings) {
        set(&mut conditions, finding, snapshot.generation, now);
    }
    ClusterRingStatus {
        observed_generation: snapshot.generation,
        shards: count(snapshot.members.len()),
        available_shards: count(snapshot.members.available().count()),
        conditions,
    }
}

/// Nothing where the ring leaves it to the shards themselves.
pub(super) fn fenced_by(fence: &Report) -> Option<Finding> {
    let (holds, reason, message) = match fence {
        Report::Unasked => return None,
        Report::InPlace => {
            (true, "InPlace", "the API server refuses what a shard writes to others' objects".to_owned())
        }
        Report::Pending => (false, "Pending", "the policy may not act everywhere yet".to_owned()),
        Report::Leaky(shards) => (false, "ShardsOutside", shards.join("; ")),
        Report::Impossible(fault) => (false, "Impossible", fault.clone()),
    };
    Some(Finding { type_: CONDITION_FENCED, holds, reason, message })
}

fn ready(snapshot: &Snapshot, problems: &[String]) -> Finding {
    let problems: Vec<_> = snapshot.problems.iter().chain(problems).map(String::as_str).collect();
    let (holds, reason, message) = match &*problems {
        [] => (true, REASON_SUCCEEDED, MESSAGE_SUCCEEDED.to_owned()),
        some => (false, REASON_FAILED, some.join("; ")),
    };
    Finding { type_: CONDITION_READY, holds, reason, message }
}

fn set(conditions: &mut Vec<Condition>, finding: Finding, generation: i64, now: Timestamp) {
    let status = if finding.holds { "True" } else { "False" };
    let before = conditions.iter_mut().find(|condition| condition.type_ == finding.type_);
    let same = before.as_ref().filter(|condition| condition.status == status);
    let condition = Condition {
        type_: finding.type_.to_owned(),
        status: status.to_owned(),
        reason: finding.reason.to_owned(),
        message: finding.message,
        observed_generation: Some(generation),
        // When the status became what it is, not when it was last looked at.
        last_transition_time: same.map_or(Time(now), |condition| condition.last_transition_time.clone()),
    };
    match before {
        Some(before) => *before = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::snapshot::tests::snapshot;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_ring_that_is_set_up_is_ready() {
        let status = status(&snapshot(), &[], [], at(1));
        let ready = &status.conditions[0];
        assert_eq!((status.shards, status.available_shards, status.observed_generation), (3, 2, 1));
        assert_eq!((&*ready.status, &*ready.reason, &*ready.message), ("True", REASON_SUCCEEDED, MESSAGE_SUCCEEDED));
    }

    #[test]
    fn the_status_stays_the_same_while_nothing_changes() {
        let mut ring = snapshot();
        let first = status(&ring, &[], [], at(1));
        ring.status = Some(first.clone());
        assert_eq!(status(&ring, &[], [], at(2)), first);
    }

    #[test]
    fn a_problem_is_told_and_dated_and_other_conditions_are_kept() {
        let mut ring = snapshot();
        let mut before = status(&ring, &[], [], at(1));
        let foreign = Condition { type_: "Audited".into(), ..before.conditions[0].clone() };
        before.conditions.insert(0, foreign.clone());
        ring.status = Some(before);
        ring.problems = vec!["resource 'websites' is not served".into()];
        let after = status(&ring, &["no permission".into()], [], at(5));
        assert_eq!(after.conditions[0], foreign);
        let ready = &after.conditions[1];
        assert_eq!((&*ready.status, ready.last_transition_time.0), ("False", at(5)));
        assert_eq!(ready.message, "resource 'websites' is not served; no permission");
    }

    #[test]
    fn what_is_found_out_has_a_condition_of_its_own() {
        let finding = |holds| Finding { type_: "LabelsProtected", holds, reason: "SoIt", message: "is".to_owned() };
        let mut ring = snapshot();
        ring.status = Some(status(&ring, &[], [finding(false)], at(1)));
        let after = status(&ring, &["no permission".into()], [finding(true)], at(5));
        let told: Vec<_> =
            after.conditions.iter().map(|it| (&*it.type_, &*it.status, it.last_transition_time.0)).collect();
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
            let status = status(&ring, &[], fenced_by(&report), at(1));
            assert_eq!(of(&status), wanted);
            ring.status = Some(status);
        }
    }
}
