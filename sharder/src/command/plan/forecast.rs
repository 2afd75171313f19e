//! What would become of the objects of a ring: counts, by shard and by move.

use std::{collections::BTreeMap, num::NonZeroU32};

use ringside_ring::{
    Members, Ownership, RingName, ShardName, Weight,
    cluster_ring::GroupResource,
    decide::{self, Action},
    lease::ShardState,
};
use ringside_runtime::explain::explain;
use serde::Serialize;
use serde_json::{Value, json};

use crate::snapshot::Snapshot;

/// How an object comes to its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum How {
    /// It has none: it gets one.
    Assigned,
    /// The one that it has is asked to release it.
    Drained,
    /// The one that it has was asked already.
    UnderWay,
    /// The one that it has is not there.
    Taken,
    /// Its controller is there, or is about to be.
    Follows,
    /// It has left the ring, and the one that it has is asked to release it.
    Withdrawn,
    /// It has left the ring, and its labels come off without a drain.
    Released,
}

/// How an object changes its shard.
pub(super) const MOVED: [How; 3] = [How::Drained, How::UnderWay, How::Taken];

impl How {
    pub(super) fn for_people(self) -> &'static str {
        match self {
            Self::Assigned => "assigned: without shard until now",
            Self::Drained => "drained: its shard releases it first",
            Self::UnderWay => "under way: its shard was asked to release it",
            Self::Taken => "taken: its shard is not there",
            Self::Follows => "follows its owner",
            Self::Withdrawn => "withdrawn: left the ring, its shard releases it first",
            Self::Released => "released: left the ring, its labels come off",
        }
    }
}

/// Objects of one resource that go the same way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Way {
    pub(super) resource: GroupResource,
    pub(super) from: Whose,
    pub(super) to: Whose,
    pub(super) how: How,
}

/// Whom an object belongs to now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    Shard(ShardName),
    Nobody,
    /// A name that no shard of the ring has. All are counted as one: a user can write any number of them.
    Others,
}

/// A shard, and how many objects it has of those that are placed by their own keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) state: &'static str,
    pub(super) weight: Weight,
    pub(super) now: u64,
    pub(super) then: u64,
}

/// What would become of the objects of a ring.
#[derive(Debug)]
pub struct Forecast {
    pub(super) ring: RingName,
    pub(super) tokens_per_shard: NonZeroU32,
    /// How many shards take part, now and then.
    pub(super) replicas: (usize, usize),
    pub(super) shards: BTreeMap<ShardName, Standing>,
    /// Objects that no shard of the ring has, now and then.
    pub(super) without: (u64, u64),
    pub(super) ways: BTreeMap<Way, u64>,
    /// Objects and children that were looked at.
    pub(super) objects: u64,
    pub(super) children: u64,
    /// Whether the ring is paused.
    pub(super) is_paused: bool,
    /// What is wrong with the ring, and what could not be looked at.
    pub(super) problems: Vec<String>,
    pub(super) unread: Vec<String>,
}

impl Forecast {
    /// Of nothing yet. `snapshot` has the shards as they would be, `now` as they are.
    pub(super) fn new(snapshot: &Snapshot, now: &Members, tokens_per_shard: NonZeroU32) -> Self {
        let standing = |state, weight| Standing { state, weight, now: 0, then: 0 };
        let state = |shard: &ShardName, state: ShardState| match now.state(shard.as_str()) {
            None => "added",
            Some(_) => state.as_str(),
        };
        let weights: BTreeMap<_, _> = snapshot.members.weighted().collect();
        let weight = |shard| weights.get(shard).copied().unwrap_or_default();
        let there =
            snapshot.members.iter().map(|(shard, it)| (shard.clone(), standing(state(shard, it), weight(shard))));
        let removed = now.iter().map(|(shard, _)| (shard.clone(), standing("removed", Weight::ZERO)));
        Self {
            ring: snapshot.ring.clone(),
            tokens_per_shard,
            replicas: (now.available().count(), snapshot.members.available().count()),
            // Those that are there replace what was said of them as removed.
            shards: removed.chain(there).collect(),
            without: (0, 0),
            ways: BTreeMap::new(),
            objects: 0,
            children: 0,
            is_paused: snapshot.spec.paused,
            problems: snapshot.problems.clone(),
            unread: Vec::new(),
        }
    }

    /// Takes in an object, with what the sharder does next, and where that leads to.
    pub(super) fn object(
        &mut self,
        resource: &GroupResource,
        now: Ownership<'_>,
        (next, to): (&Action<ShardName>, Option<&ShardName>),
    ) {
        self.objects += 1;
        let from = self.whose(now);
        match self.standing(&from) {
            Some(standing) => standing.now += 1,
            None => self.without.0 += 1,
        }
        let how = match next {
            Action::Keep | Action::Stay | Action::NoShard | Action::Gather { .. } => None,
            Action::TakeBack | Action::Release => None,
            Action::Assign { how: decide::How::Unassigned, .. } => Some(How::Assigned),
            Action::Assign { how: decide::How::Takeover, .. } => Some(How::Taken),
            Action::Drain { .. } => Some(How::Drained),
            Action::Wait(_) | Action::Overdue | Action::Assign { how: decide::How::Forced, .. } => Some(How::UnderWay),
        };
        match to.and_then(|to| self.shards.get_mut(to)) {
            Some(standing) => standing.then += 1,
            None => self.without.1 += 1,
        }
        if let Some((to, how)) = to.zip(how) {
            self.goes(Way { resource: resource.clone(), from, to: Whose::Shard(to.clone()), how });
        }
    }

    /// Takes in a controlled object, with the shard that it follows its owner to.
    pub(super) fn child(&mut self, resource: &GroupResource, now: Ownership<'_>, to: &ShardName) {
        self.children += 1;
        let (from, to) = (self.whose(now), Whose::Shard(to.clone()));
        if from != to {
            self.goes(Way { resource: resource.clone(), from, to, how: How::Follows });
        }
    }

    /// Takes in an object or a child that is not the ring's any more.
    pub(super) fn leaver(&mut self, resource: &GroupResource, now: Ownership<'_>, next: &Action<ShardName>) {
        let how = match next {
            Action::Drain { .. } | Action::Wait(_) | Action::Overdue => How::Withdrawn,
            Action::Release => How::Released,
            _ => return,
        };
        self.goes(Way { resource: resource.clone(), from: self.whose(now), to: Whose::Nobody, how });
    }

    /// Notes how looking at all objects of a resource ended.
    pub(super) fn looked_at(&mut self, resource: &GroupResource, outcome: Result<(), kube::Error>) {
        self.unread.extend(outcome.err().map(|error| format!("{resource}: {}", explain(&error))));
    }

    /// Whether the plan is of everything.
    pub fn is_complete(&self) -> bool {
        self.unread.is_empty()
    }

    /// Whether something would be written.
    pub fn has_changes(&self) -> bool {
        !self.ways.is_empty()
    }

    /// The same as a JSON object.
    pub fn json(&self) -> Value {
        let shard = |(name, it): (&ShardName, &Standing)| json!({"name": name.as_str(), "state": it.state, "weight": it.weight.to_string(), "now": it.now, "then": it.then});
        let way = |(way, count): (&Way, &u64)| json!({"resource": way.resource.to_string(), "from": way.from.for_programs(), "to": way.to.for_programs(), "how": way.how, "objects": count});
        json!({
            "ring": self.ring.to_string(),
            "tokensPerShard": self.tokens_per_shard,
            "objects": self.objects,
            "children": self.children,
            "withoutShard": {"now": self.without.0, "then": self.without.1},
            "shards": self.shards.iter().map(shard).collect::<Vec<_>>(),
            "changes": self.ways.iter().map(way).collect::<Vec<_>>(),
            "paused": self.is_paused,
            "problems": self.problems,
            "unread": self.unread,
        })
    }

    /// The whole in one sentence.
    pub fn summary(&self) -> String {
        let (from, to) = self.replicas;
        let (moved, follow) = (self.going(&MOVED), self.going(&[How::Follows]));
        format!("{from} -> {to} replicas: {moved} of {} objects move, {follow} children follow", self.objects)
    }

    /// How many objects go in one of these ways.
    pub(super) fn going(&self, how: &[How]) -> u64 {
        self.ways.iter().filter(|(way, _)| how.contains(&way.how)).map(|(_, count)| count).sum()
    }

    fn goes(&mut self, way: Way) {
        *self.ways.entry(way).or_default() += 1;
    }

    fn whose(&self, now: Ownership<'_>) -> Whose {
        let Some(label) = now.shard else { return Whose::Nobody };
        self.shards.get_key_value(label).map_or(Whose::Others, |(shard, _)| Whose::Shard(shard.clone()))
    }

    fn standing(&mut self, of: &Whose) -> Option<&mut Standing> {
        match of {
            Whose::Shard(shard) => self.shards.get_mut(shard),
            Whose::Nobody | Whose::Others => None,
        }
    }
}

impl Whose {
    /// The shard's name; null where no shard has the object.
    fn for_programs(&self) -> Value {
        match self {
            Self::Shard(shard) => json!(shard.as_str()),
            Self::Nobody => Value::Null,
            Self::Others => json!("?"),
        }
    }
}
