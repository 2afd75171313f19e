//! What the API server does: writes as the contract's JSON patches, events of watches, the webhook's verdict.

use std::time::Duration;

use ringside_ring::{
    grace::Grace,
    handover::{Verdict, Write, review},
    labels::{ACKNOWLEDGER, Ownership},
    patch::{self, Seen},
};
use serde_json::{Value, json};

use crate::{
    config::{Handover, Mistake},
    state::{Broken, Event, Job, Next, Object, SHARDS, State, Version},
};

/// A uid: objects are not deleted here.
const UID: &str = "u";
/// The version of a child as it was seen, and another one.
const UNCHANGED: &str = "1";
const CHANGED: &str = "2";

impl Handover {
    /// Carries out the sharder's next write; whether its tests held.
    pub(crate) fn write(&self, state: &mut State, job: &Job) -> bool {
        let carried_out = match job.next {
            Next::Child(to) | Next::Gather(to) => self.write_child(state, job, to),
            Next::Drain(_) | Next::TakeBack | Next::Assign(_) => self.write_object(state, job),
        };
        if carried_out {
            self.note(state, job);
        }
        carried_out
    }

    /// What a write of the sharder means for what it has under way otherwise, and for the promises.
    fn note(&self, state: &mut State, job: &Job) {
        let object = usize::from(job.object);
        let (is_childs, is_drain) =
            (matches!(job.next, Next::Child(_) | Next::Gather(_)), matches!(job.next, Next::Drain(_)));
        // What follows an object that has another shard already is nothing to that one.
        let is_there = !is_childs || state.now.objects[object].shard == job.view.shard;
        let from = job.view.shard.filter(|_| job.takes && is_there);
        if let Some(from) = from.filter(|from| !state.leases[usize::from(*from)].is_held_by_sharder()) {
            state.broken = Some(Broken::Unheld(from));
        }
        if !self.case.children {
            return;
        }
        for other in state.jobs().filter(|other| other.object == job.object) {
            other.child_changed |= is_childs;
            other.disturbed |= !is_drain;
        }
        // What changes the child although others have since is a mistake, and so is what one could know.
        let is_old = matches!(job.next, Next::Child(_)) && state.now.objects[object].version != job.view.version;
        let is_mistake = (is_childs && job.child_changed) || job.forgot;
        state.parted[object] |= (job.disturbed || is_old) && !is_mistake;
    }

    fn write_child(&self, state: &mut State, job: &Job, to: u8) -> bool {
        let stored = state.now.objects[usize::from(job.object)];
        let seen = Seen {
            uid: UID,
            resource_version: UNCHANGED,
            ownership: Ownership { shard: self.name(job.view.child), drain: None },
            has_labels: true,
        };
        let write = if self.makes(Mistake::ChildUntested) { patch::assign } else { patch::gather };
        let patch = write(&self.labels, &seen, &self.names[usize::from(to)]);
        let labels: serde_json::Map<_, _> =
            self.name(stored.child).map(|name| (self.labels.shard.clone(), json!(name))).into_iter().collect();
        let version = if job.child_changed { CHANGED } else { UNCHANGED };
        let mut child = json!({"metadata": {"uid": UID, "resourceVersion": version, "labels": labels}});
        let carried_out = json_patch::patch(&mut child, &patch).is_ok();
        if carried_out {
            state.now.objects[usize::from(job.object)].child = Some(to);
        }
        carried_out
    }

    fn write_object(&self, state: &mut State, job: &Job) -> bool {
        let (drain, version) = (job.view.drain.map(|it| it.to_string()), job.view.version.to_string());
        let seen = Seen {
            uid: UID,
            resource_version: &version,
            ownership: Ownership { shard: self.name(job.view.shard), drain: drain.as_deref() },
            has_labels: true,
        };
        let patch = match job.next {
            Next::Drain(value) => {
                let from = seen.ownership.shard.expect("only a shard that has an object is asked to release it");
                patch::drain(&self.labels, UID, from, &value.to_string())
            }
            Next::TakeBack => {
                let (from, drain) = seen.ownership.shard.zip(seen.ownership.drain).expect("it drains");
                patch::take_back(&self.labels, UID, from, drain)
            }
            Next::Assign(to) | Next::Child(to) | Next::Gather(to) => {
                patch::assign(&self.labels, &seen, &self.names[usize::from(to)])
            }
        };
        self.patch(state, usize::from(job.object), &patch)
    }

    /// Carries out a shard's acknowledgement, as the webhook of a replica lets it, if one answers.
    pub(crate) fn acknowledge(
        &self,
        state: &mut State,
        (shard, object): (usize, usize),
        drain: u8,
        webhook: Option<usize>,
    ) {
        let patch = patch::acknowledge(&self.labels, UID, &self.names[shard], &drain.to_string());
        let stored = *state;
        let before = stored.now.objects[object];
        if let (true, Some(replica)) = (self.patch(state, object, &patch), webhook) {
            let writer = Some(self.names[shard].as_str());
            self.admit(state, (object, before), (writer, Some(ACKNOWLEDGER)), replica);
        }
        // A shard names no owner, and the fence judges a write as the webhook leaves it.
        let after = state.now.objects[object].shard;
        let names_another = after.is_some() && after != before.shard;
        if self.case.fence && names_another && !self.makes(Mistake::NoApiServerFence) {
            *state = stored;
        }
    }

    /// The controller of its shard writes the object without its labels.
    pub(crate) fn strip(&self, state: &mut State, object: usize) {
        let before = state.now.objects[object];
        let without = Object { shard: None, drain: None, ..before };
        state.store(object, without);
        let manager = self.makes(Mistake::DroppedLabelsLetGo).then_some(ACKNOWLEDGER);
        self.admit(state, (object, before), (self.name(before.shard), manager), 0);
    }

    /// What the webhook of a replica makes of a write, in the same write.
    fn admit(
        &self,
        state: &mut State,
        (object, before): (usize, Object),
        (writer, manager): (Option<&str>, Option<&str>),
        replica: usize,
    ) {
        let after = state.now.objects[object];
        // Shards promise a grace, which each drain repeats.
        let drain = |value: u8| Grace::drain_value(&value.to_string(), Grace::of(Duration::from_secs(1)));
        let drains = [before, after].map(|it| it.drain.map(drain));
        let [old, new] = [(before, &drains[0]), (after, &drains[1])]
            .map(|(it, drain)| Ownership { shard: self.name(it.shard), drain: drain.as_deref() });
        let verdict = if self.makes(Mistake::WebhookPlacesWhatLosesItsLabel) && after.shard.is_none() {
            Verdict::Assign
        } else {
            // The fence could not tell its choice from the shard's own.
            review(Write::Update { old, new, writer, manager }, self.case.children || self.case.fence)
        };
        let placed = self.receiver(object, self.available(state, replica));
        let labels = match verdict {
            Verdict::Leave => return,
            Verdict::Restore(_) => (before.shard, before.drain),
            Verdict::Assign => (placed, None),
        };
        let admitted = Object { shard: labels.0, drain: labels.1, ..after };
        state.show(object, after, admitted);
        state.now.objects[object] = admitted;
    }

    fn patch(&self, state: &mut State, object: usize, patch: &json_patch::Patch) -> bool {
        let Object { shard, drain, child, version } = state.now.objects[object];
        let mut labels = serde_json::Map::new();
        labels.extend(self.name(shard).map(|name| (self.labels.shard.clone(), json!(name))));
        labels.extend(drain.map(|value| (self.labels.drain.clone(), json!(value.to_string()))));
        let mut stored = json!({"metadata": {"uid": UID, "resourceVersion": version.to_string(), "labels": labels}});
        if json_patch::patch(&mut stored, patch).is_err() {
            return false;
        }
        let label = |key: &str| stored["metadata"]["labels"].get(key).and_then(Value::as_str);
        let shard = label(&self.labels.shard).map(|name| self.number(name));
        let drain = label(&self.labels.drain).map(|value| value.parse().expect("a number"));
        state.store(object, Object { shard, drain, child, version });
        true
    }

    pub(crate) fn name(&self, shard: Option<u8>) -> Option<&str> {
        shard.map(|shard| self.names[usize::from(shard)].as_str())
    }
}

impl State {
    /// Stores an object with a new resourceVersion, and shows it to whom it concerns.
    pub(crate) fn store(&mut self, object: usize, new: Object) {
        let version = self.now.version + 1;
        let before = self.now.objects[object];
        let after = Object { version, ..new };
        self.now.version = version;
        self.now.objects[object] = after;
        self.show(object, before, after);
    }

    /// The events of a change on the watches that it concerns. A change within one write takes its events back.
    fn show(&mut self, object: usize, before: Object, after: Object) {
        let number = u8::try_from(object).expect("few objects");
        for shard in 0..SHARDS {
            let Some(watch) = self.pods[shard].watch.as_mut().filter(|watch| !watch.ended) else { continue };
            if before.version == after.version {
                let of_this = |event: &Event| matches!(event, Event::Added(of, at) | Event::Deleted(of, at) if (*of, *at) == (number, after.version));
                if watch.queue.last().is_some_and(of_this) {
                    watch.queue.pop();
                    continue;
                }
            }
            watch.queue.extend(change(number, before.is_shown_to(shard), after.is_shown_to(shard), after.version));
        }
    }
}

/// What a narrowed watch shows of a write.
pub(crate) fn change(object: u8, was_shown: bool, is_shown: bool, version: Version) -> Option<Event> {
    match (was_shown, is_shown) {
        (false, true) => Some(Event::Added(object, version)),
        (true, false) => Some(Event::Deleted(object, version)),
        _ => None,
    }
}
