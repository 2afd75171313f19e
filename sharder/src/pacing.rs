//! How many writes to objects are under way at once, for all rings together, and whose turn it is.
//!
//! There are as many seats as the API server has use for ([`limit`]), and it may ask for a pause ([`holds`]): of everything by
//! 429 (API Priority and Fairness), or by 503 with `Retry-After` of what an extension of it serves. Rings take turns. Within a ring what can't wait comes first, and a quarter of
//! the seats is kept for that. A write that takes long gives its seat back, as something else than the API server's own work
//! holds it up, such as somebody's webhook: whoever is stuck has a bounded number of such writes and holds up nobody else.

use std::{
    collections::{HashMap, VecDeque},
    mem::take,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::client::Pause;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep_until},
};

mod holds;
mod limit;

use self::{
    holds::Holds,
    limit::{Floors, Limit, MOST},
};
use crate::{metrics::Metrics, pauses};

/// Writes of one ring at once, those included that gave their seats back: a ring alone can use all seats.
const OF_A_RING: usize = MOST;
/// Those of one resource among them, while some of it gave their seats back: something in the way of all writes to it leaves
/// room for the ring's others.
const OF_A_RESOURCE: usize = OF_A_RING * 3 / 4;
/// A write keeps its seat for so long: what Kubernetes promises for 99 of 100 writes to one object (1 s, the SLO "API call
/// latency").
const STUCK: Duration = Duration::from_secs(1);

/// How soon something has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// An object is between two shards until it is.
    Soon,
    /// The same, but there are hundreds of such objects at a time: those of a shard that has gone.
    Many,
    /// It begins a move: until then a shard works on the object.
    Drain,
}

/// The ranks by their order.
const RANKS: [Rank; 3] = [Rank::Soon, Rank::Many, Rank::Drain];

/// The seats of all rings; clones share them.
#[derive(Clone)]
pub(crate) struct Pace(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Tells when there is another pause.
    held: watch::Sender<()>,
    metrics: Metrics,
}

#[derive(Default)]
struct State {
    limit: Limit,
    floors: Floors,
    /// Seats that are taken.
    taken: usize,
    /// Those that wait or write, by their numbers.
    rings: HashMap<u64, Ring>,
    /// The rings that wait, in the order of their turns.
    turns: VecDeque<u64>,
    last_ring: u64,
    holds: Holds,
}

#[derive(Default)]
struct Ring {
    waiting: [VecDeque<Waiting>; RANKS.len()],
    under_way: usize,
    /// The same by resource, where there are any.
    by_resource: HashMap<GroupResource, UnderWay>,
}

/// The writes to objects of one resource of a ring.
#[derive(Clone, Copy, Default)]
struct UnderWay {
    all: usize,
    /// Those that gave their seats back.
    stuck: usize,
}

/// A write that waits for a seat.
struct Waiting {
    resource: GroupResource,
    sender: oneshot::Sender<Seat>,
}

/// The seats as one ring sees them; clones are the same ring.
#[derive(Clone)]
pub(crate) struct Lane {
    pace: Pace,
    ring: u64,
    /// The longest that what can't wait has waited, since that was asked.
    waited: Waited,
}

/// How long writes have waited, for a seat and in the API server: what their answers took beyond the shortest.
type Waited = Arc<Mutex<Duration>>;

/// A write may go on while this is held.
pub(crate) struct Seat {
    pace: Pace,
    ring: u64,
    began: Instant,
    /// Of what can't wait, how long it has waited for this, and where that is noted.
    soon: Option<(Duration, Waited)>,
    /// The pauses asked for before it began.
    pauses: u64,
    /// What is written to.
    resource: GroupResource,
    /// Whether how long it was held says anything about the API server.
    tells: bool,
    given_back: bool,
    stuck: bool,
}

impl Pace {
    /// Nobody writes yet.
    pub(crate) fn new(metrics: Metrics) -> Self {
        let (state, held) = (Mutex::<State>::default(), watch::Sender::default());
        metrics.write_limit(state.lock().limit.seats());
        Self(Arc::new(Inner { state, held, metrics }))
    }

    /// The seats of one more ring.
    pub(crate) fn lane(&self) -> Lane {
        let mut state = self.0.state.lock();
        state.last_ring += 1;
        Lane { pace: self.clone(), ring: state.last_ring, waited: Arc::default() }
    }

    /// The API server asked to be left alone for so long, or what serves one API group did.
    pub(crate) fn throttled(&self, pause: &Pause) {
        let until = Instant::now() + pause.lasts;
        {
            let mut state = self.0.state.lock();
            // What was under way then is answered alike, and means the same. How much one group takes says nothing about the
            // others.
            if pause.group.is_none() && state.holds.of_all().is_none() {
                state.limit.halve();
            }
            state.holds.ask(pause.group.as_deref(), until);
            self.0.metrics.throttled();
            self.0.metrics.write_limit(state.limit.seats());
        }
        self.0.held.send_replace(());
    }

    /// Gives free seats to those who wait.
    fn seat(&self) {
        let mut declined = Vec::new();
        {
            let mut state = self.0.state.lock();
            while let Some((ring, Waiting { resource, sender })) = state.next() {
                let seat = Seat {
                    pace: self.clone(),
                    ring,
                    began: Instant::now(),
                    soon: None,
                    pauses: state.holds.asked(&resource),
                    resource,
                    tells: false,
                    given_back: false,
                    stuck: false,
                };
                // Whoever does not wait any more gives it back, and needs the lock for that.
                declined.extend(sender.send(seat).err());
            }
        }
        drop(declined);
    }
}

impl State {
    /// Who may begin now.
    fn next(&mut self) -> Option<(u64, Waiting)> {
        if self.holds.of_all().is_some() {
            return None;
        }
        self.forget_who_left();
        let (seats, taken) = (self.limit.seats(), self.taken);
        let may = |rank: Rank| taken < if rank == Rank::Soon { seats } else { seats - seats / 4 };
        // For a seat, and not for the end of a pause.
        let mut waits = false;
        for turn in 0..self.turns.len() {
            let Some(ring) = self.rings.get_mut(&self.turns[turn]) else { continue };
            let Some((rank, at)) = ring.first(&self.holds) else { continue };
            waits = true;
            if ring.under_way >= OF_A_RING || !may(rank) {
                continue;
            }
            let Some(next) = ring.waiting[rank as usize].remove(at) else { continue };
            ring.under_way += 1;
            ring.by_resource.entry(next.resource.clone()).or_default().all += 1;
            self.taken += 1;
            let id = self.turns.remove(turn)?;
            self.turns.push_back(id);
            return Some((id, next));
        }
        if waits {
            self.limit.sufficed_not();
        }
        None
    }

    /// Those do not wait any more whose work was dropped.
    fn forget_who_left(&mut self) {
        for waiting in self.rings.values_mut().flat_map(|ring| &mut ring.waiting) {
            while waiting.pop_front_if(|first| first.sender.is_closed()).is_some() {}
        }
        self.rings.retain(|_, ring| ring.under_way > 0 || !ring.is_content());
        self.turns.retain(|id| self.rings.get(id).is_some_and(|ring| !ring.is_content()));
    }

    /// A write is over, or takes long. Returns how much longer it took than the shortest.
    fn told(&mut self, resource: &GroupResource, took: Duration) -> Duration {
        let (ratio, beyond) = self.floors.told(resource, took, Instant::now());
        self.limit.told(ratio);
        beyond
    }
}

impl Ring {
    /// Which of its writes comes next, of those that no pause holds, and whose resource takes writes.
    fn first(&self, holds: &Holds) -> Option<(Rank, usize)> {
        RANKS.into_iter().find_map(|rank| {
            let free =
                |waiting: &Waiting| holds.of(&waiting.resource).is_none() && self.has_room_for(&waiting.resource);
            Some((rank, self.waiting[rank as usize].iter().position(free)?))
        })
    }

    fn has_room_for(&self, resource: &GroupResource) -> bool {
        self.by_resource.get(resource).is_none_or(|of| of.stuck == 0 || of.all < OF_A_RESOURCE)
    }

    /// Whether none of its writes waits.
    fn is_content(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }
}

impl Lane {
    /// Waits for a seat to write to an object of this resource.
    pub(crate) async fn seat(&self, rank: Rank, resource: &GroupResource) -> Seat {
        let (asked, mut held) = (Instant::now(), self.pace.0.held.subscribe());
        let (sender, mut receiver) = oneshot::channel();
        {
            let state = &mut *self.pace.0.state.lock();
            let waiting = Waiting { resource: resource.clone(), sender };
            state.rings.entry(self.ring).or_default().waiting[rank as usize].push_back(waiting);
            if !state.turns.contains(&self.ring) {
                state.turns.push_back(self.ring);
            }
        }
        let mut seat = loop {
            self.pace.seat();
            let until = self.pace.0.state.lock().holds.of(resource);
            tokio::select! {
                // It is dropped when it was sent only.
                Ok(seat) = &mut receiver => break seat,
                () = pauses::at(until) => {}
                // The sender is the pace's own.
                _ = held.changed() => {}
            }
        };
        seat.tells = true;
        if rank == Rank::Soon {
            seat.soon = Some((asked.elapsed(), self.waited.clone()));
        }
        seat
    }

    /// The longest that what can't wait has waited since this was asked: for a seat, and behind others in the API server.
    pub(crate) fn take_longest_wait(&self) -> Duration {
        take(&mut *self.waited.lock())
    }

    /// How many writes of all rings are under way at most.
    pub(crate) fn limit(&self) -> usize {
        self.pace.0.state.lock().limit.seats()
    }
}

impl Seat {
    /// What was written was refused, or did not arrive: that is soon done, or takes very long, and is no measure of what
    /// writes take.
    pub(crate) fn tells_nothing(&mut self) {
        self.tells = false;
    }

    /// Returns when the write has taken so long that it has lost its seat.
    pub(crate) async fn until_stuck(&mut self) {
        if self.given_back {
            return std::future::pending().await;
        }
        sleep_until(self.began + STUCK).await;
        self.stuck = true;
        if let Some(ring) = self.pace.0.state.lock().rings.get_mut(&self.ring) {
            ring.by_resource.entry(self.resource.clone()).or_default().stuck += 1;
        }
        self.give_back();
    }

    fn give_back(&mut self) {
        if std::mem::replace(&mut self.given_back, true) {
            return;
        }
        let seats = {
            let mut state = self.pace.0.state.lock();
            state.taken -= 1;
            let took = self.began.elapsed();
            // One that was asked to pause took that long.
            let tells = self.tells && state.holds.asked(&self.resource) == self.pauses;
            let beyond = if tells { state.told(&self.resource, took) } else { Duration::ZERO };
            if let Some((waited, longest)) = &self.soon {
                // What is stuck is so for reasons of its own.
                let behind = if took < STUCK { beyond } else { Duration::ZERO };
                let mut longest = longest.lock();
                *longest = longest.max(*waited + behind);
            }
            state.limit.seats()
        };
        self.pace.0.metrics.write_limit(seats);
        self.pace.seat();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.give_back();
        if let Some(ring) = self.pace.0.state.lock().rings.get_mut(&self.ring) {
            ring.under_way -= 1;
            if let Some(of) = ring.by_resource.get_mut(&self.resource) {
                of.all -= 1;
                of.stuck -= usize::from(self.stuck);
            }
            ring.by_resource.retain(|_, of| of.all > 0);
        }
        self.pace.seat();
    }
}

#[cfg(test)]
mod tests;
