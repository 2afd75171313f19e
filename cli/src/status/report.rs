//! How a ring is, from its object and the Leases of its replicas.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::Condition};
use ringside_ring::{
    Controller, Members, Ring,
    cluster_ring::{CONDITION_READY, Fence},
    lease::ShardState,
};
use ringside_sharder::doing::Doing;
use serde::{Serialize, Serializer};

use crate::rings::{Replica, members, objects_of, replicas};

/// How long an object may be without replica before the ring is unhealthy: assignments take moments.
const UNASSIGNED_SECONDS: i64 = 60;
/// Conditions that say that objects wait or that a promise does not hold. The others cost time, or tell of a wrong entry.
const FAULTS: [&str; 8] = [
    CONDITION_READY,
    "ShardsAvailable",
    "Fenced",
    "ShardsAdmitted",
    "ControllersWorking",
    "PodsInjected",
    "DrainsInTime",
    "ShardsStable",
];

/// All that is shown.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) rings: Vec<RingReport>,
    /// What the sharder's leader is doing, where that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) moves: Option<Doing>,
}

impl Report {
    pub(super) fn is_healthy(&self) -> bool {
        self.rings.iter().all(|ring| ring.healthy)
    }
}

/// How a ring is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RingReport {
    pub(super) name: String,
    pub(super) healthy: bool,
    pub(super) ready: Option<bool>,
    pub(super) available_replicas: i32,
    /// None where no Leases were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) all_replicas: Option<usize>,
    /// None before the sharder counted them.
    pub(super) objects: Option<Objects>,
    pub(super) fence: Fence,
    /// Conditions that are false, the worst first.
    pub(super) problems: Vec<Problem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replicas: Option<Vec<ReplicaReport>>,
}

/// The objects of a ring.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Objects {
    pub(super) all: i64,
    pub(super) without_owner: i64,
    pub(super) without_owner_seconds: Option<i64>,
    pub(super) moving: i64,
    pub(super) moving_seconds: Option<i64>,
}

/// A condition that is false.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Problem {
    pub(super) condition: String,
    pub(super) reason: String,
    pub(super) message: String,
    /// For how long it has been false.
    pub(super) seconds: i64,
    /// Whether it makes the ring unhealthy.
    pub(super) fault: bool,
}

/// How a replica is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReplicaReport {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) state: &'static str,
    #[serde(serialize_with = "as_said")]
    pub(super) controller: Controller,
    pub(super) weight: String,
    pub(super) drained: bool,
    pub(super) objects: Option<i64>,
    /// Of all objects of the ring, in percent.
    pub(super) share: Option<i64>,
    pub(super) moving_out: Option<usize>,
    pub(super) version: Option<String>,
    pub(super) safe_to_delete: Safe,
}

/// Whether a Pod may be deleted without objects waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Safe {
    /// Other replicas take what it has.
    Yes,
    /// It has nothing.
    HasNone,
    /// Its objects would wait: no other replica works.
    LastOne,
}

/// Reports on a ring; `moving` has the objects that each replica is asked to release.
pub(super) fn of_ring(
    ring: &Ring,
    leases: Option<&[Lease]>,
    moving: Option<&BTreeMap<String, usize>>,
    now: Timestamp,
) -> RingReport {
    let status = ring.status.clone().unwrap_or_default();
    let seconds = |since: Option<Timestamp>| since.map(|since| now.as_second() - since.as_second());
    let objects = status.objects.as_ref().map(|counts| Objects {
        all: counts.assigned + counts.unassigned,
        without_owner: counts.unassigned,
        without_owner_seconds: seconds(counts.unassigned_since.as_ref().map(|since| since.0)),
        moving: counts.draining,
        moving_seconds: seconds(counts.draining_since.as_ref().map(|since| since.0)),
    });
    let mut problems: Vec<_> =
        status.conditions.iter().filter(|it| it.status == "False").map(|it| problem(it, now)).collect();
    problems.sort_by_key(|problem| FAULTS.iter().position(|fault| *fault == problem.condition).unwrap_or(FAULTS.len()));
    let ready = status.conditions.iter().find(|it| it.type_ == CONDITION_READY).map(|it| it.status == "True");
    let waiting = objects.as_ref().and_then(|it| it.without_owner_seconds.filter(|_| it.without_owner > 0));
    let healthy = ready == Some(true)
        && status.available_shards > 0
        && !problems.iter().any(|problem| problem.fault)
        && waiting.is_none_or(|seconds| seconds < UNASSIGNED_SECONDS);
    let replicas = leases.map(|leases| {
        let replicas = replicas(ring, leases);
        let members = members(&replicas);
        let all = objects.as_ref().map_or(0, |objects| objects.all);
        // Leases of Pods that are gone stay for a while.
        let is_moving = |it: &Replica| moving.is_some_and(|moving| moving.contains_key(it.name.as_str()));
        let shown = replicas.iter().filter(|it| it.state.is_available() || is_moving(it));
        let each = shown.map(|replica| {
            let has = status.objects.as_ref().and_then(|counts| objects_of(counts, replica.name.as_str()));
            let moving = moving.map(|moving| moving.get(replica.name.as_str()).copied().unwrap_or(0));
            // Objects of a group go to its replicas alone.
            let alike =
                if ring.spec.groups.is_empty() { members.clone() } else { members.among(replica.group.as_deref()) };
            of_replica(replica, &alike, (has, all), moving)
        });
        each.collect::<Vec<_>>()
    });
    RingReport {
        name: ring.name().map_or_else(|_| ring.metadata.name.clone().unwrap_or_default(), |name| name.to_string()),
        healthy,
        ready,
        available_replicas: status.available_shards,
        all_replicas: replicas.as_ref().map(Vec::len),
        objects,
        fence: ring.spec.fence,
        problems,
        replicas,
    }
}

fn problem(condition: &Condition, now: Timestamp) -> Problem {
    let Condition { type_, reason, message, last_transition_time, .. } = condition.clone();
    let seconds = now.as_second() - last_transition_time.0.as_second();
    Problem { fault: FAULTS.contains(&&*type_), condition: type_, reason, message, seconds }
}

/// As it stands on the Lease.
fn as_said<S: Serializer>(controller: &Controller, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(controller.as_str())
}

fn of_replica(
    replica: &Replica,
    members: &Members,
    (objects, all): (Option<i64>, i64),
    moving_out: Option<usize>,
) -> ReplicaReport {
    ReplicaReport {
        name: replica.name.to_string(),
        namespace: replica.namespace.clone(),
        state: replica.state.as_str(),
        controller: replica.controller,
        weight: replica.weight.to_string(),
        drained: replica.drained,
        objects,
        share: objects.filter(|_| all > 0).map(|objects| (objects * 100 + all / 2) / all),
        moving_out,
        version: replica.version.clone(),
        safe_to_delete: safe(replica, members, objects),
    }
}

fn safe(replica: &Replica, members: &Members, objects: Option<i64>) -> Safe {
    let takes = |rest: &Members| {
        rest.iter().any(|(shard, state)| state == ShardState::Ready && rest.may_take_over(shard.as_str()))
    };
    if !replica.state.is_available() || objects == Some(0) {
        return Safe::HasNone;
    }
    if members.clone().without(&replica.name).as_ref().is_some_and(takes) { Safe::Yes } else { Safe::LastOne }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;
    use crate::rings::tests::lease;

    fn ring(conditions: &Value, objects: &Value) -> Ring {
        let conditions: Vec<Value> = conditions
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, status)| {
                json!({"type": name, "status": status, "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing", "metadata": {"name": "websites"},
            "spec": {"resources": [{"group": "web.example.com", "resource": "websites"}]},
            "status": {"shards": 2, "availableShards": 2, "conditions": conditions, "objects": objects},
        }))
        .unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    const NOW: &str = "2026-01-01T00:01:30Z";

    fn counts() -> Value {
        json!({"assigned": 3, "unassigned": 1, "unassignedSince": "2026-01-01T00:01:00Z", "draining": 1,
            "drainingSince": "2026-01-01T00:01:27Z", "shards": [{"name": "a", "objects": 3}]})
    }

    #[test]
    fn a_ring_is_healthy_until_an_object_waits_too_long() {
        let ring = ring(&json!({"Ready": "True", "LabelsProtected": "False"}), &counts());
        let report = of_ring(&ring, None, None, at(NOW));
        let objects = report.objects.as_ref().unwrap();
        assert_eq!((objects.all, objects.without_owner, objects.moving_seconds), (4, 1, Some(3)));
        assert!(report.healthy, "{:?} is a warning", report.problems);
        assert!(!of_ring(&ring, None, None, at("2026-01-01T00:02:00Z")).healthy);
    }

    #[test]
    fn the_worst_condition_is_first_and_a_fault_is_unhealthy() {
        let conditions = json!({"LabelsProtected": "False", "Ready": "True", "DrainsInTime": "False"});
        let report = of_ring(&ring(&conditions, &counts()), None, None, at(NOW));
        assert_eq!((report.problems[0].condition.as_str(), report.healthy), ("DrainsInTime", false));
        assert_eq!(report.problems[0].seconds, 90);
        assert!(!of_ring(&ring(&json!({}), &counts()), None, None, at(NOW)).healthy, "the sharder has not said Ready");
    }

    #[test]
    fn replicas_are_shown_with_what_they_have_and_whether_they_may_go() {
        let leases = |other: &str| [lease("a", "ready", &json!({})), lease("b", other, &json!({}))];
        let moving = [("a".to_owned(), 1)].into();
        let of = |leases: &[Lease]| {
            let ring = ring(&json!({"Ready": "True"}), &counts());
            of_ring(&ring, Some(leases), Some(&moving), at(NOW)).replicas.unwrap()
        };
        let two = of(&leases("ready"));
        assert_eq!((two[0].objects, two[0].share, two[0].moving_out), (Some(3), Some(75), Some(1)));
        assert_eq!((two[0].safe_to_delete, two[1].safe_to_delete), (Safe::Yes, Safe::HasNone));
        assert_eq!(of(&leases("dead"))[0].safe_to_delete, Safe::LastOne);
    }
}
