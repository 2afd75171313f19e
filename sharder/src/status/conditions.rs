//! The status of a ring: how many shards it has, and whether it was set up as its spec asks.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use ringside_ring::{
    RingKind,
    cluster_ring::{
        CONDITION_ADMITTED, CONDITION_READY, ClusterRingStatus, GroupResource, ObjectCounts, REASON_SUCCEEDED,
    },
};

use super::{announce::PENDING, reconcile::lasts, webhook_configuration::asks};
use crate::{
    drains::Overdue,
    failed_moves::Failed,
    fence::Report,
    index::Lone,
    injector::pods::Uninjected,
    keep::{Standing, additions::added},
    leases::Absent,
    metrics::CONDITION_MOVES,
    snapshot::Snapshot,
};

/// The reason in the condition when something could not be set up.
const REASON_FAILED: &str = "ReconciliationFailed";
/// The type of the condition that says whether the API server's fence is in place, where the ring asks for it.
const CONDITION_FENCED: &str = "Fenced";

/// The type of the condition that says whether Pods have the proxy that they ask for, where the sharder adds it.
const CONDITION_INJECTED: &str = "PodsInjected";

/// The reason in the condition while there are objects without a controller, which may be so for good.
pub(super) const LONE_OBJECTS: &str = "LoneObjects";

/// What to do about a controller that does not work.
const REMEDY: &str = "while those of half the shards work, their objects go there: see why the container is not running in these \
    pods, does not watch the ring's resources (--controller=always if it only asks now and then), or waits for a lock, which \
    /readyz of its proxy names";

/// Shards, or other things, that are named in one sentence at most.
const NAMED: usize = 5;

/// What is found out about one aspect of a ring: a condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) type_: &'static str,
    pub(super) holds: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The status that a ring should have that is told to be as `before`; `problems` are those of carrying it out, besides those
/// of the snapshot. Without counts of its objects those that are told already stay.
pub(super) fn status(
    snapshot: &Snapshot,
    before: Option<&ClusterRingStatus>,
    problems: &[String],
    findings: impl IntoIterator<Item = Finding>,
    objects: Option<ObjectCounts>,
    now: Timestamp,
) -> ClusterRingStatus {
    let before = before.cloned().unwrap_or_default();
    let lone_before = before.objects.as_ref().and_then(|objects| objects.lone);
    let objects = objects.map(|now| ObjectCounts { lone: now.lone.or(lone_before), ..now });
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
        shard_namespaces: before.shard_namespaces,
        shards: count(snapshot.members.len()),
        available_shards: count(snapshot.members.available().count()),
        objects: objects.or(before.objects),
        conditions,
        resources: before.resources,
        filtered: before.filtered,
    }
}

/// Whether any shard works on the objects.
pub(super) fn worked_on(snapshot: &Snapshot) -> Finding {
    let (all, available) = (snapshot.members.len(), snapshot.members.available().count());
    let (holds, reason, message) = match (all, available) {
        (0, _) => (
            false,
            "NoShards",
            format!(
                "no shard has a Lease in this ring, so its objects are not worked on: start the controller with its proxy, and see that its --ring is '{}'",
                snapshot.ring
            ),
        ),
        (all, 0) => (
            false,
            "NoneAvailable",
            format!(
                "none of {all} shards holds its Lease any more, so the objects are not worked on: look at the controller's pods"
            ),
        ),
        _ => (true, "Available", "there are shards that work on the objects".to_owned()),
    };
    Finding { type_: "ShardsAvailable", holds, reason, message }
}

/// Whether objects move between shards that work.
pub(super) fn moves(snapshot: &Snapshot) -> Finding {
    let (reason, message) = match snapshot.spec.paused {
        false => ("Enabled", "objects move to the shards where they belong".to_owned()),
        true => (
            "Paused",
            format!(
                "spec.paused is set: objects of shards that work stay there; new objects are assigned, and those of shards that are gone taken over; end it with `ringside resume {}`",
                snapshot.ring
            ),
        ),
    };
    Finding { type_: CONDITION_MOVES, holds: !snapshot.spec.paused, reason, message }
}

/// Whether the API server asks the webhook about the ring: it has to reach it, and to be told. Nothing while that is not known.
pub(super) fn reached(reach: Option<&Result<(), String>>, configuration: &Standing) -> Option<Finding> {
    const LATE: &str = "so objects are assigned a moment after they are created, not with it";
    let (holds, reason, message) = match (configuration, reach) {
        (Standing::NotOurs { why }, _) => (false, "NotOurs", format!("the webhook is not asked, {LATE}: {why}")),
        (Standing::Edited { why }, _) => (false, "Edited", format!("the webhook may not be asked, {LATE}: {why}")),
        (_, Some(Err(why))) => {
            let asked = match configuration {
                Standing::InPlace { object, .. } if !asks(object) => ", and is not told to ask it until it does",
                _ => "",
            };
            (false, "NotReached", format!("the API server does not reach the webhook{asked}, {LATE}: {why}"))
        }
        (Standing::Refused { why, code }, _) if lasts(*code) => {
            (false, "NotConfigured", format!("the webhook can't be configured, {LATE}: {why}"))
        }
        (Standing::InPlace { object, .. }, Some(Ok(()))) => match &*added(object) {
            _ if !asks(object) => {
                let message =
                    "the webhook was out of reach: the API server is told to ask it again after some more probes";
                (false, "OutOfTheWay", format!("{message}, {LATE}"))
            }
            [] => (true, "Reached", "the API server reaches the webhook".to_owned()),
            added => {
                let added = added.join(", ");
                let message =
                    "others have added conditions to its configuration; what they leave out is assigned a moment later";
                (true, "Narrowed", format!("the API server reaches the webhook, but {message}: {added}"))
            }
        },
        _ => return None,
    };
    Some(Finding { type_: "WebhookReachable", holds, reason, message })
}

/// Whether the weights of all shards can be read. One that can't makes the ring no less ready: its shard counts like
/// any other. A client that may write one Lease must not raise the alarm of a whole ring.
pub(super) fn weighed(faults: &[String]) -> Finding {
    without("WeightsValid", "InvalidWeight", faults, "every weight that a shard's Lease has is a number")
}

/// Whether every Lease with the ring's label is one of a shard that can be used as it is.
pub(super) fn leased(faults: &[String]) -> Finding {
    without("LeasesValid", "InvalidLease", faults, "every Lease with the ring's label is a shard's")
}

/// Whether each name is one shard's; nothing while shards work that do not know whether they are admitted. A proxy that is not
/// told closes as soon as the ring says that this is done, so that is said when all are.
pub(super) fn admitted(before: Option<&ClusterRingStatus>, (all_told, shared): (bool, &[String])) -> Option<Finding> {
    let is_said = before.is_some_and(ClusterRingStatus::admits_instances);
    let valid = "every shard has a name of its own";
    (all_told || is_said).then(|| without(CONDITION_ADMITTED, "SharedName", shared, valid))
}

/// The same status where the sharder adds the proxy to no Pod any more.
pub(super) fn without_injector(mut status: ClusterRingStatus) -> ClusterRingStatus {
    status.conditions.retain(|it| it.type_ != CONDITION_INJECTED);
    status
}

/// Whether each Pod that asks for the ring's proxy has it; nothing before the first look.
pub(super) fn injected(found: Option<&Uninjected>) -> Option<Finding> {
    let Uninjected { pods, unread } = found?;
    let (holds, reason, message) = match (pods.is_empty(), unread.is_empty()) {
        (true, true) => (true, "Injected", "each Pod that asks for the proxy has it".to_owned()),
        (false, _) => (
            false,
            "WithoutProxy",
            format!(
                "these Pods ask for the proxy and run without it, so their controllers may work on all objects: {}; delete them while the condition WebhookReachable is True",
                some_of(pods)
            ),
        ),
        (true, false) => (
            false,
            "NotLookedAt",
            format!(
                "it is not known whether Pods run without the proxy that they ask for: {}; apply what `ringside rbac` prints for the ring",
                some_of(unread)
            ),
        ),
    };
    Some(Finding { type_: CONDITION_INJECTED, holds, reason, message })
}

/// Whether no shard comes and goes.
pub(super) fn stable(snapshot: &Snapshot) -> Finding {
    let told = |shard| format!("shard '{shard}' came back twice in ten minutes, so nothing is moved to it for a while");
    let faults: Vec<_> = snapshot.members.unstable().iter().map(told).collect();
    without("ShardsStable", "Unstable", &faults, "no shard comes and goes")
}

/// Whether the controllers of all shards work. Nothing while that of a shard may only be about to start: what was said before
/// stays.
pub(super) fn controllers(absent: &[Absent]) -> Option<Finding> {
    let told = |it: &Absent| format!("that of shard '{}' since {:.0}", it.shard, it.since);
    let lasting: Vec<_> = absent.iter().filter(|it| it.lasts).map(told).collect();
    if lasting.is_empty() && !absent.is_empty() {
        return None;
    }
    let works = "the controller of every shard works";
    let found = without("ControllersWorking", "ControllerAbsent", &lasting, works);
    Some(match found.holds {
        true => Finding { reason: "Working", ..found },
        false => Finding { message: format!("controllers that do not work: {}; {REMEDY}", found.message), ..found },
    })
}

/// Whether there are no faults of a kind; some of them are named.
fn without(type_: &'static str, reason: &'static str, faults: &[String], valid: &str) -> Finding {
    if faults.is_empty() {
        return Finding { type_, holds: true, reason: "Valid", message: valid.to_owned() };
    }
    Finding { type_, holds: false, reason, message: some_of(faults) }
}

/// Names as many as one sentence can have.
fn some_of<'a>(all: impl IntoIterator<Item = &'a String, IntoIter: ExactSizeIterator>) -> String {
    let all = all.into_iter();
    let more = all.len().saturating_sub(NAMED);
    let named = all.take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    if more > 0 { format!("{named}; and {more} more") } else { named }
}

/// Whether the shards release in time what they are asked to.
pub(super) fn in_time(snapshot: &Snapshot, overdue: &BTreeMap<String, Overdue>) -> Finding {
    let (type_, deadline) = ("DrainsInTime", snapshot.spec.drain_deadline().as_secs());
    if overdue.is_empty() {
        let message = "every shard releases in time what it is asked to".to_owned();
        return Finding { type_, holds: true, reason: "InTime", message };
    }
    let named = overdue
        .iter()
        .take(NAMED)
        .map(|(shard, Overdue { objects, first })| format!("shard '{shard}' of {objects}, such as '{first}'"));
    let mut late = named.collect::<Vec<_>>().join("; ");
    if overdue.len() > NAMED {
        late = format!("{late}; and {} more shards", overdue.len() - NAMED);
    }
    let message = format!(
        "objects were not released within {deadline} s: {late}. They stay with it, and few others are asked for: look at its proxy, whose log says why; end its pod; or let the API server fence the ring (fence: APIServer)"
    );
    Finding { type_, holds: false, reason: "DrainOverdue", message }
}

/// Whether the children of objects that move can be written. They are told from the first on that is refused.
pub(super) fn children_written(refused: &BTreeMap<GroupResource, Failed>) -> Finding {
    let told = |(resource, Failed { objects, place, why, holds_back, .. }): (&GroupResource, &Failed)| {
        let owners: usize = objects.values().sum();
        let held_back = if *holds_back { "; others with such children are moved one a minute" } else { "" };
        let why = why.as_deref().unwrap_or_default();
        format!(
            "'{resource}' of {owners} objects, such as '{place}', can't be written, so these objects stay with their shards, or are \
             without them: {why}{held_back}"
        )
    };
    let faults: Vec<_> = refused.iter().map(told).collect();
    without("ChildrenWritten", "ChildrenRefused", &faults, "every child of an object that moves can be written")
}

/// Whether each object of a controlled resource has a controller of the ring. Many a cluster has others for good: that makes the
/// ring no less ready. Those whose controller is outside the ring are told, and are most likely no business of the ring's.
pub(super) fn controlled(lone: &BTreeMap<GroupResource, Lone>) -> Finding {
    let some = || lone.iter().filter(|(_, lone)| lone.objects() > 0);
    let (holds, reason) = match () {
        () if some().any(|(_, lone)| lone.uncontrolled > 0) => (false, LONE_OBJECTS),
        () if some().next().is_some() => (true, "ControlledByOthers"),
        () => (true, "AllControlled"),
    };
    let mut message = "each object of a controlled resource has a controller of the ring".to_owned();
    if some().next().is_some() {
        let all: Vec<_> = some().map(|(resource, lone)| format!("of '{resource}' {lone}")).collect();
        let named = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
        let more =
            if all.len() > NAMED { format!("; and {} more resources", all.len() - NAMED) } else { String::new() };
        message = format!(
            "no shard sees objects that no object of the ring controls: {named}{more}; if the controller needs them, take the resource out of controlledResources"
        );
    }
    Finding { type_: "ChildrenHaveControllers", holds, reason, message }
}

/// Nothing where the ring leaves it to the shards themselves.
pub(super) fn fenced_by(fence: &Report) -> Option<Finding> {
    let (holds, reason, message) = match fence {
        Report::Unasked => return None,
        Report::InPlace => {
            (true, "InPlace", "the API server refuses what a shard writes to others' objects".to_owned())
        }
        Report::Pending => (false, PENDING, "the policy may not act everywhere yet".to_owned()),
        Report::Leaky(shards) => (false, "ShardsOutside", shards.join("; ")),
        Report::Impossible(fault) => (false, "Impossible", fault.clone()),
    };
    Some(Finding { type_: CONDITION_FENCED, holds, reason, message })
}

/// The message of a ring that was set up (CONTRACT, "ClusterRing").
fn succeeded(kind: RingKind) -> String {
    format!("{kind} was successfully reconciled")
}

fn ready(snapshot: &Snapshot, problems: &[String]) -> Finding {
    let problems: Vec<_> = snapshot.problems.iter().chain(problems).map(String::as_str).collect();
    let (holds, reason, message) = match &*problems {
        [] => (true, REASON_SUCCEEDED, succeeded(snapshot.ring.kind())),
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
mod tests;
