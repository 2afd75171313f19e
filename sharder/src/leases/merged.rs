//! The watches on the Leases of the kinds of ring, as if they were one.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher::Event;
use ringside_ring::RingKind;

use super::book::{LeaseKey, key_of};

/// What the watches have shown: the list of each kind is there once it has ended.
#[derive(Debug)]
pub(super) struct Merged {
    kinds: &'static [RingKind],
    shown: BTreeMap<RingKind, BTreeMap<LeaseKey, Lease>>,
    /// What lists have shown that have not ended.
    arriving: BTreeMap<RingKind, BTreeMap<LeaseKey, Lease>>,
}

impl Merged {
    /// Of the watches on Leases of rings of these kinds.
    pub(super) fn new(kinds: &'static [RingKind]) -> Self {
        Self { kinds, shown: BTreeMap::new(), arriving: BTreeMap::new() }
    }

    /// Returns what an event of one watch is in the merged one. Nothing is told before the first lists of all have ended.
    ///
    /// With a list of one kind comes what the watches on the others have shown. A Lease that is known by an answer alone is not in it: it
    /// counts as vanished until its watch shows it, as it does after any list that began before.
    pub(super) fn merge(&mut self, kind: RingKind, event: Event<Lease>) -> Vec<Event<Lease>> {
        match event.modify(|lease| lease.metadata.managed_fields = None) {
            Event::Init => drop(self.arriving.insert(kind, BTreeMap::new())),
            Event::InitApply(lease) => {
                if let Some(key) = key_of(&lease) {
                    self.arriving.entry(kind).or_default().insert(key, lease);
                }
            }
            Event::InitDone => {
                self.shown.insert(kind, self.arriving.remove(&kind).unwrap_or_default());
                if self.is_complete() {
                    let all = self.shown.values().flat_map(BTreeMap::values).cloned().map(Event::InitApply);
                    return [Event::Init].into_iter().chain(all).chain([Event::InitDone]).collect();
                }
            }
            Event::Apply(lease) => {
                if let Some(key) = key_of(&lease) {
                    self.shown.entry(kind).or_default().insert(key, lease.clone());
                }
                return self.told(Event::Apply(lease));
            }
            Event::Delete(lease) => {
                let Some(key) = key_of(&lease) else { return Vec::new() };
                self.shown.entry(kind).or_default().remove(&key);
                // It may be of a ring of the other kind now.
                let still = self.shown.values().find_map(|leases| leases.get(&key).cloned());
                return self.told(still.map_or(Event::Delete(lease), Event::Apply));
            }
        }
        Vec::new()
    }

    fn is_complete(&self) -> bool {
        self.kinds.iter().all(|kind| self.shown.contains_key(kind))
    }

    fn told(&self, event: Event<Lease>) -> Vec<Event<Lease>> {
        if self.is_complete() { vec![event] } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::book::tests::lease;

    const OLDER: RingKind = RingKind::ClusterRing;
    const NEWER: RingKind = RingKind::ControllerRing;

    /// What the events of the merged watch say, in short.
    fn say(events: Vec<Event<Lease>>) -> Vec<String> {
        let name = |lease: Lease| lease.metadata.name.unwrap_or_default();
        let said = events.into_iter().map(|event| match event {
            Event::Init => "begin".to_owned(),
            Event::InitApply(lease) => format!("list {}", name(lease)),
            Event::InitDone => "end".to_owned(),
            Event::Apply(lease) => format!("apply {}", name(lease)),
            Event::Delete(lease) => format!("delete {}", name(lease)),
        });
        said.collect()
    }

    fn list(merged: &mut Merged, kind: RingKind, names: &[&str]) -> Vec<String> {
        let shown = names.iter().map(|name| Event::InitApply(lease(name, name, 0, 1)));
        let events = [Event::Init].into_iter().chain(shown).chain([Event::InitDone]);
        events.flat_map(|event| say(merged.merge(kind, event))).collect()
    }

    #[test]
    fn a_list_is_told_with_what_is_known_of_the_other_kind() {
        let mut merged = Merged::new(&RingKind::ALL);
        assert_eq!(list(&mut merged, OLDER, &["a", "b"]), [""; 0]);
        assert_eq!(say(merged.merge(OLDER, Event::Delete(lease("b", "b", 0, 1)))), [""; 0]);
        assert_eq!(list(&mut merged, NEWER, &["c"]), ["begin", "list a", "list c", "end"]);
        assert_eq!(say(merged.merge(NEWER, Event::Apply(lease("d", "d", 0, 1)))), ["apply d"]);
        assert_eq!(list(&mut merged, OLDER, &[]), ["begin", "list c", "list d", "end"]);
    }

    #[test]
    fn a_lease_that_changes_its_kind_of_ring_is_not_gone() {
        let of = |kind, event, merged: &mut Merged| say(merged.merge(kind, event));
        let changed = || lease("a", "a", 0, 1);
        let mut merged = Merged::new(&RingKind::ALL);
        list(&mut merged, OLDER, &["a"]);
        list(&mut merged, NEWER, &[]);
        assert_eq!(of(NEWER, Event::Apply(changed()), &mut merged), ["apply a"]);
        assert_eq!(of(OLDER, Event::Delete(changed()), &mut merged), ["apply a"]);
        assert_eq!(of(NEWER, Event::Delete(changed()), &mut merged), ["delete a"]);
    }
}
