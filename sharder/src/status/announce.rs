//! What happens to a ring, as Events on it and on the Leases of its shards: shards that come and go, and conditions that
//! begin and cease to hold.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use ringside_ring::cluster_ring::{ClusterRingStatus, NAMED_SHARDS};
use tokio::time::{Duration, Instant};

use super::conditions::LONE_OBJECTS;
use crate::{
    drains::Overdue,
    faults::Faults,
    leases::Leases,
    notices::{Notice, Notices},
    snapshot::Snapshot,
};

/// The reason of a condition that is about to hold.
pub(super) const PENDING: &str = "Pending";

/// How soon the next object is told of that is refused: there may be thousands.
const REFUSAL_PAUSE: Duration = Duration::from_secs(6);

/// Tells of one ring.
pub(super) struct Announcer {
    notices: Notices,
    leases: Leases,
    /// Who took part when it was looked at last.
    before: Option<BTreeSet<String>>,
    /// Shards that were late when it was looked at last.
    late: BTreeSet<String>,
    /// When it was told of an object that is refused.
    refusal: Option<Instant>,
}

impl Announcer {
    /// Nothing told yet.
    pub(super) fn new(notices: Notices, leases: Leases) -> Self {
        Self { notices, leases, before: None, late: BTreeSet::new(), refusal: None }
    }

    /// Tells which shards take part now that did not before, and which don't any more. At first, that is since a leader
    /// before this one wrote the status. What changed while no replica led is told as well.
    pub(super) fn members(&mut self, snapshot: &Snapshot) {
        let now = snapshot.members.available().map(ToString::to_string).collect();
        let Some(before) = self.before.replace(now).or_else(|| told_before(snapshot)) else { return };
        let available = snapshot.members.available().count();
        for shard in snapshot.members.available().filter(|shard| !before.contains(shard.as_str())) {
            let note = format!("shard '{shard}' takes part, as one of {available}");
            let notice = Notice { warns: false, reason: "ShardJoined".to_owned(), action: "Join", note };
            self.tell(snapshot, shard.as_str(), notice);
        }
        for shard in before.iter().filter(|shard| !snapshot.members.is_available(shard)) {
            let why = match snapshot.members.state(shard) {
                Some(state) => format!("its Lease is {state}"),
                None => "it has no Lease any more".to_owned(),
            };
            let note = format!("shard '{shard}' no longer takes part: {why}; {available} are left");
            self.tell(snapshot, shard, Notice { warns: false, reason: "ShardLeft".to_owned(), action: "Leave", note });
        }
    }

    /// Tells which shards have become late to release objects, on their Leases; the ring has a condition.
    pub(super) fn overdue(&mut self, snapshot: &Snapshot, overdue: &BTreeMap<String, Overdue>) {
        let deadline = snapshot.spec.drain_deadline().as_secs();
        for (shard, Overdue { objects, first }) in overdue.iter().filter(|(shard, _)| !self.late.contains(*shard)) {
            let Some(lease) = self.leases.reference(&snapshot.ring, shard) else { continue };
            let note = format!(
                "{objects} objects of {} were not released within {deadline} s, such as '{first}'; look at the shard's proxy, or end its pod",
                snapshot.ring.titled()
            );
            let notice = Notice { warns: true, reason: "DrainOverdue".to_owned(), action: "Drain", note };
            self.notices.tell(lease, Some(snapshot.reference()), notice);
        }
        self.late = overdue.keys().cloned().collect();
    }

    /// Tells why an object gets no shard, on the object itself: of each version once, and of one after the other.
    pub(super) fn refused(&mut self, snapshot: &Snapshot, faults: &Faults) {
        if self.refusal.is_some_and(|at| at.elapsed() < REFUSAL_PAUSE) {
            return;
        }
        let Some((object, why)) = faults.take_untold(snapshot) else { return };
        self.refusal = Some(Instant::now());
        let note =
            format!("the labels of {} can't be written, so its shard does not change: {why}", snapshot.ring.titled());
        let notice = Notice { warns: true, reason: "LabelsRefused".to_owned(), action: "Assign", note };
        self.notices.tell(object, Some(snapshot.reference()), notice);
    }

    /// Tells which conditions hold that did not, which don't hold any more, and what else is wrong with one that does not.
    pub(super) fn conditions(&self, snapshot: &Snapshot, before: Option<&ClusterRingStatus>, told: &ClusterRingStatus) {
        let before = before.map(|status| &*status.conditions).unwrap_or_default();
        for condition in &told.conditions {
            let before = before.iter().find(|before| before.type_ == condition.type_);
            if let Some(notice) = notice(before, condition) {
                self.notices.tell(snapshot.reference(), None, notice);
            }
        }
    }

    fn tell(&self, snapshot: &Snapshot, shard: &str, notice: Notice) {
        let lease = self.leases.reference(&snapshot.ring, shard);
        self.notices.tell(snapshot.reference(), lease, notice);
    }
}

/// Who took part when the status was written that is stored, if that lists all of them.
fn told_before(snapshot: &Snapshot) -> Option<BTreeSet<String>> {
    let shards = &snapshot.status.as_ref()?.objects.as_ref()?.shards;
    (shards.len() < NAMED_SHARDS).then(|| shards.iter().map(|shard| shard.name.clone()).collect())
}

/// What is to be told about a condition.
fn notice(before: Option<&Condition>, now: &Condition) -> Option<Notice> {
    let holds = now.status == "True";
    let is_same = |before: &Condition| holds || now.reason == LONE_OBJECTS || before.message == now.message;
    let same = before.is_some_and(|before| before.status == now.status && is_same(before));
    if same || now.reason == PENDING || (before.is_none() && holds) {
        return None;
    }
    let note = format!("{}: {}", now.type_, now.message);
    Some(Notice { warns: !holds, reason: now.reason.clone(), action: "Report", note })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use http::Method;
    use ringside_ring::lease::ShardState::{Dead, Ready};

    use super::*;
    use crate::{
        fixtures::FakeApi,
        leases::tests::held_by,
        snapshot::tests::{example_spec, ring, snapshot_of},
    };

    fn condition(status: &str, message: &str) -> Condition {
        serde_json::from_value(serde_json::json!({"type": "WebhookReachable", "status": status, "reason": "Why",
            "message": message, "lastTransitionTime": "2030-01-01T00:00:00Z"}))
        .unwrap()
    }

    #[test]
    fn a_condition_is_told_when_it_changes_and_while_something_else_is_wrong() {
        let told = |before: Option<Condition>, now: &Condition| notice(before.as_ref(), now).map(|notice| notice.warns);
        let (well, bad, worse) = (condition("True", "yes"), condition("False", "this"), condition("False", "that"));
        assert_eq!(told(None, &well), None, "a new ring is well");
        assert_eq!(told(None, &bad), Some(true));
        assert_eq!(told(Some(well.clone()), &bad), Some(true));
        assert_eq!(told(Some(bad.clone()), &bad), None);
        assert_eq!(told(Some(bad.clone()), &worse), Some(true));
        assert_eq!(told(Some(bad), &well), Some(false));
        assert_eq!(told(Some(condition("True", "it is well")), &well), None);
        let lone = |message| Condition { reason: LONE_OBJECTS.into(), ..condition("False", message) };
        assert_eq!(told(Some(lone("1 of them")), &lone("2 of them")), None, "they may come and go all the time");
        assert_eq!(told(Some(well), &Condition { reason: PENDING.into(), ..condition("False", "in a moment") }), None);
    }

    /// What was written of these rings, one after the other.
    async fn told(snapshots: impl IntoIterator<Item = Snapshot>) -> Vec<String> {
        let api = FakeApi::default();
        let notices = Notices::new(api.client());
        let mut announcer = Announcer::new(notices.clone(), held_by(&["a", "b"]));
        for snapshot in snapshots {
            announcer.members(&snapshot);
            // One after the other, as it would be.
            let _written = tokio::time::timeout(Duration::from_millis(10), notices.write()).await;
        }
        let events = api.asked().into_iter().filter(|asked| asked.method == Method::POST).map(|asked| asked.body);
        let told = events.map(|event| {
            format!("{} {} {}", event["regarding"]["name"], event["related"]["name"], event["note"]).replace('"', "")
        });
        told.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_and_who_goes_is_told_on_the_ring() {
        let ring = ring(&example_spec());
        let steps: [&[_]; 4] =
            [&[("a", Ready)], &[("a", Ready)], &[("a", Ready), ("b", Ready)], &[("a", Dead), ("b", Ready)]];
        assert_eq!(
            told(steps.map(|shards| snapshot_of(&ring, shards))).await,
            [
                "example b shard 'b' takes part, as one of 2",
                "example a shard 'a' no longer takes part: its Lease is dead; 1 are left"
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_came_and_who_went_while_nobody_led_is_told_by_the_next_leader() {
        let mut ring = ring(&example_spec());
        let shards: Vec<_> = ["a", "c"].map(|name| serde_json::json!({"name": name, "objects": 1})).into();
        ring.status = Some(serde_json::from_value(serde_json::json!({"objects": {"shards": shards}})).unwrap());
        assert_eq!(
            told([snapshot_of(&ring, &[("a", Ready), ("b", Ready)])]).await,
            [
                "example b shard 'b' takes part, as one of 2",
                "example null shard 'c' no longer takes part: it has no Lease any more; 2 are left"
            ]
        );
    }
}
