//! What is tried: who is there at the beginning, how many faults there may be, and which mistake is made.

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

use ringside_ring::{
    RingLabels, ShardName,
    decide::View,
    lease::ShardState,
    members::Members,
    partition::PartitionKey,
    placement::{HashRing, ShardId},
};

use crate::{
    actions::Action,
    state::{OBJECTS, SHARDS},
};

/// A way to build it wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The webhook gives whatever a write leaves without shard label a shard, as it does with new objects.
    WebhookPlacesWhatLosesItsLabel,
    /// A watch counts as past a write when an `ADDED` of its initial events has a resourceVersion at or after it.
    InitialEventsCount,
    /// The sharder takes `renewTime`, which is the shard's clock, for the time at which a Lease was renewed.
    RenewTimeAsClock,
    /// A renewal counts from its answer and not from its beginning.
    ValidFromAnswer,
    /// The shard's clock stops while it stands still.
    ClockStops,
    /// All drains have the same value.
    OneDrainValue,
    /// An acknowledgement does not wait for the controller's watch.
    ViewsIgnored,
    /// An acknowledgement does not wait for writes under way.
    WritesIgnored,
    /// An acknowledgement does not wait for the controller to come to rest.
    NoGrace,
    /// The fence does not close with the acknowledgement.
    NoFence,
    /// A list may be older than the shard's term, or than an object that it released.
    OldLists,
    /// A watch that ended is no view any more.
    EndedWatchForgotten,
    /// Objects of a shard that seems to be gone are given away without a hold on its Lease.
    TakenUnheld,
    /// A shard does not wait for the end of the sharder's hold.
    HoldNotWaitedFor,
    /// The sharder takes no note of the end of its hold.
    HoldWithoutEnd,
    /// A takeover's write may be carried out after the end of the hold under which it was sent.
    TakeoverOutlivesHold,
    /// A hold is released while a takeover's write has no answer.
    ReleasedWhileLate,
    /// A hold is released between child and object.
    ReleasedHalfway,
    /// A renewal of a hold counts before it was seen to be carried out.
    RenewalTrusted,
    /// A takeover's write without answer may be carried out for as long as a renewal under way would last.
    LateCountsOnRenewal,
    /// A renewal of a hold is carried out although the Lease has changed since.
    RenewalUntested,
    /// A replica relies on a hold that it has not acquired itself.
    OthersHoldTrusted,
    /// A hold that was another replica's before is released before its end.
    OthersHoldReleased,
    /// A shard without Lease counts as gone at once.
    NamelessIsGone,
    /// The Lease of a shard is acquired although it has changed since it was seen.
    LeaseTakenUntested,
    /// What has no owner is left to the webhook.
    WebhookTrusted,
    /// An object is assigned without its child.
    ChildrenLeftBehind,
    /// A write to a child tests its label alone.
    ChildUntested,
    /// A child that is apart from its object stays there.
    StraysLeft,
    /// A replica decides on an object as it was before a write of its own.
    OwnWritesForgotten,
    /// A child is brought to where its object was.
    GatheredToThePast,
    /// The API server's fence lets all writes through, although others rely on it.
    NoApiServerFence,
    /// Objects are taken by force although the API server's fence is not there.
    ForcedUnfenced,
    /// A drain is taken back although the child is with another shard.
    TakenBackApart,
    /// A drained object that its own controller writes without its labels counts as released.
    DroppedLabelsLetGo,
    /// A proxy that begins again does not wait for what the one before it has let through.
    WritesOfBeforeForgotten,
    /// A proxy that begins again lets through what it has not asked about.
    RestartTrusts,
    /// A proxy that begins again lets through what no other shard has yet: the one before it may have released that.
    NobodysTrusted,
}

/// How often each thing may happen that need not. What must happen, such as the delivery of an event, may happen at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Writes of controllers: one that is under way is nothing but late.
    pub writes: u8,
    /// Reconciles that go on after a silence longer than the grace.
    pub wakes: u8,
    /// Times that two thirds of a Lease's duration pass.
    pub ticks: u8,
    /// Shards that die, with their controller.
    pub kills: u8,
    /// Proxies that die and begin again beside their controllers.
    pub proxies: u8,
    /// Shards that end in order.
    pub releases: u8,
    /// Shards that begin again.
    pub restarts: u8,
    /// Proxies that stand still while their controllers go on.
    pub pauses: u8,
    /// Watches that end.
    pub cuts: u8,
    /// PUTs by a controller that drop the labels of its object.
    pub strips: u8,
    /// Writes by another client that leave the labels alone.
    pub touches: u8,
    /// Messages that are lost: acknowledgements, renewals, writes of a replica that is gone.
    pub losses: u8,
    /// Acknowledgements of which no webhook is asked.
    pub silences: u8,
    /// Drains that are overdue: behind the fence the object is taken by force, without it the drain is taken back.
    pub forces: u8,
    /// Drains that are overdue while the fence is not known to stand.
    pub take_backs: u8,
    /// Children whose write is refused.
    pub refusals: u8,
    /// Writes of the sharder of which no answer comes: they may be carried out at any time.
    pub lates: u8,
    /// Leaders that are followed by one which knows what it reads and no more.
    pub successions: u8,
    /// Holds whose time is over.
    pub lapses: u8,
    /// Renewals of holds: each may be carried out at any time.
    pub renewals: u8,
    /// Leases of working shards that a user deletes.
    pub deletions: u8,
    /// Decisions of the second replica, where there is one.
    pub decisions: u8,
    /// Times that a second API server, which shows what was so at first, catches up with the one that all write to. 0: it never
    /// does, and a client that asks it reads the past.
    pub catch_ups: u8,
}

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Whether a third shard joins the two that are at work from the beginning.
    pub joins: bool,
    /// Whether the third is at work from the beginning, too.
    pub all_work: bool,
    /// Objects that are there, of two.
    pub objects: usize,
    /// Faults.
    pub budget: Budget,
    /// Whether each object has a child, which moves first: so the webhook leaves what is acknowledged to the sharder's
    /// controller.
    pub children: bool,
    /// Whether the API server refuses what shards write to others' objects, and acknowledgements that name another owner.
    pub fence: bool,
    /// Sharder replicas that act, each as if it were the leader.
    pub replicas: usize,
    /// Shards whose renewals take no time, so that more can be tried of the others.
    pub steady: [bool; 3],
    /// Whether an acknowledgement of an earlier move is still on its way, of an object that has come back since.
    pub late_acknowledgement: bool,
    /// What is done wrong.
    pub mistake: Option<Mistake>,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            joins: true,
            all_work: false,
            objects: OBJECTS,
            budget: Budget::default(),
            children: true,
            fence: false,
            replicas: 1,
            steady: [false; 3],
            late_acknowledgement: false,
            mistake: None,
        }
    }
}

/// The model of one case.
#[derive(Clone, Debug)]
pub struct Handover {
    pub(crate) case: Case,
    pub(crate) labels: RingLabels,
    pub(crate) names: [ShardName; SHARDS],
    /// Each step that there is.
    pub(crate) steps: Arc<[Action]>,
    /// States from which all is known to settle, by their hashes.
    pub(crate) settled: Arc<Mutex<HashSet<u64>>>,
    keys: [PartitionKey; OBJECTS],
    /// The shards as decisions need them, by what each shard's Lease is judged to be.
    views: HashMap<Judged, View>,
}

/// What each shard's Lease is judged to be. None: not available, or not seen.
pub(crate) type Judged = [Option<ShardState>; SHARDS];

/// What takes part in partitioning.
const AVAILABLE: [Option<ShardState>; 4] =
    [None, Some(ShardState::Ready), Some(ShardState::Expired), Some(ShardState::Uncertain)];

/// Who works from the beginning.
pub(crate) const FIRST: [bool; SHARDS] = [true, true, false];

/// Any number gives a placement; with few tokens objects are easily found that move as wanted.
const TOKENS: NonZeroU32 = NonZeroU32::new(10).expect("not zero");

impl Handover {
    /// The first of the two objects moves to the shard that joins, and the second does not; each belongs to another of the
    /// two shards that are there before.
    pub fn of(case: Case) -> Self {
        let names = ["a", "b", "c"].map(|name| name.parse().expect("a valid name"));
        let all = AVAILABLE.iter().flat_map(|a| AVAILABLE.iter().flat_map(|b| AVAILABLE.map(|c| [*a, *b, c])));
        let views: HashMap<_, _> = all.map(|judged| (judged, view(&names, judged))).collect();
        let owner = |key: &PartitionKey, ready: [bool; SHARDS]| {
            views[&all_ready(ready)].ring().owner(key).map(ShardName::as_str).map(str::to_owned)
        };
        let key = |of_two: &str, of_three: &str| {
            let keys = (0..).map(|i: u32| PartitionKey::of("example.com", "Thing", "default", &i.to_string()));
            let mut fits = keys.filter(|key| {
                owner(key, FIRST).as_deref() == Some(of_two) && owner(key, [true; SHARDS]).as_deref() == Some(of_three)
            });
            fits.next().expect("some number does")
        };
        let labels = RingLabels::of(&"example".parse().expect("a valid name"));
        let (keys, steps) = ([key("a", "c"), key("b", "b")], Self::all(&case).into());
        Self { case, labels, keys, names, steps, settled: Arc::default(), views }
    }

    /// Whether there may be such a shard.
    pub(crate) fn is_of_the_case(&self, shard: usize) -> bool {
        FIRST[shard] || self.case.joins || self.case.all_work
    }

    pub(crate) fn makes(&self, mistake: Mistake) -> bool {
        self.case.mistake == Some(mistake)
    }

    /// Where an object's key stands on the hash ring.
    pub(crate) fn key(&self, object: usize) -> u64 {
        self.keys[object].point()
    }

    /// The shards as decisions need them.
    pub(crate) fn view(&self, judged: Judged) -> &View {
        &self.views[&judged]
    }

    /// To whom the object is given among these.
    pub(crate) fn receiver(&self, object: usize, judged: Judged) -> Option<u8> {
        let view = self.view(judged);
        Some(self.shard(view, view.receiver(self.key(object))?))
    }

    /// The number of a shard that a view knows by another.
    pub(crate) fn shard(&self, view: &View, id: ShardId) -> u8 {
        self.number(view.ring().name(id).expect("one of the view's").as_str())
    }

    /// The number of a shard by its name.
    pub(crate) fn number(&self, name: &str) -> u8 {
        let index = self.names.iter().position(|known| known.as_str() == name).expect("one of ours");
        u8::try_from(index).expect("few shards")
    }
}

fn view(names: &[ShardName; SHARDS], judged: Judged) -> View {
    let all = names.iter().zip(judged).filter_map(|(name, state)| Some((name.clone(), state?)));
    let members: Members = all.collect();
    View::new(&members, Arc::new(HashRing::new(members.available().cloned(), TOKENS)))
}

/// Those are ready, and no other is there.
pub(crate) fn all_ready(shards: [bool; SHARDS]) -> Judged {
    shards.map(|is_ready| is_ready.then_some(ShardState::Ready))
}
