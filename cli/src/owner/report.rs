//! Who works on an object, judged from what was read.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::core::{Selector, SelectorExt as _};
use ringside_ring::{
    Controller, HashRing, PartitionKey, PlacedBy, Ring, RingLabels, RingName, ShardName,
    cluster_ring::{CONDITION_READY, GroupResource},
};
use ringside_sharder::move_age;
use serde::Serialize;

use crate::rings::{Replica, members};

/// Events that are shown.
const EVENTS: usize = 3;

/// What an object is placed by.
#[derive(Clone, Debug)]
pub(super) enum Placed {
    /// By itself.
    Root { kind: String },
    /// By the root above it.
    Below { resource: GroupResource, kind: String, root: Box<ObjectMeta> },
    /// By nothing: no object of the ring controls it.
    Alone { controller: Option<String> },
}

/// All that was read.
pub(super) struct Seen {
    pub(super) ring: Ring,
    pub(super) name: RingName,
    pub(super) resource: GroupResource,
    pub(super) tokens_per_shard: NonZeroU32,
    pub(super) metadata: ObjectMeta,
    pub(super) root: Placed,
    pub(super) namespace_labels: Option<BTreeMap<String, String>>,
    pub(super) replicas: Vec<Replica>,
    pub(super) children: Option<Children>,
    /// The latest first.
    pub(super) events: Vec<Event>,
}

/// How many objects are below a root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Children {
    pub(super) all: usize,
    /// Those with the root's replica.
    pub(super) with_it: usize,
}

/// Where an object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum State {
    /// A replica works on it.
    Assigned,
    /// Its replica is asked to release it.
    Draining,
    /// No replica works on it, and one should.
    Unassigned,
    /// It is not of the ring.
    Outside,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) object: String,
    pub(super) resource: String,
    pub(super) ring: String,
    pub(super) state: State,
    pub(super) healthy: bool,
    pub(super) owner: Option<String>,
    pub(super) owner_state: Option<String>,
    pub(super) since: Option<String>,
    /// Who wrote that.
    pub(super) by: Option<String>,
    /// The id of the move that is under way.
    pub(super) move_id: Option<String>,
    pub(super) why: String,
    /// Who would have it without its owner.
    pub(super) next: Option<String>,
    pub(super) waits_for: Option<String>,
    pub(super) children: Option<Children>,
    pub(super) events: Vec<String>,
}

impl Seen {
    pub(super) fn report(&self, now: Timestamp) -> Report {
        let labels = RingLabels::of(&self.name);
        let ownership = labels.ownership(self.metadata.labels.as_ref());
        let owner = ownership.shard.and_then(|shard| self.replicas.iter().find(|it| it.name.as_str() == shard));
        let (belongs_to, next) = self.placement();
        let written = written(&self.metadata, &labels.shard);
        let outside = self.outside();
        let state = match (ownership.shard, ownership.drain) {
            (Some(_), Some(_)) => State::Draining,
            _ if outside.is_some() => State::Outside,
            (None, _) => State::Unassigned,
            (Some(_), None) => State::Assigned,
        };
        let age = ownership.drain.and_then(|id| move_age(id, now.into()));
        let deadline = self.ring.spec.drain_deadline();
        let (healthy, waits_for) = match state {
            State::Outside => (true, None),
            State::Assigned => self.assigned(owner, belongs_to.as_ref()),
            State::Draining => {
                (age.is_none_or(|age| age <= deadline), Some(self.draining(ownership.shard, age, deadline)))
            }
            State::Unassigned => (false, Some(self.unassigned())),
        };
        let owner_state = ownership.shard.map(|_| match owner {
            Some(owner) if owner.controller == Controller::Absent => {
                format!("{}, controller does not work", owner.state)
            }
            Some(owner) if owner.controller == Controller::Leaving => format!("{}, its Pod ends", owner.state),
            Some(owner) => owner.state.to_string(),
            None => "it has no Lease".to_owned(),
        });
        Report {
            object: place(&self.metadata),
            resource: self.resource.to_string(),
            ring: self.name.to_string(),
            state,
            healthy,
            owner: ownership.shard.map(str::to_owned),
            owner_state,
            since: written.as_ref().and_then(|(time, _)| time.map(|time| format!("{time:.0}"))),
            by: written.map(|(_, manager)| manager),
            move_id: ownership.drain.and_then(|id| id.split('.').next()).map(str::to_owned),
            why: outside.unwrap_or_else(|| self.why(ownership.shard, belongs_to.as_ref())),
            next: next.map(|shard| shard.to_string()).filter(|_| state != State::Outside),
            waits_for,
            children: self.children.filter(|_| state != State::Outside),
            events: self.events.iter().take(EVENTS).map(event).collect(),
        }
    }

    /// Why the object is not of the ring.
    fn outside(&self) -> Option<String> {
        if let Placed::Alone { controller } = &self.root {
            return Some(match controller {
                Some(controller) => format!("its controller {controller} is not of the ring"),
                None => "no object of the ring controls it".to_owned(),
            });
        }
        let selector = Selector::try_from(self.ring.spec.effective_namespace_selector()).ok()?;
        let unselected = self.namespace_labels.as_ref().is_some_and(|labels| !selector.matches(labels));
        unselected.then(|| "the ring's namespaceSelector does not match its namespace".to_owned())
    }

    /// Where the hash ring places the object, and where it would without that replica.
    fn placement(&self) -> (Option<ShardName>, Option<ShardName>) {
        let Some((resource, kind, root)) = self.placed() else { return (None, None) };
        let [namespace, name] = [&root.namespace, &root.name].map(|it| it.as_deref().unwrap_or_default());
        let usual = PartitionKey::of(&resource.group, kind, namespace, name);
        let by = self.ring.spec.placed_by(resource);
        let key = by.key(usual, namespace, root.labels.as_ref(), root.annotations.as_ref());
        let spec = &self.ring.spec;
        let all = members(&self.replicas);
        let weighted = all.weighted().map(|(shard, weight)| (shard.clone(), weight));
        let hash_ring = HashRing::weighted(weighted, self.tokens_per_shard);
        let group = self.group(root);
        let takes = |shard: &ShardName| spec.groups.is_empty() || all.groups().get(shard).map(String::as_str) == group;
        let first = hash_ring.owner_among(&key, takes).cloned();
        let next = hash_ring.owner_among(&key, |shard| takes(shard) && Some(shard) != first.as_ref()).cloned();
        (first, next)
    }

    /// The group of replicas that an object is for.
    fn group(&self, root: &ObjectMeta) -> Option<&str> {
        self.ring.spec.group_of(root.labels.as_ref()?)
    }

    /// The object whose key places this one: its resource, its kind and itself.
    fn placed(&self) -> Option<(&GroupResource, &str, &ObjectMeta)> {
        match &self.root {
            Placed::Root { kind } => Some((&self.resource, kind, &self.metadata)),
            Placed::Below { resource, kind, root } => Some((resource, kind, root)),
            Placed::Alone { .. } => None,
        }
    }

    fn why(&self, shard: Option<&str>, belongs_to: Option<&ShardName>) -> String {
        let follows = match &self.root {
            Placed::Below { resource, root, .. } => format!("it follows {resource} {}: ", place(root)),
            _ => String::new(),
        };
        let by = match self.placed().map(|(resource, ..)| self.ring.spec.placed_by(resource)) {
            None | Some(PlacedBy::Name) => String::new(),
            Some(by) => format!(" by its {by}"),
        };
        match belongs_to {
            None => match self.placed().and_then(|(.., root)| self.group(root)) {
                Some(group) => format!("{follows}no replica of group '{group}' takes objects"),
                None => format!("{follows}no replica is available"),
            },
            Some(first) if Some(first.as_str()) == shard => format!("{follows}the hash ring places it there{by}"),
            Some(first) => format!("{follows}the hash ring places it at {first}{by}"),
        }
    }

    fn assigned(&self, owner: Option<&Replica>, belongs_to: Option<&ShardName>) -> (bool, Option<String>) {
        match owner {
            None => (false, Some("the sharder to give it to another replica: its own is gone".to_owned())),
            Some(owner) if !owner.state.is_available() => {
                (false, Some(format!("the sharder to take it over: its replica is {}", owner.state)))
            }
            Some(owner) if owner.controller == Controller::Absent => {
                (false, Some("its controller to work, or another replica that does".to_owned()))
            }
            Some(owner) if owner.controller == Controller::Leaving => {
                (true, Some("its turn to move to another replica: its own one ends".to_owned()))
            }
            Some(owner) => {
                let moves = belongs_to.filter(|first| **first != owner.name);
                (
                    true,
                    moves.map(|first| match self.ring.spec.paused {
                        true => format!("`ringside resume {}`, to move to {first}: its ring is paused", self.name),
                        false => {
                            format!("its turn to move to {first}, which may wait for a roll-out or a late replica")
                        }
                    }),
                )
            }
        }
    }

    fn draining(&self, shard: Option<&str>, age: Option<Duration>, deadline: Duration) -> String {
        let shard = shard.unwrap_or_default();
        // The proxy says what holds a release once that is late.
        let said =
            self.events.iter().find(|it| it.reason.as_deref().is_some_and(|reason| reason.starts_with("Drains")));
        let said = said.and_then(|event| event.message.as_deref()).map(|note| format!(": {note}")).unwrap_or_default();
        match age {
            Some(age) => format!("{shard} to release it, for {} s of {} s{said}", age.as_secs(), deadline.as_secs()),
            None => format!("{shard} to release it{said}"),
        }
    }

    fn unassigned(&self) -> String {
        if !self.replicas.iter().any(|replica| replica.state.is_available()) {
            return "a replica: none is available".to_owned();
        }
        let refused = self.events.iter().find(|event| event.reason.as_deref() == Some("LabelsRefused"));
        if let Some(note) = refused.and_then(|event| event.message.clone()) {
            return format!("the API server to take its label: {note}");
        }
        let conditions = self.ring.status.iter().flat_map(|status| &status.conditions);
        let mut faults = conditions.filter(|it| it.type_ == CONDITION_READY && it.status == "False");
        faults.next().map_or_else(
            || "the sharder to assign it: it takes moments, or the next scan within five minutes".to_owned(),
            |fault| format!("the ring to be ready: {}", fault.message),
        )
    }
}

/// When a label was written last, and by which field manager.
fn written(metadata: &ObjectMeta, label: &str) -> Option<(Option<Timestamp>, String)> {
    let key = format!("f:{label}");
    let entries = metadata.managed_fields.iter().flatten();
    let of_label = entries.filter(|entry| {
        entry.fields_v1.as_ref().is_some_and(|fields| !fields.0["f:metadata"]["f:labels"][&key].is_null())
    });
    let last = of_label.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    Some((last.time.as_ref().map(|time| time.0), last.manager.clone().unwrap_or_default()))
}

/// When an Event happened last.
pub(super) fn time_of(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let once = event.event_time.as_ref().map(|time| time.0);
    series.or(event.last_timestamp.as_ref().map(|time| time.0)).or(once)
}

fn event(event: &Event) -> String {
    let time = time_of(event).map(|time| format!("{time:.0} ")).unwrap_or_default();
    let [reason, message] = [&event.reason, &event.message].map(|it| it.as_deref().unwrap_or_default());
    format!("{time}{reason}: {message}")
}

fn place(metadata: &ObjectMeta) -> String {
    let name = metadata.name.as_deref().unwrap_or_default();
    metadata.namespace.as_ref().map_or(name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringside_ring::placement::DEFAULT_TOKENS_PER_SHARD;
    use serde_json::{Value, json};

    use super::*;
    use crate::{owner::text, rings};

    fn now() -> Timestamp {
        "2026-01-01T00:00:40Z".parse().unwrap()
    }

    /// An object with these labels in a ring of two replicas.
    fn seen(shard: Option<&str>, drain: Option<&str>) -> Seen {
        let name: RingName = "websites".parse().unwrap();
        let keys = RingLabels::of(&name);
        let both = [(&keys.shard, shard), (&keys.drain, drain)];
        let labels: BTreeMap<_, _> = both.into_iter().filter_map(|(key, value)| Some((key.clone(), value?))).collect();
        let fields = json!({"f:metadata": {"f:labels": {format!("f:{}", keys.shard): {}}}});
        let managed = json!({"manager": "ringside-sharder", "operation": "Update", "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let ring = json!({
            "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing", "metadata": {"name": "websites"},
            "spec": {"resources": [{"group": "web.example.com", "resource": "websites"}]},
        });
        let ring: Ring = serde_json::from_value(ring).unwrap();
        let leases = ["a", "b"].map(|name| rings::tests::lease(name, "ready", &json!({})));
        Seen {
            tokens_per_shard: DEFAULT_TOKENS_PER_SHARD,
            replicas: rings::replicas(&ring, &leases),
            ring,
            name,
            resource: GroupResource { group: "web.example.com".into(), resource: "websites".into() },
            metadata: serde_json::from_value(
                json!({"name": "shop", "namespace": "default", "labels": labels, "managedFields": [managed]}),
            )
            .unwrap(),
            root: Placed::Root { kind: "Website".into() },
            namespace_labels: Some([("kubernetes.io/metadata.name".to_owned(), "default".to_owned())].into()),
            children: Some(Children { all: 2, with_it: 2 }),
            events: Vec::new(),
        }
    }

    fn event(value: &Value) -> Event {
        let mut event = json!({"metadata": {}, "involvedObject": {}});
        event.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn assigned_object_shows_owner_time_and_next_in_line() {
        let belongs_to = seen(None, None).placement().0.unwrap();
        let report = seen(Some(belongs_to.as_str()), None).report(now());
        assert_eq!((report.state, report.healthy, report.waits_for.as_deref()), (State::Assigned, true, None));
        assert_eq!(
            (report.since.as_deref(), report.by.as_deref()),
            (Some("2026-01-01T00:00:00Z"), Some("ringside-sharder"))
        );
        assert!(report.next.is_some_and(|next| next != belongs_to.as_str()));
        let screen = text::screen(&seen(Some(belongs_to.as_str()), None).report(now()));
        for line in ["why        the hash ring places it there", "children   2 of 2 with it", "waits for  nothing"] {
            assert!(screen.contains(line), "{line} in\n{screen}");
        }
    }

    #[test]
    fn owner_that_is_gone_is_unhealthy() {
        let report = seen(Some("gone"), None).report(now());
        assert!(!report.healthy && report.owner_state.is_some_and(|state| state.contains("no Lease")));
    }

    #[test]
    fn draining_object_shows_the_move_and_what_holds_it() {
        // The move began 30 s ago.
        let millis = now().as_millisecond() - 30_000;
        let id = format!("{millis:x}-aaaaaaaaaaaa");
        let mut seen = seen(Some("a"), Some(&format!("{id}.1500ms")));
        seen.events = vec![event(&json!({"reason": "DrainsHeld", "message": "a write of 00:00:12 has no answer"}))];
        let report = seen.report(now());
        assert_eq!((report.state, report.healthy, report.move_id), (State::Draining, true, Some(id)));
        let waits = report.waits_for.unwrap();
        assert!(waits.contains("30 s of 60 s: a write of 00:00:12"), "{waits}");
        seen.ring.spec.drain_deadline_seconds = Some(20);
        assert!(!seen.report(now()).healthy);
    }

    #[test]
    fn object_without_owner_says_what_it_waits_for() {
        let mut seen = seen(None, None);
        let report = seen.report(now());
        assert_eq!((report.state, report.healthy), (State::Unassigned, false));
        seen.events = vec![event(&json!({"reason": "LabelsRefused", "message": "forbidden"}))];
        assert!(seen.report(now()).waits_for.unwrap().ends_with("forbidden"));
        seen.replicas.clear();
        assert_eq!(seen.report(now()).waits_for.as_deref(), Some("a replica: none is available"));
    }

    #[test]
    fn object_outside_says_why() {
        let mut alone = seen(None, None);
        alone.root = Placed::Alone { controller: Some("ReplicaSet x".into()) };
        let report = alone.report(now());
        assert_eq!((report.state, report.healthy), (State::Outside, true));
        assert!(report.why.contains("ReplicaSet x"), "{}", report.why);
        let mut elsewhere = seen(None, None);
        elsewhere.namespace_labels =
            Some([("kubernetes.io/metadata.name".to_owned(), "kube-system".to_owned())].into());
        assert!(elsewhere.report(now()).why.contains("namespaceSelector"));
    }
}
