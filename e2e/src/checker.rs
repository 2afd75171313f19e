//! Decides from records whether sharding kept its promises: was any object worked on twice at once, was any forgotten, and how
//! long was each without an owner. Whether any was taken from an owner that was still at it, [`Writes`] decide.
//!
//! Pure: records come in with the time of their receipt, a [`Report`] comes out. Who fills it is the collector
//! (reconciles, as the operator reports them) and a watch on objects and Leases.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

pub mod outside;
mod owners;
mod record;
mod report;
#[cfg(test)]
mod tests;
mod work;
mod writes;

pub use record::{Event, Outcome, Record, Uid};
#[cfg(test)]
pub(crate) use report::samples;
pub use report::{Apart, Cause, Forgotten, Gap, Overlap, Report, percentile};
pub use writes::{Change, Handover, Labels, Landed, Object, Seen, Stages, Verdict, Write, Writes};

/// Takes in records in the order of their times and keeps what the verdict needs.
#[derive(Debug, Default)]
pub struct Checker {
    work: work::Work,
    owners: owners::Owners,
    generations: HashMap<Uid, Generations>,
    /// What objects waited for that are gone.
    gone: Vec<Forgotten>,
    second_creates: usize,
}

/// Which generations of an object were written and which were worked on.
#[derive(Debug, Default)]
struct Generations {
    name: String,
    /// Written and not yet worked on, with the time at which they were seen.
    pending: BTreeMap<i64, Duration>,
    /// The highest one that was worked on to a good end.
    done: i64,
    /// The longest that one of them took.
    slowest: Option<(i64, Duration)>,
}

impl Checker {
    /// Takes in the next record. Times never go back.
    pub fn record(&mut self, record: Record) {
        let Record { at, event } = record;
        match event {
            Event::Started { uid, generation, instance } => self.work.start(at, &uid, instance, generation),
            Event::Ended { uid, generation, instance, outcome } => {
                self.work.end(&uid, &instance, generation);
                match outcome {
                    Outcome::Done => self.generations.entry(uid).or_default().worked_on(generation, at),
                    Outcome::AlreadyExists => self.second_creates += 1,
                    Outcome::Failed => {}
                }
            }
            Event::Killed { instance } => self.work.kill(&instance),
            Event::Written { uid, name, generation } => self.written(at, uid, name, generation),
            Event::Seen { uid, name, generation, shard } => {
                self.written(at, uid.clone(), name.clone(), generation);
                self.owners.seen(at, uid, name, shard);
            }
            Event::Gone { uid } => {
                let waited = self.generations.remove(&uid).and_then(|object| object.longest(&uid, at));
                self.gone.extend(waited.into_iter().chain(self.owners.gone(&uid, at)));
            }
            Event::ShardAvailable { shard } => self.owners.available(at, shard),
            Event::ShardUnavailable { shard, cause } => self.owners.unavailable(at, &shard, cause),
        }
    }

    /// How many times two instances worked on one object at once, so far.
    pub fn overlaps(&self) -> usize {
        self.work.overlaps.len()
    }

    /// How many objects are in work now.
    pub fn at_work(&self) -> usize {
        self.work.objects()
    }

    /// How many reconciles came to a good end, by instance.
    pub fn reconciles(&self) -> &BTreeMap<String, usize> {
        &self.work.reconciles
    }

    /// How many objects each shard owns, as their labels say.
    pub fn objects_by_shard(&self) -> BTreeMap<String, usize> {
        self.owners.objects_by_shard()
    }

    /// How many objects have no available owner now.
    pub fn unowned(&self) -> usize {
        self.owners.open_gaps().count()
    }

    /// How many objects have a generation that was not worked on yet.
    pub fn pending(&self) -> usize {
        self.generations.values().filter(|object| !object.pending.is_empty()).count()
    }

    /// The objects that have no available owner now, or a generation that was not worked on yet, by namespace and name.
    pub fn waiting(&self) -> BTreeSet<String> {
        let pending = self.generations.values().filter(|object| !object.pending.is_empty());
        pending.map(|object| object.name.clone()).chain(self.owners.open_gaps().map(|gap| gap.name)).collect()
    }

    /// The verdict at `now`, but for the children, which are not in the records: forgotten is what was not worked on, or had no owner, for longer than `bound`.
    pub fn report(&self, now: Duration, bound: Duration) -> Report {
        Report {
            overlaps: self.work.overlaps.clone(),
            forgotten: self.forgotten(now, bound),
            gaps: self.gaps().collect(),
            second_creates: self.second_creates,
            reconciles: self.work.reconciles.clone(),
            objects: self.objects_by_shard(),
            apart: Vec::new(),
        }
    }

    fn gaps(&self) -> impl Iterator<Item = Gap> + '_ {
        self.owners.gaps.iter().cloned().chain(self.owners.open_gaps())
    }

    fn written(&mut self, at: Duration, uid: Uid, name: String, generation: i64) {
        let generations = self.generations.entry(uid).or_default();
        generations.name = name;
        generations.written(generation, at);
    }

    fn forgotten(&self, now: Duration, bound: Duration) -> Vec<Forgotten> {
        let late = self.generations.iter().filter_map(|(uid, object)| object.longest(uid, now));
        // Also a time that has ended: an object that was found again was forgotten before.
        let unowned = self.gaps().map(|gap| {
            let waited = gap.until.unwrap_or(now).saturating_sub(gap.from);
            Forgotten { uid: gap.uid, name: gap.name, generation: None, waited }
        });
        late.chain(unowned).chain(self.gone.iter().cloned()).filter(|one| one.waited > bound).collect()
    }
}

impl Generations {
    /// The one that waited longest until then to be worked on, or waits still.
    fn longest(&self, uid: &Uid, at: Duration) -> Option<Forgotten> {
        let pending = self.pending.iter().map(|(generation, since)| (*generation, at.saturating_sub(*since)));
        let (generation, waited) = pending.chain(self.slowest).max_by_key(|(_, waited)| *waited)?;
        Some(Forgotten { uid: uid.clone(), name: self.name.clone(), generation: Some(generation), waited })
    }

    fn written(&mut self, generation: i64, at: Duration) {
        if generation > self.done {
            self.pending.entry(generation).or_insert(at);
        }
    }

    /// Work on a generation covers all earlier ones: the controller acts on the newest that it knows.
    fn worked_on(&mut self, generation: i64, at: Duration) {
        self.done = self.done.max(generation);
        let later = self.pending.split_off(&(generation + 1));
        for (generation, since) in std::mem::replace(&mut self.pending, later) {
            let took = at.saturating_sub(since);
            if self.slowest.is_none_or(|(_, slowest)| took > slowest) {
                self.slowest = Some((generation, took));
            }
        }
    }
}
