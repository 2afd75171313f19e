//! How many objects of a ring are with whom, without a memory of them.
//!
//! A pass over all objects counts them as it goes by, and what this replica moves from then on is added to that. What
//! others do in between, objects that are created or deleted, is in the next count. Objects without owner are known one by
//! one, as long as they are few: they are being worked on.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::SystemTime,
};

use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use ringside_ring::{Members, cluster_ring::GroupResource};
use tokio::time::Instant;

mod away;
mod lone;

use self::away::Away;
pub(crate) use self::lone::Lone;
use crate::resources::Object;

/// Objects without owner that are known one by one at most (DESIGN, "Sharder": memory must not grow with the objects). More
/// are counted by the passes.
const CAPACITY: usize = 10_000;

/// Objects by the shard that their label names; under none those that have no label, or one that is no shard's.
type Tally = BTreeMap<Option<String>, i64>;

/// The counts of one ring; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Census(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    counts: BTreeMap<GroupResource, Counts>,
    /// Of resources that nothing is known of yet, since when the leader before knew something to be without owner.
    before: BTreeMap<GroupResource, SystemTime>,
    /// By controlled resource, as the last whole pass found them.
    lone: BTreeMap<GroupResource, Lone>,
}

#[derive(Default)]
struct Counts {
    /// Since when the leader before knew something to be without owner, until the first list of that is whole.
    before: Option<SystemTime>,
    /// The uids in that list that nothing is known of yet, since when they may be known, and the last list that they are in.
    found: HashMap<String, (SystemTime, u64)>,
    /// As the last whole pass found them, with what has moved since.
    objects: Tally,
    /// When that pass began.
    counted: Option<(Instant, SystemTime)>,
    away: Away,
    /// What has moved since the pass under way began.
    moved: Tally,
    /// When that began.
    began: Option<Instant>,
    unowned: HashMap<String, Unowned>,
    /// How many lists of the objects without owner have begun.
    lists: u64,
    /// Whether the last of them has ended.
    listed: bool,
    /// Since when there is no shard that could have them.
    vacant: Option<SystemTime>,
}

/// An object without owner.
struct Unowned {
    since: Instant,
    seen_at: SystemTime,
    list: u64,
}

/// How the objects of a resource are distributed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// By available shard; none before the first pass.
    pub(crate) shards: Option<BTreeMap<String, u64>>,
    /// Those that no available shard has.
    pub(crate) unassigned: u64,
    /// Since when the first of them has been known to be.
    pub(crate) unassigned_since: Option<SystemTime>,
    /// When the pass began that counted them.
    pub(crate) counted: Option<SystemTime>,
}

/// A count under way. Without an end it is none.
pub(crate) struct Pass<'a> {
    census: &'a Census,
    resource: &'a GroupResource,
    began: (Instant, SystemTime),
    objects: Tally,
    away: Away,
}

impl Census {
    /// After a leader that said by the ring's status since when something has been without owner. Which object that was it did
    /// not say: so it may be any that is there when this one looks first.
    pub(crate) fn after<'a>(resources: impl IntoIterator<Item = &'a GroupResource>, since: Option<SystemTime>) -> Self {
        let before = resources.into_iter().cloned().zip(std::iter::repeat(since));
        let before = before.filter_map(|(resource, since)| Some((resource, since?))).collect();
        Self(Arc::new(Mutex::new(State { before, ..State::default() })))
    }

    /// A pass over all objects of a resource begins, once the answer has: that shows them as they were by then, and what
    /// moves from here on is added to it.
    pub(crate) fn pass<'a>(&'a self, resource: &'a GroupResource) -> Pass<'a> {
        let began = (Instant::now(), SystemTime::now());
        self.with(resource, |counts| {
            counts.moved.clear();
            counts.began = Some(began.0);
        });
        Pass { census: self, resource, began, objects: Tally::new(), away: Away::default() }
    }

    /// What the watch on objects without owner shows.
    pub(crate) fn shown(&self, resource: &GroupResource, event: &Event<Object>) {
        self.with(resource, |counts| match event {
            Event::Init => {
                counts.lists += 1;
                counts.listed = false;
            }
            Event::InitApply(object) => {
                let Some(uid) = &object.metadata.uid else { return };
                if let Some(known) = counts.unowned.get_mut(uid) {
                    known.list = counts.lists;
                } else if let Some((_, list)) = counts.found.get_mut(uid) {
                    *list = counts.lists;
                } else if let Some(since) = counts.before.filter(|_| counts.found.len() < CAPACITY) {
                    counts.found.insert(uid.clone(), (since, counts.lists));
                }
            }
            Event::InitDone => {
                let list = counts.lists;
                counts.unowned.retain(|_, known| known.list == list);
                counts.found.retain(|_, (_, last)| *last == list);
                counts.listed = true;
                counts.before = None;
            }
            Event::Apply(_) => {}
            Event::Delete(object) => {
                let Some(uid) = &object.metadata.uid else { return };
                counts.unowned.remove(uid);
                counts.found.remove(uid);
            }
        });
    }

    /// The object needs an owner.
    pub(crate) fn waits(&self, resource: &GroupResource, uid: &str) {
        self.with(resource, |counts| {
            let found = counts.found.remove(uid);
            if !counts.unowned.contains_key(uid) && counts.unowned.len() < CAPACITY {
                let seen_at = found.map_or_else(SystemTime::now, |(since, _)| since);
                let unowned = Unowned { since: Instant::now(), seen_at, list: counts.lists };
                counts.unowned.insert(uid.to_owned(), unowned);
            }
        });
    }

    /// The object needs none any more: it is gone, or somebody else gave it one.
    pub(crate) fn settled(&self, resource: &GroupResource, uid: &str) {
        self.with(resource, |counts| {
            counts.unowned.remove(uid);
            counts.found.remove(uid);
        });
    }

    /// Since when the object has been known to be without owner. To be asked before it is given one: the watch may show that
    /// it has one before the answer to the write is here, and what it needs is forgotten by then.
    pub(crate) fn unowned_since(&self, resource: &GroupResource, uid: &str) -> Option<Instant> {
        self.with(resource, |counts| counts.unowned.get(uid).map(|unowned| unowned.since))
    }

    /// The object, whose label names `label`, which `left` had before as far as is known, and which has been without owner
    /// since `since`, was given to `to`.
    pub(crate) fn given(
        &self,
        resource: &GroupResource,
        (uid, since): (&str, Option<Instant>),
        (label, left): (Option<&str>, Option<&str>),
        to: &str,
    ) {
        self.with(resource, |counts| {
            counts.unowned.remove(uid);
            let counted = counts.counted.map(|(began, _)| began);
            for (tally, began) in [(&mut counts.objects, counted), (&mut counts.moved, counts.began)] {
                // A pass that began after its shard had let go of it has found it with nobody.
                let let_go = label.is_none() && since.zip(began).is_some_and(|(since, began)| since < began);
                let from = if let_go { None } else { left };
                *tally.entry(from.map(str::to_owned)).or_default() -= 1;
                *tally.entry(Some(to.to_owned())).or_default() += 1;
            }
            // Not counted before: it is new.
            counts.objects.retain(|_, objects| *objects > 0);
        });
    }

    /// Whether the last whole pass found that an object stays with another shard than the hash ring names.
    pub(crate) fn is_away(&self, resource: &GroupResource, uid: &str) -> bool {
        self.0.lock().counts.get(resource).is_some_and(|counts| counts.away.contains(uid))
    }

    /// A whole pass over the objects of a controlled resource found these.
    pub(crate) fn found_lone(&self, resource: &GroupResource, lone: Lone) {
        self.0.lock().lone.insert(resource.clone(), lone);
    }

    /// What was found of controlled resources; none of those that were not looked through yet.
    pub(crate) fn lone(&self, controlled: &BTreeSet<&GroupResource>) -> BTreeMap<GroupResource, Lone> {
        let known = &self.0.lock().lone;
        known
            .iter()
            .filter(|(resource, _)| controlled.contains(resource))
            .map(|(id, lone)| (id.clone(), lone.clone()))
            .collect()
    }

    /// Forgets the counts of all other resources. What the leader before knew of those that the ring names, but which are not
    /// served yet, stays.
    pub(crate) fn keep_only<T>(&self, resources: &BTreeSet<&GroupResource>, named: &BTreeMap<GroupResource, T>) {
        let State { counts, before, .. } = &mut *self.0.lock();
        counts.retain(|resource, _| resources.contains(resource));
        before.retain(|resource, _| named.contains_key(resource));
    }

    /// How the objects of each resource are distributed among these shards.
    pub(crate) fn figures(&self, members: &Members) -> BTreeMap<GroupResource, Figures> {
        let counts = &mut self.0.lock().counts;
        counts.iter_mut().map(|(resource, counts)| (resource.clone(), counts.figures(members))).collect()
    }

    fn with<T>(&self, resource: &GroupResource, change: impl FnOnce(&mut Counts) -> T) -> T {
        let State { counts, before, .. } = &mut *self.0.lock();
        match counts.get_mut(resource) {
            Some(counts) => change(counts),
            None => {
                let new = Counts { before: before.remove(resource), ..Counts::default() };
                change(counts.entry(resource.clone()).or_insert(new))
            }
        }
    }
}

impl Pass<'_> {
    /// An object whose label names `shard`.
    pub(crate) fn count(&mut self, members: &Members, shard: Option<&str>) {
        let shard = shard.filter(|shard| members.state(shard).is_some());
        match self.objects.get_mut(&shard.map(str::to_owned)) {
            Some(objects) => *objects += 1,
            None => {
                self.objects.insert(shard.map(str::to_owned), 1);
            }
        }
    }

    /// An object that stays with another shard than the hash ring names.
    pub(crate) fn away(&mut self, uid: &str) {
        self.away.insert(uid);
    }

    /// All were seen, as they were when the answer began. All pages of a list show the state of the first (Kubernetes,
    /// "Retrieving large results sets in chunks"). A streaming list begins with one state as well; what changes before its
    /// end comes as another event, which a survey leaves out.
    pub(crate) fn end(mut self) {
        let began = self.began;
        self.census.with(self.resource, |counts| {
            for (shard, moved) in std::mem::take(&mut counts.moved) {
                *self.objects.entry(shard).or_default() += moved;
            }
            self.objects.retain(|_, objects| *objects > 0);
            counts.objects = std::mem::take(&mut self.objects);
            counts.counted = Some(began);
            counts.away = std::mem::take(&mut self.away);
        });
    }
}

impl Counts {
    fn figures(&mut self, members: &Members) -> Figures {
        let count = |objects: i64| u64::try_from(objects).unwrap_or_default();
        let mut shards: BTreeMap<String, u64> = members.available().map(|shard| (shard.to_string(), 0)).collect();
        let mut nobodys = 0;
        for (shard, objects) in &self.objects {
            match shard.as_ref().and_then(|shard| shards.get_mut(shard)) {
                Some(of_shard) => *of_shard = count(*objects),
                None => nobodys += count(*objects),
            }
        }
        self.vacant = shards.is_empty().then(|| self.vacant.or(self.before).unwrap_or_else(SystemTime::now));
        let known = self.unowned.len();
        // Those are all that there are, unless there are too many, or the list of them has not ended. Without shards nobody lists
        // them.
        let all_known = self.listed && known < CAPACITY && self.vacant.is_none();
        let known = u64::try_from(known).unwrap_or(u64::MAX);
        let unassigned = if all_known { known } else { known.max(nobodys) };
        let vacant = self.vacant.filter(|_| unassigned > 0);
        Figures {
            shards: self.counted.is_some().then_some(shards),
            unassigned,
            unassigned_since: self.unowned.values().map(|unowned| unowned.seen_at).chain(vacant).min(),
            counted: self.counted.map(|(_, at)| at),
        }
    }
}

#[cfg(test)]
mod tests;
