//! Who owns what, and since when an object has no owner.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use super::{
    record::Uid,
    report::{Cause, Forgotten, Gap},
};

/// The owners of all objects.
#[derive(Debug, Default)]
pub(super) struct Owners {
    objects: HashMap<Uid, Object>,
    available: HashSet<String>,
    /// The times without owner that have ended.
    pub(super) gaps: Vec<Gap>,
}

#[derive(Debug)]
struct Object {
    name: String,
    shard: Option<String>,
    unowned: Option<(Duration, Cause)>,
}

impl Owners {
    pub(super) fn seen(&mut self, at: Duration, uid: Uid, name: String, shard: Option<String>) {
        let known = self.objects.get(&uid);
        let cause = match (&shard, known) {
            (Some(shard), _) if self.available.contains(shard) => None,
            (Some(_), _) => Some(Cause::Dead),
            (None, Some(_)) => Some(Cause::Unassigned),
            (None, None) => Some(Cause::Created),
        };
        let before = known.and_then(|object| object.unowned);
        // A time without owner that goes on keeps its beginning and its cause.
        let unowned = cause.map(|cause| before.unwrap_or((at, cause)));
        if let (None, Some((from, cause))) = (unowned, before) {
            self.gaps.push(Gap { uid: uid.clone(), name: name.clone(), cause, from, until: Some(at) });
        }
        self.objects.insert(uid, Object { name, shard, unowned });
    }

    /// Returns for how long it had no owner, if it has none.
    pub(super) fn gone(&mut self, uid: &Uid, at: Duration) -> Option<Forgotten> {
        let Object { name, unowned, .. } = self.objects.remove(uid)?;
        let waited = at.saturating_sub(unowned?.0);
        Some(Forgotten { uid: uid.clone(), name, generation: None, waited })
    }

    pub(super) fn available(&mut self, at: Duration, shard: String) {
        for (uid, object) in &mut self.objects {
            if object.shard.as_ref() == Some(&shard)
                && let Some((from, cause)) = object.unowned.take()
            {
                self.gaps.push(Gap { uid: uid.clone(), name: object.name.clone(), cause, from, until: Some(at) });
            }
        }
        self.available.insert(shard);
    }

    pub(super) fn unavailable(&mut self, at: Duration, shard: &str, cause: Cause) {
        self.available.remove(shard);
        for object in self.objects.values_mut().filter(|object| object.shard.as_deref() == Some(shard)) {
            object.unowned.get_or_insert((at, cause));
        }
    }

    pub(super) fn objects_by_shard(&self) -> BTreeMap<String, usize> {
        let mut count = BTreeMap::new();
        for shard in self.objects.values().filter_map(|object| object.shard.clone()) {
            *count.entry(shard).or_default() += 1;
        }
        count
    }

    /// The times without owner that have not ended.
    pub(super) fn open_gaps(&self) -> impl Iterator<Item = Gap> + '_ {
        self.objects.iter().filter_map(|(uid, object)| {
            let (from, cause) = object.unowned?;
            Some(Gap { uid: uid.clone(), name: object.name.clone(), cause, from, until: None })
        })
    }
}
