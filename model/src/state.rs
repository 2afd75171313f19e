//! Everything that matters at one moment.

use crate::{
    config::{Budget, FIRST, Handover, all_ready},
    queue::Queue,
};

/// Shards of the ring.
pub(crate) const SHARDS: usize = 3;
/// Objects that they share.
pub(crate) const OBJECTS: usize = 2;
/// Sharder replicas at most.
pub(crate) const REPLICAS: usize = 2;

/// A resourceVersion. Only the order of those that are remembered matters.
pub(crate) type Version = u8;

/// Everything that matters at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// What is stored.
    pub(crate) now: Snapshot,
    /// What an API server shows that lags behind.
    pub(crate) past: Snapshot,
    pub(crate) leases: [Lease; SHARDS],
    pub(crate) pods: [Pod; SHARDS],
    pub(crate) replicas: [Replica; REPLICAS],
    /// A write of the sharder that has no answer: it may be carried out at any time.
    pub(crate) late: Option<Job>,
    /// The renewal of each hold that is under way.
    pub(crate) renewals: [Option<HoldRenewal>; SHARDS],
    /// Whether an object may be apart from its child for now: a late write did it, a hold that ran out, or a child that can't be
    /// written.
    pub(crate) parted: [bool; OBJECTS],
    pub(crate) left: Budget,
    /// What has happened that must not.
    pub(crate) broken: Option<Broken>,
}

/// What must not happen and can't be seen in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    /// A write of this shard landed on another's object. Without the API server's fence: it had its Lease all the time.
    ForeignWrite(u8),
    /// An object or a child of this shard was taken over while its Lease was not held for that.
    Unheld(u8),
}

/// The objects at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Snapshot {
    pub(crate) objects: [Object; OBJECTS],
    /// The last write's.
    pub(crate) version: Version,
}

/// An object, with what any process reads of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Object {
    pub(crate) shard: Option<u8>,
    /// The drain label's value.
    pub(crate) drain: Option<u8>,
    /// Where its child is. None: it has none.
    pub(crate) child: Option<u8>,
    pub(crate) version: Version,
}

impl Object {
    /// Whether the controller of this shard is shown the object.
    pub(crate) fn is_shown_to(&self, shard: usize) -> bool {
        self.shard.map(usize::from) == Some(shard) && self.drain.is_none()
    }
}

/// A shard's Lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) holder: Holder,
    /// Whether the sharder's hold on it is over by its time.
    pub(crate) ran_out: bool,
    /// Which replicas have not seen its last change.
    pub(crate) unseen: [bool; REPLICAS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// There is no such Lease.
    #[default]
    Absent,
    /// It is released.
    Nobody,
    Shard,
    /// This replica of the sharder.
    Sharder(u8),
}

/// A controller and its proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    pub(crate) runs: bool,
    /// The proxy stands still.
    pub(crate) paused: bool,
    /// The controller has ended in order, and its proxy has not yet.
    pub(crate) ended: bool,
    /// Whether the gate is open.
    pub(crate) holds: bool,
    /// A renewal has begun since the last tick, and succeeded: the gate stays open at the next one.
    pub(crate) is_fresh: bool,
    pub(crate) renewal: Option<Renewal>,
    pub(crate) watch: Option<Watch>,
    /// Lists begin here at the earliest.
    pub(crate) floor: Version,
    pub(crate) objects: [Held; OBJECTS],
}

/// What a pod has of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    /// It is in the controller's cache.
    pub(crate) cached: bool,
    /// The controller is at work on it.
    pub(crate) worked_on: bool,
    /// The controller goes on with a reconcile in which it was silent for longer than the grace, or begins one on what it
    /// saw before a gap in the Lease.
    pub(crate) woken: bool,
    /// A write of it is under way.
    pub(crate) write: Write,
    /// The proxy's own watch shows it drained: the value, and the resourceVersion.
    pub(crate) drained: Option<(u8, Version)>,
    /// The proxy asks for the object's labels before it lets a write through.
    pub(crate) fenced: bool,
    /// The proxy has begun again since, and is wrong about what has no owner.
    pub(crate) trusted: bool,
    /// The value in an acknowledgement that is under way.
    pub(crate) acknowledgement: Option<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Write {
    #[default]
    None,
    UnderWay,
    /// The proxy that admitted it has died, and its successor releases nothing for as long as it can take.
    OfBefore,
    /// The proxy that admitted it has lost its Lease since: no proxy waits for it.
    LeftBehind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Renewal {
    /// A tick has passed since it began.
    pub(crate) is_old: bool,
    /// What the API server said.
    pub(crate) answer: Option<bool>,
}

/// A watch of the controller on its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Watch {
    /// What is on the way.
    pub(crate) queue: Queue,
    /// It has delivered everything up to here.
    pub(crate) delivered: Version,
    /// It is showing what there is at its beginning: whatever of the cache was not shown by its end is gone.
    pub(crate) shown: Option<[bool; OBJECTS]>,
    pub(crate) ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    Initial(u8),
    InitialEnd(Version),
    Added(u8, Version),
    Deleted(u8, Version),
    Bookmark(Version),
}

/// A replica of the sharder, which believes that it leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Replica {
    pub(crate) seen: [Seen; SHARDS],
    pub(crate) job: Option<Job>,
    /// What it holds of shards that are gone.
    pub(crate) holds: [Hold; SHARDS],
    /// Which objects it has written to since an API server that lags has caught up: it knows them better than that one.
    pub(crate) wrote: [bool; OBJECTS],
}

/// A replica's hold on the Lease of a shard that is gone, as far as it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Hold {
    #[default]
    None,
    Own,
    /// Another one had it, and may rely on it still.
    Over,
}

/// A renewal of the hold on a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HoldRenewal {
    /// Whose; none: that one was followed since.
    pub(crate) replica: Option<u8>,
    /// The Lease was written to since: its test fails.
    pub(crate) is_stale: bool,
}

/// A Lease as a replica saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) exists: bool,
    pub(crate) held: bool,
    /// Ticks since it changed, as far as they matter.
    pub(crate) age: u8,
}

/// A write to one object or its child that was decided on, and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    pub(crate) object: u8,
    /// The object as it was seen.
    pub(crate) view: Object,
    pub(crate) next: Next,
    /// Whether it takes the object from a shard that is gone.
    pub(crate) takes: bool,
    /// Whether the child was written since.
    pub(crate) child_changed: bool,
    /// Whether anything of the sharder was carried out on the family since.
    pub(crate) disturbed: bool,
    /// Whether the replica had forgotten what it wrote itself.
    pub(crate) forgot: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Next {
    Drain(u8),
    /// The drain label is taken off again.
    TakeBack,
    /// The child goes there, and then the object.
    Child(u8),
    Assign(u8),
    /// The child alone, to where the object is.
    Gather(u8),
}

impl State {
    /// Writes a Lease: that is another version of it.
    pub(crate) fn write_lease(&mut self, shard: usize, holder: Holder) {
        self.leases[shard] = Lease { holder, ran_out: false, unseen: [true; REPLICAS] };
        if let Some(renewal) = &mut self.renewals[shard] {
            renewal.is_stale = true;
        }
    }

    /// Everybody who is there has what is theirs.
    pub(crate) fn first(model: &Handover) -> Self {
        let first: [bool; SHARDS] = std::array::from_fn(|shard| FIRST[shard] || model.case.all_work);
        let owner =
            |object: usize| (object < model.case.objects).then(|| model.receiver(object, all_ready(first))).flatten();
        let objects = [0, 1].map(|object| {
            let shard = owner(object);
            Object { shard, child: shard.filter(|_| model.case.children), ..Object::default() }
        });
        let lease = |shard: usize| Lease {
            holder: if first[shard] { Holder::Shard } else { Holder::Absent },
            ..Lease::default()
        };
        let pod = |shard: usize| {
            let holds = first[shard];
            let held = |object: usize| {
                let cached = objects[object].is_shown_to(shard);
                Held { cached, worked_on: cached, ..Held::default() }
            };
            let watch = holds.then(Watch::default);
            Pod {
                runs: holds || model.case.joins,
                holds,
                is_fresh: holds,
                watch,
                objects: [held(0), held(1)],
                ..Pod::default()
            }
        };
        let seen = |shard: usize| Seen { exists: first[shard], held: first[shard], age: 0 };
        let replica = || Replica { seen: [seen(0), seen(1), seen(2)], ..Replica::default() };
        let snapshot = Snapshot { objects, version: 0 };
        let mut pods = [pod(0), pod(1), pod(2)];
        if model.case.late_acknowledgement {
            pods[0].objects[0].acknowledgement = Some(0);
        }
        Self {
            now: snapshot,
            past: snapshot,
            leases: [lease(0), lease(1), lease(2)],
            pods,
            replicas: [replica(), replica()],
            late: None,
            renewals: [None; SHARDS],
            parted: [false; OBJECTS],
            left: model.case.budget,
            broken: None,
        }
    }
}
