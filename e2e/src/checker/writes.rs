//! Decides from the API server's audit log what the checker's other records can't show: whether any write of a shard
//! landed on what was not its own, and whether children went with their owners.
//!
//! The order is that of the resourceVersions. Kubernetes promises it within one resource only; the harness has one etcd,
//! whose revision they are, so here they order all objects.

use std::{
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use ringside_ring::{MAX_OWNER_DEPTH, ResourceVersion, cluster_ring::GroupResource};

mod barred;
mod children;
mod creates;
mod handovers;
mod history;
mod lost;
mod record;
#[cfg(test)]
mod tests;
mod verdict;

use self::history::{History, Version};
pub use self::{
    record::{Change, Labels, Object, Seen, Write},
    verdict::{Handover, Landed, Stages, Verdict},
};
use super::record::Uid;

/// For so long after an object is gone its shard may still write what it had begun, by the name that another one has by then.
const BEGUN: SignedDuration = SignedDuration::from_secs(3);

/// Requests without an answer, by resource and name.
type Unanswered = HashMap<(GroupResource, String), Vec<Write>>;

/// Takes in writes in any order. What is kept of each is its version and labels.
#[derive(Debug, Default)]
pub struct Writes {
    objects: HashMap<Uid, History>,
    /// Creates that were refused, because there was such an object.
    refused: Vec<Write>,
    /// What the API server's fence refused.
    barred: Vec<Write>,
    unanswered: Unanswered,
    /// What watches showed.
    seen: Vec<Seen>,
    /// By namespace and name of a Lease: who held it, as of which version.
    holders: HashMap<String, BTreeMap<ResourceVersion, (Write, Option<String>)>>,
}

impl Writes {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a write.
    pub fn record(&mut self, write: Write) {
        if write.resource.resource == "leases" {
            if let Some(version) = write.object.version.clone() {
                let name = write.object.name.clone();
                let holder = write.object.holder.clone().filter(|holder| !holder.is_empty());
                self.holders.entry(name).or_default().insert(version, (write, holder));
            }
        } else if write.change == Change::Unanswered {
            let which = (write.resource.clone(), write.object.name.clone());
            self.unanswered.entry(which).or_default().push(write);
        } else if write.change == Change::Refused {
            self.refused.push(write);
        } else if write.change == Change::Barred {
            self.barred.push(write);
        } else {
            self.objects.entry(write.object.uid.clone()).or_default().record(write);
        }
    }

    /// Takes in a version that a watch showed. Those that no answer told were made by a client that got no answer.
    pub fn seen(&mut self, seen: Seen) {
        self.seen.push(seen);
    }

    /// Gives each version that only watches showed to who may have made it.
    fn attribute(&mut self) {
        for Seen { at, resource, object } in std::mem::take(&mut self.seen) {
            let history = self.objects.entry(object.uid.clone()).or_default();
            let Some(version) = object.version.clone().filter(|version| !history.has(version)) else { continue };
            // The last one who asked before it was there: answers come within a second, if they do.
            let tried = tried(&self.unanswered, &resource, &object.name).filter(|write| write.received <= at);
            let by = tried.max_by_key(|write| write.received);
            // Nothing is written to an object before its creation.
            let change = if history.has_none() { Change::Created } else { Change::Updated };
            let version = Some(version);
            history.record(Write {
                id: by.map(|by| by.id.clone()).unwrap_or_default(),
                received: by.map_or(at, |by| by.received),
                answered: at,
                shard: by.and_then(|by| by.shard.clone()),
                by_sharder: by.is_some_and(|by| by.by_sharder),
                change,
                resource,
                object: Object { version, ..object },
            });
        }
    }

    /// Puts in what must have landed although no answer and no watch tells: a shard finds its own label where another's was, or
    /// none, and who may have put it there had asked for a write in between and got no answer, as when the API server was
    /// killed. From one shard to another that is the sharder; where there was none, any client's write may pass the
    /// webhook.
    fn put_in_unseen(&mut self) {
        let mut unseen = Vec::new();
        for ([last, next], before, version) in self.objects.values().flat_map(History::gaps) {
            let between = before.write.received..=version.write.answered;
            let was_free = before.labels.shard.is_none();
            let may_give = |write: &&Write| write.by_sharder || was_free && write.shard.is_none();
            let tried = self.tried(&version.write, between).filter(may_give);
            let Some(by) = tried.max_by_key(|write| write.received) else { continue };
            let then = self.objects.values().filter_map(|history| history.number_at(by.received)).max();
            // Between both, and where the others were by then.
            let place = (then.map_or(0, number) + 1).clamp(number(last) + 1, number(next).max(number(last) + 2) - 1);
            let object = Object {
                version: place.to_string().parse().ok(),
                labels: Some(version.labels.clone()),
                ..version.write.object.clone()
            };
            unseen.push(Write { answered: by.received, change: Change::Updated, object, ..by.clone() });
        }
        unseen.into_iter().for_each(|write| self.record(write));
    }

    /// What all of them come to.
    pub fn verdict(mut self) -> Verdict {
        self.attribute();
        self.objects.values_mut().for_each(History::complete);
        self.put_in_unseen();
        let mut verdict = Verdict::default();
        self.second_creates(&mut verdict);
        for history in self.objects.values() {
            for (before, version) in history.steps() {
                if let Some(shard) = &version.write.shard {
                    verdict.by_shards += 1;
                    self.judge(history, before, version, shard, &mut verdict);
                }
            }
            self.losses(history, &mut verdict);
            self.children(history, &mut verdict);
        }
        verdict.handovers = self.handovers();
        self.barred(&mut verdict);
        verdict
    }

    /// A write of a shard: whose was the object, and whose its owner, just before?
    fn judge(
        &self,
        history: &History,
        before: Option<&Version>,
        version: &Version,
        shard: &str,
        verdict: &mut Verdict,
    ) {
        // The owner may be gone, or not be recorded.
        let owner = self.root_by(history, version).and_then(|root| root.at(version));
        let own = match (version.write.change, before) {
            // Whose a new object is, its owner tells, if it has one.
            (Change::Created, _) => owner.is_none().then_some(Some(shard)),
            (_, Some(before)) => Some(before.labels.shard.as_deref()),
            (_, None) => {
                verdict.unknown += 1;
                return;
            }
        };
        let holders = own.into_iter().chain(owner.map(|owner| owner.labels.shard.as_deref()));
        if let Some(other) = holders.clone().flatten().find(|holder| *holder != shard) {
            verdict.foreign.push(Landed::of(&version.write, Some(shard), Some(other)));
        } else if holders.clone().all(|holder| holder.is_none()) && !self.is_for_the_one_before(history, version, shard)
        {
            verdict.late.push(Landed::of(&version.write, Some(shard), None));
        }
    }

    /// Whether no shard has had the object so far, and another one of its name was the shard's until a moment ago: a
    /// patch names no uid, and without shards as well it would land on the new one.
    fn is_for_the_one_before(&self, history: &History, version: &Version, shard: &str) -> bool {
        let just_gone = |gone: &Version| {
            let since = version.write.received.duration_since(gone.write.received);
            !since.is_negative() && since <= BEGUN
        };
        let was_its = |other: &History| {
            let gone = other.deletion().filter(|gone| just_gone(gone));
            gone.is_some_and(|gone| other.shard_at(gone.write.received).as_deref() == Some(shard))
        };
        history.was_nobodys_until(version) && self.named(&version.write).any(was_its)
    }

    /// The objects of the same resource and name.
    fn named(&self, write: &Write) -> impl Iterator<Item = &History> {
        self.objects.values().filter(move |history| history.is_named(&write.resource, &write.object.name))
    }

    /// The requests about the same object that arrived in this time, and were not answered.
    fn tried(&self, write: &Write, between: RangeInclusive<Timestamp>) -> impl Iterator<Item = &Write> {
        let tried = tried(&self.unanswered, &write.resource, &write.object.name);
        tried.filter(move |tried| between.contains(&tried.received))
    }

    /// The object that a child belongs to in the end, where that was recorded.
    fn root(&self, child: &History) -> Option<&History> {
        self.above(child, History::controller)
    }

    /// The same by a write to it, or to anything else: one that comes again under the name of another adopts what that has left.
    fn root_by(&self, child: &History, version: &Version) -> Option<&History> {
        self.above(child, |history| history.controller_by(version))
    }

    fn above(&self, child: &History, controller: impl Fn(&History) -> Option<&Uid>) -> Option<&History> {
        let mut above = self.objects.get(controller(child)?)?;
        for _ in 0..MAX_OWNER_DEPTH {
            match controller(above).and_then(|uid| self.objects.get(uid)) {
                Some(next) => above = next,
                None => return Some(above),
            }
        }
        None
    }
}

/// The requests about an object that were not answered.
fn tried<'a>(
    unanswered: &'a Unanswered,
    resource: &GroupResource,
    name: &str,
) -> impl Iterator<Item = &'a Write> + use<'a> {
    unanswered.get(&(resource.clone(), name.to_owned())).into_iter().flatten()
}

fn number(version: &ResourceVersion) -> u64 {
    version.to_string().parse().unwrap_or_default()
}
