//! All versions of one object.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::Bound,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};

use super::{Change, Labels, Write};
use crate::checker::Uid;

#[derive(Debug, Default)]
pub(super) struct History {
    versions: BTreeMap<ResourceVersion, Version>,
    /// Its deletion. Nothing is written to an object after that.
    deleted: Option<Version>,
}

/// An object from a write on, until the next.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) write: Write,
    pub(super) labels: Labels,
}

impl Version {
    /// From its answer until another one was asked for.
    pub(super) fn lasted_until(&self, other: &Self) -> Duration {
        other.write.received.duration_since(self.write.answered).try_into().unwrap_or_default()
    }
}

impl History {
    pub(super) fn record(&mut self, write: Write) {
        let version = Version { labels: write.object.labels.clone().unwrap_or_default(), write };
        if version.write.change == Change::Deleted {
            // A second deletion finds nothing; a collection's is answered with what there was before.
            let first = self.deleted.as_ref().is_none_or(|known| version.write.answered < known.write.answered);
            if first {
                self.deleted = Some(version);
            }
            return;
        }
        let Some(number) = version.write.object.version.clone() else { return };
        match self.versions.entry(number) {
            Entry::Vacant(entry) => {
                entry.insert(version);
            }
            // A write that changes nothing is answered with the version that it found: the one that made it came first.
            Entry::Occupied(mut entry) if version.write.answered < entry.get().write.answered => {
                entry.insert(version);
            }
            Entry::Occupied(_) => {}
        }
    }

    /// Fills in the labels that an answer did not show: such a write did not change them.
    pub(super) fn complete(&mut self) {
        let mut last = Labels::default();
        for version in self.versions.values_mut() {
            if version.write.object.labels.is_none() {
                version.labels = last;
            }
            last = version.labels.clone();
        }
    }

    /// Each version with the one before, the deletion last.
    pub(super) fn steps(&self) -> impl Iterator<Item = (Option<&Version>, &Version)> {
        let all = || self.versions.values().chain(&self.deleted);
        std::iter::once(None).chain(all().map(Some)).zip(all())
    }

    /// How it was when another object got this version. A deletion has none: there the time decides.
    pub(super) fn at(&self, other: &Version) -> Option<&Version> {
        if other.write.change == Change::Deleted {
            return self.versions.values().rfind(|version| version.write.answered <= other.write.answered);
        }
        let before = (Bound::Unbounded, Bound::Excluded(other.write.object.version.as_ref()?));
        self.versions.range::<ResourceVersion, _>(before).next_back().map(|(_, version)| version)
    }

    /// The first version that it got after another object got this one.
    pub(super) fn after(&self, other: &Version) -> Option<&Version> {
        let after = (Bound::Excluded(other.write.object.version.as_ref()?), Bound::Unbounded);
        self.versions.range::<ResourceVersion, _>(after).next().map(|(_, version)| version)
    }

    /// What began the drain which the object is in at this version of its own.
    pub(super) fn drained_since(&self, at: &Version) -> Option<(&ResourceVersion, &Version)> {
        let same = |version: &Version| version.labels.drain.is_some() && version.labels == at.labels;
        let until = (Bound::Unbounded, Bound::Included(at.write.object.version.as_ref()?));
        let drained = self.versions.range::<ResourceVersion, _>(until).rev().take_while(|(_, version)| same(version));
        drained.last()
    }

    /// Whether it was gone when another object got this version.
    pub(super) fn is_gone_at(&self, other: &Version) -> bool {
        self.deleted.as_ref().is_some_and(|deletion| deletion.write.received <= other.write.answered)
    }

    /// Whether no version of it was recorded.
    pub(super) fn has_none(&self) -> bool {
        self.versions.is_empty()
    }

    pub(super) fn has(&self, version: &ResourceVersion) -> bool {
        self.versions.contains_key(version)
    }

    /// Its last controller: one that comes again under the name of another adopts what that has left.
    pub(super) fn controller(&self) -> Option<&Uid> {
        let all = self.versions.values().chain(&self.deleted);
        all.rev().find_map(|version| version.write.object.controller.as_ref())
    }

    /// Its controller by a write to it, or to anything else (all resources have their versions from one etcd): the one that was
    /// named last. A later write may name another, and that one be gone, where a controller relies on what it had seen
    /// before.
    pub(super) fn controller_by(&self, version: &Version) -> Option<&Uid> {
        let number = version.write.object.version.as_ref();
        let until = number.map(|number| self.versions.range(..=number).rev());
        let mut until = until.into_iter().flatten().map(|(_, version)| version);
        until.find_map(|version| version.write.object.controller.as_ref()).or_else(|| self.controller())
    }

    /// Its controller at a time at which it was there.
    pub(super) fn controller_at(&self, time: Timestamp) -> Option<&Uid> {
        self.before(time).find_map(|version| version.write.object.controller.as_ref())
    }

    /// Its shard at a time at which it was there.
    pub(super) fn shard_at(&self, time: Timestamp) -> Option<String> {
        self.before(time).next()?.labels.shard.clone()
    }

    /// When it had come from another to whose it was at a time.
    pub(super) fn moved_by(&self, time: Timestamp) -> Option<Timestamp> {
        let mut versions = self.before(time);
        let mut first = versions.next()?;
        let shard = &first.labels.shard;
        for version in versions {
            match &version.labels.shard {
                of if of == shard => first = version,
                Some(_) => return Some(first.write.answered),
                None => {}
            }
        }
        None
    }

    /// Whether it was there then.
    pub(super) fn is_there_at(&self, time: Timestamp) -> bool {
        self.before(time).next().is_some()
    }

    /// The versions of before a time at which it was there, the latest first.
    fn before(&self, time: Timestamp) -> impl Iterator<Item = &Version> {
        let gone = self.deleted.as_ref().is_some_and(|deletion| deletion.write.answered < time);
        self.versions.values().rev().filter(move |version| !gone && version.write.answered <= time)
    }

    /// Whether the shard that was refused had made it then or later, and no other shard had it until the refusal.
    pub(super) fn was_made_since(&self, since: Timestamp, refused: &Write) -> bool {
        let Some(first) = self.before(refused.received).last().map(|version| &version.write) else { return false };
        first.change == Change::Created
            && first.answered >= since
            && refused.shard.is_some()
            && first.shard == refused.shard
            && self.before(refused.received).all(|version| {
                // Without an answer of the webhook it has no label for a moment.
                version.labels.shard.is_none() || version.labels.shard == refused.shard
            })
    }

    /// Whether it had no shard at any version of before that one.
    pub(super) fn was_nobodys_until(&self, version: &Version) -> bool {
        let number = version.write.object.version.as_ref();
        self.versions.iter().take_while(|(at, _)| Some(*at) != number).all(|(_, before)| before.labels.shard.is_none())
    }

    /// Whether it has this resource and name.
    pub(super) fn is_named(&self, resource: &GroupResource, name: &str) -> bool {
        let write = self.versions.values().map(|version| &version.write).next();
        write.is_some_and(|write| write.resource == *resource && write.object.name == name)
    }

    /// Versions by a shard that have its own label, without a write of that label in between the one before and it; with both
    /// numbers.
    pub(super) fn gaps(&self) -> impl Iterator<Item = ([&ResourceVersion; 2], &Version, &Version)> {
        self.versions.iter().zip(self.versions.iter().skip(1)).filter_map(|((last, before), (number, version))| {
            let finds_its_own = version.write.shard.is_some() && version.labels.shard == version.write.shard;
            (finds_its_own && before.labels.shard != version.labels.shard).then_some(([last, number], before, version))
        })
    }

    /// The number of its last version of before a time.
    pub(super) fn number_at(&self, time: Timestamp) -> Option<&ResourceVersion> {
        self.versions.iter().rfind(|(_, version)| version.write.answered <= time).map(|(number, _)| number)
    }

    pub(super) fn deletion(&self) -> Option<&Version> {
        self.deleted.as_ref()
    }

    pub(super) fn uid(&self) -> Option<&Uid> {
        self.versions.values().chain(&self.deleted).map(|version| &version.write.object.uid).next()
    }
}
