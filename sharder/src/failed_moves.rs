//! Moves that came to nothing: what they failed at, and what must not be tried meanwhile.
//!
//! A voluntary move takes an object from a shard that works on it. So a move that fails must cost little work: the object goes
//! back, and rests. Where many moves fail at one cause, no other is begun that may fail at it, but one a minute.
//!
//! Which moves are voluntary, and so held back, stands at [`crate::reconcile`]'s `rebalance`. The leader alone knows of this: the
//! next one tries again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::lock::Mutex;
use ringside_ring::cluster_ring::GroupResource;
use tokio::time::Instant;

/// How many moves fail one after the other at a cause until others are held back.
pub(crate) const MANY: usize = 8;
/// How often a move is tried all the same.
pub(crate) const PROBE_PERIOD: Duration = Duration::from_secs(60);
/// The longest that an object rests.
const MAX_REST: Duration = Duration::from_secs(3600);
/// How long after its rest an object is remembered that was not tried again: its move is not needed any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Objects that are remembered: beyond that there are many, and which does not matter.
const MAX_OBJECTS: usize = 10_000;

/// What moves fail at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Cause {
    /// A shard that does not release objects.
    Shard(String),
    /// Children of a resource that can't be written.
    Children(GroupResource),
}

/// What failed of an object's move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// The object stayed with its shard.
    Whole,
    /// Children stayed behind.
    Children,
}

/// A move that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    /// The resource of the object that was to move.
    pub(crate) of: GroupResource,
    /// The object, or the child that was refused: namespace and name.
    pub(crate) place: String,
    /// Why, in the API server's words.
    pub(crate) why: Option<String>,
    /// For how long the object rests when it has failed for the first time; twice as long each time after that.
    pub(crate) rest: Duration,
}

/// What has failed at one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// By resource.
    pub(crate) objects: BTreeMap<GroupResource, usize>,
    /// The first of them.
    pub(crate) place: String,
    pub(crate) why: Option<String>,
    since: SystemTime,
    /// Whether no move is begun that may fail at this.
    pub(crate) holds_back: bool,
}

/// The failed moves of one ring; clones share them.
#[derive(Clone, Default)]
pub(crate) struct FailedMoves(Arc<Mutex<Register>>);

#[derive(Default)]
struct Register {
    objects: HashMap<(String, Part), Object>,
    causes: BTreeMap<Cause, OfCause>,
}

struct Object {
    failure: Failure,
    since: SystemTime,
    rests_until: Instant,
    times: u32,
}

#[derive(Default)]
struct OfCause {
    /// Moves that failed since the last one that did not.
    failed: usize,
    /// When one was tried last although others are held back, or may have been.
    probed: Option<Instant>,
}

impl OfCause {
    fn holds_back(&self) -> bool {
        self.failed >= MANY
    }

    fn may_probe(&self, now: Instant) -> bool {
        self.probed.is_none_or(|probed| now >= probed + PROBE_PERIOD)
    }
}

impl FailedMoves {
    /// The move of an object failed. Called before the write that says so: what that shows is decided at once. One object is counted
    /// once.
    pub(crate) fn failed(&self, uid: &str, part: Part, failure: Failure) {
        let register = &mut *self.0.lock();
        let key = (uid.to_owned(), part);
        let before = register.objects.remove(&key).filter(|before| before.failure.cause == failure.cause);
        if before.is_none() {
            register.count(&failure.cause);
            register.forget_old();
            if register.objects.len() >= MAX_OBJECTS {
                return;
            }
        }
        let now = Instant::now();
        // What fails while it rests is the same failure: its write is tried again.
        let times = |before: &Object| if now < before.rests_until { before.times - 1 } else { before.times };
        let (times, since) = before.map_or((0, SystemTime::now()), |before| (times(&before), before.since));
        let rest = failure.rest.saturating_mul(1 << times.min(16)).min(MAX_REST);
        let object = Object { failure, since, rests_until: now + rest, times: times + 1 };
        register.objects.insert(key, object);
    }

    /// A move failed at this that ended all the same, as one that is forced.
    pub(crate) fn forced(&self, cause: &Cause) {
        self.0.lock().count(cause);
    }

    /// A move did not fail at this. Where others are held back that is mended: they go on, and no object rests for it.
    pub(crate) fn succeeded(&self, cause: &Cause) {
        let register = &mut *self.0.lock();
        if register.causes.remove(cause).is_some_and(|of| of.holds_back()) {
            register.objects.retain(|(_, part), object| *part == Part::Children || object.failure.cause != *cause);
        }
    }

    /// This is done, or the object is gone.
    pub(crate) fn forget(&self, uid: &str, part: Part) {
        let register = &mut *self.0.lock();
        if !register.objects.is_empty() {
            register.objects.remove(&(uid.to_owned(), part));
        }
    }

    /// How long an object still rests.
    pub(crate) fn rest(&self, uid: &str) -> Option<Duration> {
        let register = self.0.lock();
        if register.objects.is_empty() {
            return None;
        }
        let rest =
            register.objects.get(&(uid.to_owned(), Part::Whole))?.rests_until.saturating_duration_since(Instant::now());
        Some(rest).filter(|rest| !rest.is_zero())
    }

    /// Whether any failed since another did not.
    pub(crate) fn has_failed(&self) -> bool {
        !self.0.lock().causes.is_empty()
    }

    /// Whether a move may begin that may fail at these. If it is a probe, no other may for a while.
    pub(crate) fn begin(&self, causes: &[Cause]) -> bool {
        self.may(causes, true)
    }

    /// Whether one could.
    pub(crate) fn may_begin(&self, causes: &[Cause]) -> bool {
        self.may(causes, false)
    }

    fn may(&self, causes: &[Cause], begins: bool) -> bool {
        let (register, now) = (&mut *self.0.lock(), Instant::now());
        let is_held = |cause: &&Cause| register.causes.get(*cause).is_some_and(OfCause::holds_back);
        let held: Vec<&Cause> = causes.iter().filter(is_held).collect();
        let may = held.iter().all(|cause| register.causes[*cause].may_probe(now));
        for cause in held.into_iter().filter(|_| may && begins) {
            register.causes.entry(cause.clone()).or_default().probed = Some(now);
        }
        may
    }

    /// What has failed, and was not done since.
    pub(crate) fn all(&self) -> BTreeMap<Cause, Failed> {
        let register = &mut *self.0.lock();
        register.forget_old();
        let mut all: BTreeMap<Cause, Failed> = BTreeMap::new();
        for Object { failure, since, .. } in register.objects.values() {
            let holds_back = register.causes.get(&failure.cause).is_some_and(OfCause::holds_back);
            let one = || Failed {
                objects: BTreeMap::new(),
                place: failure.place.clone(),
                why: failure.why.clone(),
                since: *since,
                holds_back,
            };
            let of = all.entry(failure.cause.clone()).or_insert_with(one);
            if (*since, &failure.place) < (of.since, &of.place) {
                *of = Failed { objects: std::mem::take(&mut of.objects), ..one() };
            }
            *of.objects.entry(failure.of.clone()).or_default() += 1;
        }
        all
    }
}

impl Register {
    fn forget_old(&mut self) {
        let now = Instant::now();
        self.objects.retain(|_, object| now < object.rests_until + FORGOTTEN_AFTER);
    }

    fn count(&mut self, cause: &Cause) {
        let of = self.causes.entry(cause.clone()).or_default();
        of.failed += 1;
        if of.failed == MANY {
            of.probed = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::time::advance;

    use super::*;

    fn shard(name: &str) -> Cause {
        Cause::Shard(name.to_owned())
    }

    fn failure(place: &str) -> Failure {
        let of = GroupResource { group: String::new(), resource: "xs".to_owned() };
        Failure { cause: shard("a"), of, place: place.to_owned(), why: None, rest: Duration::from_secs(100) }
    }

    #[tokio::test(start_paused = true)]
    async fn eighth_failure_holds_back_all_but_one_a_minute_until_one_succeeds() {
        let (moves, causes) = (FailedMoves::default(), [shard("a")]);
        for number in 0..MANY {
            assert!(moves.begin(&causes), "{number}");
            moves.failed(&number.to_string(), Part::Whole, failure(&number.to_string()));
        }
        assert!(!moves.may_begin(&causes) && moves.may_begin(&[shard("b")]));
        for _ in 0..3 {
            advance(PROBE_PERIOD).await;
            assert!(moves.may_begin(&causes) && moves.begin(&causes));
            assert!(!moves.begin(&causes), "one a minute");
        }
        let Failed { objects, place, holds_back, .. } = moves.all().remove(&shard("a")).unwrap();
        assert_eq!((objects.values().sum::<usize>(), &*place, holds_back), (MANY, "0", true));
        moves.succeeded(&shard("a"));
        assert!(moves.begin(&causes) && moves.begin(&causes) && moves.all().is_empty() && moves.rest("0").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_rests_longer_each_time_and_others_do_not_end_that() {
        let moves = FailedMoves::default();
        for rest in [100, 200, 400, 800, 1600, 3200, 3600, 3600] {
            for _ in 0..3 {
                moves.failed("u", Part::Whole, failure("u"));
                assert_eq!(moves.rest("u"), Some(Duration::from_secs(rest)));
            }
            moves.succeeded(&shard("a"));
            advance(Duration::from_secs(rest)).await;
            assert_eq!(moves.rest("u"), None);
        }
        assert_eq!(moves.all().len(), 1, "it is told until it has moved");
        moves.forget("u", Part::Whole);
        assert!(moves.all().is_empty());
        moves.failed("u", Part::Whole, failure("u"));
        advance(FORGOTTEN_AFTER + Duration::from_secs(100)).await;
        assert!(moves.all().is_empty(), "it was not to be moved any more");
    }
}
