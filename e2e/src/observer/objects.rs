//! The objects of a ring, as a watch shows them.

use std::collections::{HashMap, HashSet};

use kube::{ResourceExt as _, core::PartialObjectMeta, runtime::watcher};
use ringside_ring::RingLabels;

use super::Picture;
use crate::{
    checker::{Event, Uid},
    website::Website,
};

/// The labels of all objects, by uid.
#[derive(Debug)]
pub(super) struct Objects {
    labels: RingLabels,
    known: HashMap<Uid, Owner>,
    /// While the watch lists anew: what it has not named yet. The rest is gone when the list ends.
    unconfirmed: HashSet<Uid>,
}

#[derive(Debug)]
struct Owner {
    shard: Option<String>,
    draining: bool,
}

impl Objects {
    pub(super) fn new(labels: RingLabels) -> Self {
        Self { labels, known: HashMap::new(), unconfirmed: HashSet::new() }
    }

    /// What the checker should know of this event.
    pub(super) fn apply(&mut self, event: watcher::Event<PartialObjectMeta<Website>>) -> Vec<Event> {
        match event {
            watcher::Event::Init => {
                self.unconfirmed = self.known.keys().cloned().collect();
                vec![Event::Relisted]
            }
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                self.seen(&object).into_iter().collect()
            }
            watcher::Event::InitDone => {
                let gone = std::mem::take(&mut self.unconfirmed);
                gone.into_iter().map(|uid| self.gone(uid)).collect()
            }
            watcher::Event::Delete(object) => object.uid().map(|uid| self.gone(uid)).into_iter().collect(),
        }
    }

    fn seen(&mut self, object: &PartialObjectMeta<Website>) -> Option<Event> {
        let uid = object.uid()?;
        let ownership = self.labels.ownership(object.metadata.labels.as_ref());
        let (shard, draining) = (ownership.shard.map(str::to_owned), ownership.drain.is_some());
        self.unconfirmed.remove(&uid);
        self.known.insert(uid.clone(), Owner { shard: shard.clone(), draining });
        let name = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
        Some(Event::Seen { uid, name, generation: object.metadata.generation.unwrap_or_default(), shard, draining })
    }

    fn gone(&mut self, uid: Uid) -> Event {
        self.known.remove(&uid);
        Event::Gone { uid }
    }

    /// Counts them into the picture.
    pub(super) fn count(&self, picture: &mut Picture) {
        for owner in self.known.values() {
            let Some(shard) = &owner.shard else {
                picture.unassigned += 1;
                continue;
            };
            *picture.owned.entry(shard.clone()).or_default() += 1;
            if owner.draining {
                *picture.draining.entry(shard.clone()).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use kube::core::ObjectMeta;
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

    use super::*;

    fn labels() -> RingLabels {
        RingLabels::of(&"websites".parse().unwrap())
    }

    fn object(name: &str, shard: Option<&str>, drain: bool) -> PartialObjectMeta<Website> {
        let keys = labels();
        let shard = shard.map(|shard| (keys.shard, shard.to_owned()));
        let drain = drain.then(|| (keys.drain, "x".to_owned()));
        let metadata = ObjectMeta {
            namespace: Some("default".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(format!("uid-{name}")),
            generation: Some(3),
            labels: Some(shard.into_iter().chain(drain).collect()),
            ..ObjectMeta::default()
        };
        PartialObjectMeta { metadata, ..PartialObjectMeta::default() }
    }

    #[test]
    fn counts_owners_and_drains() {
        let mut objects = Objects::new(labels());
        for object in [object("a", Some("s"), false), object("b", Some("s"), true), object("c", None, false)] {
            assert_eq!(objects.apply(Apply(object)).len(), 1);
        }
        let mut picture = Picture::default();
        objects.count(&mut picture);
        assert_eq!((picture.owned["s"], picture.draining["s"], picture.unassigned), (2, 1, 1));
    }

    #[test]
    fn what_a_new_list_leaves_out_is_gone() {
        let mut objects = Objects::new(labels());
        objects.apply(Apply(object("a", None, false)));
        objects.apply(Apply(object("b", None, false)));
        assert_eq!(objects.apply(Init), [Event::Relisted]);
        objects.apply(InitApply(object("a", None, false)));
        assert_eq!(objects.apply(InitDone), [Event::Gone { uid: "uid-b".to_owned() }]);
        assert_eq!(objects.apply(Delete(object("a", None, false))), [Event::Gone { uid: "uid-a".to_owned() }]);
    }

    #[test]
    fn tells_name_generation_shard_and_drain() {
        let mut objects = Objects::new(labels());
        for draining in [false, true] {
            let seen = Event::Seen {
                uid: "uid-a".to_owned(),
                name: "default/a".to_owned(),
                generation: 3,
                shard: Some("s".to_owned()),
                draining,
            };
            assert_eq!(objects.apply(Apply(object("a", Some("s"), draining))), [seen]);
        }
    }
}
