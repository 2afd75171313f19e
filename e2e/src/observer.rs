//! Watches the objects and the shard Leases of a ring, for the checker and for people.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt as _,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, watcher},
    },
};
use ringside_ring::{
    RingLabels, RingName,
    cluster_ring::GroupResource,
    labels::LEASE_STATE,
    lease::{LeaseFacts, holder},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    checker::{Cause, Event, Object, Seen},
    system::Monitor,
};

/// An object, without what is in it.
type Metadata = PartialObjectMeta<DynamicObject>;

/// What is there now.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// The shards that have a Lease, with the state that the sharder wrote on it.
    pub shards: BTreeMap<String, String>,
    /// How many objects each shard owns.
    pub owned: BTreeMap<String, usize>,
    /// How many objects each shard was asked to release.
    pub draining: BTreeMap<String, usize>,
    /// How many objects have no owner.
    pub unassigned: usize,
}

/// An event of a watch.
pub(crate) enum Change {
    Object(ApiResource, watcher::Event<Metadata>),
    Lease(watcher::Event<Lease>),
}

/// What the watches have shown.
#[derive(Debug)]
pub(crate) struct Observed {
    labels: RingLabels,
    /// The resource of the ring's objects.
    root: String,
    objects: Known<Metadata>,
    leases: Known<Lease>,
    /// Every version of an object: the audit log has no outcome of a request whose client went away before the answer.
    pub(crate) versions: Vec<Seen>,
}

/// Watches objects of these resources, the ring's own first, in one namespace where it is named, and the ring's Leases, until it
/// is dropped.
pub(crate) fn watch(
    client: &Client,
    ring: &RingName,
    resources: &[ApiResource],
    namespace: Option<&str>,
    monitor: Monitor,
) -> AbortOnDropHandle<()> {
    let of_the_ring = watcher::Config::default().labels(&ring.lease_selector());
    let leases = watcher(Api::all(client.clone()), of_the_ring).default_backoff().map_ok(Change::Lease).boxed();
    let root = resources.first().map(|resource| resource.plural.clone()).unwrap_or_default();
    let objects = resources.iter().cloned().map(|resource| {
        let api: Api<Metadata> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let events = watcher(api, watcher::Config::default()).default_backoff();
        events.map_ok(move |event| Change::Object(resource.clone(), event)).boxed()
    });
    let mut changes = stream::select_all(objects.chain([leases]));
    monitor.begin(Observed::new(RingLabels::of(ring), root));
    AbortOnDropHandle::new(tokio::spawn(async move {
        while let Some(change) = changes.next().await {
            match change {
                Ok(change) => monitor.observe(change),
                Err(error) => tracing::warn!(%error, "a watch of the observer was interrupted"),
            }
        }
    }))
}

impl Observed {
    fn new(labels: RingLabels, root: String) -> Self {
        Self { labels, root, objects: Known::default(), leases: Known::default(), versions: Vec::new() }
    }

    /// Takes in an event. Returns what the checker should know of it.
    pub(crate) fn apply(&mut self, change: Change) -> Vec<Event> {
        match change {
            Change::Lease(event) => {
                let steps = self.leases.apply(event, Lease::name_any);
                steps.into_iter().filter_map(|(before, now)| of_lease(before.as_ref(), now.as_ref())).collect()
            }
            Change::Object(resource, event) => {
                if let watcher::Event::Apply(object) | watcher::Event::InitApply(object) = &event {
                    self.versions.extend(self.version(&resource, object));
                }
                if resource.plural != self.root {
                    return Vec::new();
                }
                let steps = self.objects.apply(event, |object| object.uid().unwrap_or_default());
                steps.into_iter().filter_map(|(before, now)| self.of_object(before.as_ref(), now.as_ref())).collect()
            }
        }
    }

    fn version(&self, resource: &ApiResource, object: &Metadata) -> Option<Seen> {
        let resource = GroupResource { group: resource.group.clone(), resource: resource.plural.clone() };
        Some(Seen { at: Timestamp::now(), resource, object: Object::of(&object.metadata, &self.labels)? })
    }

    fn of_object(&self, before: Option<&Metadata>, now: Option<&Metadata>) -> Option<Event> {
        let Some(now) = now else { return Some(Event::Gone { uid: before?.uid()? }) };
        let ownership = self.labels.ownership(now.metadata.labels.as_ref());
        Some(Event::Seen {
            uid: now.uid()?,
            name: format!("{}/{}", now.namespace().unwrap_or_default(), now.name_any()),
            generation: now.metadata.generation.unwrap_or_default(),
            shard: ownership.shard.map(str::to_owned),
        })
    }

    /// What is there now.
    pub(crate) fn picture(&self) -> Picture {
        let state = |lease: &Lease| (lease.name_any(), lease.labels().get(LEASE_STATE).cloned().unwrap_or_default());
        let mut picture = Picture { shards: self.leases.all.values().map(state).collect(), ..Picture::default() };
        for object in self.objects.all.values() {
            let ownership = self.labels.ownership(object.metadata.labels.as_ref());
            let Some(shard) = ownership.shard else {
                picture.unassigned += 1;
                continue;
            };
            *picture.owned.entry(shard.to_owned()).or_default() += 1;
            if ownership.drain.is_some() {
                *picture.draining.entry(shard.to_owned()).or_default() += 1;
            }
        }
        picture
    }
}

/// Who took a Lease, and who lost it.
fn of_lease(before: Option<&Lease>, now: Option<&Lease>) -> Option<Event> {
    let is_held = |lease: &Lease| LeaseFacts::of(lease).held_by_shard;
    let (was_held, shard) = (before.map(is_held), now.or(before)?.name_any());
    match now {
        Some(now) if was_held == Some(is_held(now)) => None,
        Some(now) if is_held(now) => Some(Event::ShardAvailable { shard }),
        Some(now) if holder(now.spec.as_ref()).is_none() => {
            Some(Event::ShardUnavailable { shard, cause: Cause::Released })
        }
        // One that was not held was reported when it was lost.
        None if was_held == Some(false) => None,
        _ => Some(Event::ShardUnavailable { shard, cause: Cause::Dead }),
    }
}

/// All that a watch has shown and that is there still, by name or uid.
#[derive(Debug)]
struct Known<K> {
    all: HashMap<String, K>,
    /// While the watch lists again: what it has not named yet. The rest is gone when the list ends.
    unconfirmed: HashSet<String>,
}

impl<K> Default for Known<K> {
    fn default() -> Self {
        Self { all: HashMap::new(), unconfirmed: HashSet::new() }
    }
}

impl<K: Clone> Known<K> {
    /// Takes in an event. Returns how each object was that it is about, and how that is now: none where it is gone.
    fn apply(&mut self, event: watcher::Event<K>, key: impl Fn(&K) -> String) -> Vec<(Option<K>, Option<K>)> {
        match event {
            watcher::Event::Init => {
                self.unconfirmed = self.all.keys().cloned().collect();
                Vec::new()
            }
            watcher::Event::InitApply(now) | watcher::Event::Apply(now) => {
                let key = key(&now);
                self.unconfirmed.remove(&key);
                vec![(self.all.insert(key, now.clone()), Some(now))]
            }
            watcher::Event::InitDone => {
                let gone = std::mem::take(&mut self.unconfirmed);
                gone.iter().map(|key| (self.all.remove(key), None)).collect()
            }
            watcher::Event::Delete(gone) => vec![(self.all.remove(&key(&gone)), None)],
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use kube::Resource as _;
    use serde_json::{from_value, json};
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

    use super::*;
    use crate::website::Website;

    fn observed() -> Observed {
        Observed::new(RingLabels::of(&"websites".parse().unwrap()), Website::plural(&()).into_owned())
    }

    fn object(name: &str, shard: Option<&str>, drain: bool) -> Metadata {
        let RingLabels { shard: key, drain: drain_key, .. } = observed().labels;
        let labels: BTreeMap<_, _> =
            shard.map(|shard| (key, shard)).into_iter().chain(drain.then_some((drain_key, "x"))).collect();
        let uid = format!("uid-{name}");
        let metadata = json!({"namespace": "default", "name": name, "uid": uid, "generation": 3, "labels": labels});
        from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn of_object(event: watcher::Event<Metadata>) -> Change {
        Change::Object(ApiResource::erase::<Website>(&()), event)
    }

    #[test]
    fn an_object_is_told_and_counted_until_a_new_list_leaves_it_out() {
        let mut observed = observed();
        for (name, shard, draining) in [("a", Some("s"), false), ("b", Some("s"), true), ("c", None, false)] {
            let (uid, name_) = (format!("uid-{name}"), format!("default/{name}"));
            let seen = Event::Seen { uid, name: name_, generation: 3, shard: shard.map(str::to_owned) };
            assert_eq!(observed.apply(of_object(Apply(object(name, shard, draining)))), [seen]);
        }
        let picture = observed.picture();
        assert_eq!((picture.owned["s"], picture.draining["s"], picture.unassigned), (2, 1, 1));
        assert_eq!(observed.apply(of_object(Init)), []);
        for name in ["a", "c"] {
            observed.apply(of_object(InitApply(object(name, None, false))));
        }
        let gone = |name: &str| [Event::Gone { uid: format!("uid-{name}") }];
        assert_eq!(observed.apply(of_object(InitDone)), gone("b"));
        assert_eq!(observed.apply(of_object(Delete(object("a", None, false)))), gone("a"));
    }

    #[test]
    fn who_takes_and_who_loses_a_lease_is_told() {
        let lease = |holder: &str, state: &str| -> Lease {
            let metadata = json!({"name": "s", "labels": {LEASE_STATE: state}});
            from_value(json!({"metadata": metadata, "spec": {"holderIdentity": holder}})).unwrap()
        };
        let available = || Some(Event::ShardAvailable { shard: "s".to_owned() });
        let lost = |cause| Some(Event::ShardUnavailable { shard: "s".to_owned(), cause });
        let mut observed = observed();
        for (event, told) in [
            (Apply(lease("s", "")), available()),
            (Apply(lease("s", "ready")), None),
            (Apply(lease("", "dead")), lost(Cause::Released)),
            (Apply(lease("", "dead")), None),
            (Apply(lease("s", "ready")), available()),
            (Apply(lease("shardlease-controller", "dead")), lost(Cause::Dead)),
            (Delete(lease("", "orphaned")), None),
            (Apply(lease("s", "ready")), available()),
        ] {
            assert_eq!(observed.apply(Change::Lease(event)), Vec::from_iter(told));
        }
        assert_eq!(observed.picture().shards["s"], "ready");
        assert_eq!(observed.apply(Change::Lease(Delete(lease("s", "ready")))), Vec::from_iter(lost(Cause::Dead)));
        assert!(observed.picture().shards.is_empty());
    }
}
