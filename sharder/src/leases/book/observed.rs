//! One shard Lease with what was observed of it.

use std::sync::Arc;

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use ringside_ring::{
    Controller, Moment, ResourceVersion, RingName, ShardName, Weight,
    labels::{LEASE_ADMITTED, LEASE_GROUP, LEASE_INSTANCE, LEASE_RING_GENERATION, LEASE_STATE},
    lease::{Judgement, LeaseFacts, LeaseOwner, ShardState, annotation, duration_fault, group, judge},
    weight::InvalidWeight,
};

/// A shard Lease with what was observed of it.
#[derive(Clone, Debug)]
pub(in crate::leases) struct Observed {
    pub(in crate::leases) ring: RingName,
    pub(in crate::leases) shard: ShardName,
    pub(in crate::leases) facts: LeaseFacts,
    pub(in crate::leases) owner: LeaseOwner,
    pub(in crate::leases) weight: Result<Weight, InvalidWeight>,
    /// When its controller was first seen to be absent, on the clock that does not step and for people; none while it works.
    pub(in crate::leases) absent: Option<(Moment, Timestamp)>,
    /// When its spec was last seen to change, or it was first seen.
    pub(in crate::leases) changed: Moment,
    /// Whether a judge before had found it late when it was first seen, and it has not been renewed since.
    pub(super) late_before: bool,
    /// Whether an answer of the API server was older than this: overtaken by the watch, as may be once.
    pub(super) contradicted: bool,
    /// The Lease over which its shard wrote its last renewal, so that it had read this.
    pub(super) read: Option<Arc<Lease>>,
    pub(in crate::leases) lease: Arc<Lease>,
}

impl Observed {
    /// Its state, by what this replica itself observed; `led_since`: for a replica that leads since then.
    ///
    /// An outage of the API server ends with a new leader, too, and then no shard has renewed. So the first half duration of a
    /// leader makes no Lease uncertain.
    pub(in crate::leases) fn judge(&self, now: Moment, led_since: Moment) -> Judgement {
        let duration = self.facts.duration;
        judge(&self.facts, self.changed.max(led_since - (duration + duration / 2)), now)
    }

    /// The state that its label tells people.
    pub(in crate::leases) fn state_label(&self) -> Option<&str> {
        state_label(&self.lease)
    }

    /// How much of the objects it gets. What can't be read counts as 1: a typing error must not empty the shard.
    pub(in crate::leases) fn weight(&self) -> Weight {
        self.weight.clone().unwrap_or_default()
    }

    /// The group of shards that it is of.
    pub(in crate::leases) fn group(&self) -> Option<&str> {
        group(&self.lease)
    }

    /// Whether its shard has read this annotation as it is now.
    pub(in crate::leases) fn has_read(&self, mark: &str) -> bool {
        let now = annotation(&self.lease, mark);
        now.is_some() && self.read.as_deref().is_some_and(|read| annotation(read, mark) == now)
    }

    pub(super) fn is_same_lease(&self, other: &Self) -> bool {
        self.lease.metadata.uid == other.lease.metadata.uid
    }

    /// Whether `self` is an older state than `other`. A write's answer overtakes the watch, and another API server may
    /// lag. Taking it would bring a dead shard back to life for a moment.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        is_older(&self.lease, &other.lease)
    }

    /// What is known of a Lease that was seen as `self` when it was known as `known`, or before time went back.
    pub(super) fn after(mut self, known: &Self, time_went_back: bool) -> Self {
        if self.is_older_than(known) && !time_went_back {
            return known.clone();
        }
        self.absent = self.absent.map(|now| known.absent.unwrap_or(now));
        // Metadata is no sign of life: the state label is written by the sharder itself.
        if self.is_same_lease(known) && self.lease.spec == known.lease.spec {
            self.changed = known.changed;
            self.late_before = known.late_before;
            self.read = known.read.clone();
        } else {
            self.late_before = false;
            self.read = (self.is_same_lease(known) && self.facts.held_by_shard).then(|| known.lease.clone());
        }
        self
    }

    /// Its state for the placement of objects. A shard that a judge before found late is expired until it renews.
    pub(super) fn state(&self, now: Moment, since: Moment) -> ShardState {
        match self.judge(now, since).state {
            ShardState::Ready if self.late_before => ShardState::Expired,
            state => state,
        }
    }
}

/// The state that a Lease's label tells people.
pub(in crate::leases) fn state_label(lease: &Lease) -> Option<&str> {
    lease.metadata.labels.as_ref()?.get(LEASE_STATE).map(String::as_str)
}

/// Whether `this` is an older state of the same Lease.
pub(super) fn is_older(this: &Lease, that: &Lease) -> bool {
    let version = |of: &Lease| of.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    let (older, newer): (Option<ResourceVersion>, Option<ResourceVersion>) = (version(this), version(that));
    this.metadata.uid == that.metadata.uid && older.zip(newer).is_some_and(|(older, newer)| older < newer)
}

/// What decides about membership, about what belongs to whom, and about when that is next to be looked at.
pub(super) type Facts<'a> =
    (&'a RingName, &'a LeaseFacts, LeaseOwner, &'a Result<Weight, InvalidWeight>, Option<String>, Told<'a>);

/// The instance, what it was told, its group, what it has read of what it was told, and whether its controller works.
type Told<'a> = ([Option<&'a str>; 4], [bool; 2], Controller);

pub(super) fn facts_of(observed: &Observed) -> Facts<'_> {
    let Observed { ring, facts, owner, weight, lease, .. } = observed;
    let told = [LEASE_INSTANCE, LEASE_ADMITTED, LEASE_RING_GENERATION, LEASE_GROUP].map(|mark| annotation(lease, mark));
    let has_read = [LEASE_ADMITTED, LEASE_RING_GENERATION].map(|mark| observed.has_read(mark));
    (ring, facts, *owner, weight, duration_fault(lease), (told, has_read, Controller::of(lease)))
}
