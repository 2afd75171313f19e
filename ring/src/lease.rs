//! The state of a shard's Lease, as a function of the Lease, of when the judge saw it change, and of now.

use std::{fmt, ops::RangeInclusive, time::Duration};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

use crate::{
    labels::{LEASE_GROUP, LEASE_INSTANCE, LEASE_STATE},
    moment::Moment,
};

/// How long a shard's Lease lasts unless configured otherwise (CONTRACT, "Shard Lease").
pub const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(15);
/// The durations, in seconds, that count where a shard's Lease has them: a shorter one is late with any delay, and with a
/// longer one the objects of a shard that is gone wait for too long.
pub const DURATION_SECONDS: RangeInclusive<u64> = 2..=120;
/// The holder that the sharder acquires an uncertain Lease as.
pub const SHARDER_HOLDER: &str = "shardlease-controller";
/// How long after its expiry a Lease that its shard does not hold is kept.
pub const ORPHANED_AFTER: Duration = Duration::from_secs(60);

/// The state of a shard, judged from its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShardState {
    /// Held by the shard and not expired.
    Ready,
    /// Held by the shard, expired for up to one duration.
    Expired,
    /// Held by the shard, expired for longer: the sharder tries to acquire it, and only then is the shard dead.
    Uncertain,
    /// Not held by the shard: released, or acquired by the sharder.
    Dead,
    /// Not held by the shard and expired for a minute or more: the Lease is deleted.
    Orphaned,
}

impl ShardState {
    /// All states, for metrics that name each.
    pub const ALL: [Self; 5] = [Self::Ready, Self::Expired, Self::Uncertain, Self::Dead, Self::Orphaned];

    /// Whether a shard in this state takes part in partitioning.
    pub const fn is_available(self) -> bool {
        matches!(self, Self::Ready | Self::Expired | Self::Uncertain)
    }

    /// The value of the state label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Expired => "expired",
            Self::Uncertain => "uncertain",
            Self::Dead => "dead",
            Self::Orphaned => "orphaned",
        }
    }
}

impl fmt::Display for ShardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The part of a shard Lease that its state depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseFacts {
    /// Whether the holder is the shard itself.
    pub held_by_shard: bool,
    /// How long a renewal lasts.
    pub duration: Duration,
}

impl LeaseFacts {
    /// Reads them from a Lease. One without a usable duration counts with the default one.
    pub fn of(lease: &Lease) -> Self {
        let spec = lease.spec.as_ref();
        let held_by_shard = is_held_by_shard(lease);
        // The sharder holds it for twice as long.
        let holds = if holder(spec) == Some(SHARDER_HOLDER) { 2 } else { 1 };
        let longest = Duration::from_secs(DURATION_SECONDS.end() * holds);
        let usable = Duration::from_secs(*DURATION_SECONDS.start())..=longest;
        let duration = duration(spec).filter(|duration| usable.contains(duration)).unwrap_or(DEFAULT_LEASE_DURATION);
        Self { held_by_shard, duration }
    }
}

fn is_held_by_shard(lease: &Lease) -> bool {
    let name = lease.metadata.name.as_deref().filter(|name| !name.is_empty());
    name.is_some() && holder(lease.spec.as_ref()) == name
}

/// Why the duration in a Lease that its shard holds does not count, for people.
pub fn duration_fault(lease: &Lease) -> Option<String> {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let usable = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    if !is_held_by_shard(lease) || usable.is_some_and(|seconds| DURATION_SECONDS.contains(&seconds)) {
        return None;
    }
    let (least, most, counts) = (DURATION_SECONDS.start(), DURATION_SECONDS.end(), DEFAULT_LEASE_DURATION.as_secs());
    let has =
        seconds.map_or("it has no leaseDurationSeconds".to_owned(), |it| format!("its leaseDurationSeconds is {it}"));
    Some(format!("{has}, so {counts} counts: write {least} to {most}"))
}

/// Why a Lease with a ring's label is not as a shard's should be, for people.
pub fn fault(lease: &Lease, owner: LeaseOwner) -> Option<String> {
    let fault = match owner {
        LeaseOwner::Other => "another program holds it, so it is no shard's: take the ring's label off".to_owned(),
        LeaseOwner::Unknown => {
            "it is free, and nothing says that a shard held it: delete it, or take the ring's label off".to_owned()
        }
        LeaseOwner::Shard => duration_fault(lease)?,
    };
    let [namespace, name] =
        [&lease.metadata.namespace, &lease.metadata.name].map(|it| it.as_deref().unwrap_or_default());
    Some(format!("Lease '{namespace}/{name}': {fault}"))
}

/// What holds a Lease with a ring's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOwner {
    /// A shard: the holder is or was the Lease's name, or the sharder in its place.
    Shard,
    /// None is known, and nothing on it says that a shard held it: an election lock that is free looks like this.
    Unknown,
    /// Another program, under another name: an election lock, for instance, that got the label with all its neighbours.
    Other,
}

impl LeaseOwner {
    /// Judges a Lease of which this was known `before`.
    pub fn of(lease: &Lease, before: Option<Self>) -> Self {
        match holder(lease.spec.as_ref()) {
            Some(SHARDER_HOLDER) => Self::Shard,
            Some(_) if is_held_by_shard(lease) => Self::Shard,
            _ if before == Some(Self::Shard) => Self::Shard,
            Some(_) => Self::Other,
            None if shows_a_shard(lease) => Self::Shard,
            None => before.unwrap_or(Self::Unknown),
        }
    }
}

/// Whether the sharder judged this Lease, or a proxy wrote it.
fn shows_a_shard(lease: &Lease) -> bool {
    let metadata = &lease.metadata;
    metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(LEASE_STATE))
        || metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(LEASE_INSTANCE))
}

/// The value of an annotation of a Lease.
pub fn annotation<'a>(lease: &'a Lease, key: &str) -> Option<&'a str> {
    lease.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The group of shards that a Lease's shard is of; none where it is of no group.
pub fn group(lease: &Lease) -> Option<&str> {
    annotation(lease, LEASE_GROUP).filter(|group| !group.is_empty())
}

/// The holder of a Lease; an empty one means that it was released.
pub fn holder(spec: Option<&LeaseSpec>) -> Option<&str> {
    spec?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// The duration in a Lease, unless it is missing or not positive.
pub fn duration(spec: Option<&LeaseSpec>) -> Option<Duration> {
    let seconds = u64::try_from(spec?.lease_duration_seconds?).ok()?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// A state, and when it changes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The state now.
    pub state: ShardState,
    /// When the state will be another one if no client writes the Lease; `None` when it stays.
    pub until: Option<Moment>,
}

/// Judges a Lease that was last SEEN to change at `observed`.
///
/// Not `renewTime`, which is the shard's wall clock, but the judge's own observation counts, as in
/// client-go's leader election: a judge that starts again gives every shard its full time again.
pub fn judge(lease: &LeaseFacts, observed: Moment, now: Moment) -> Judgement {
    let expiry = observed + lease.duration;
    let stages: &[(Moment, ShardState)] = if lease.held_by_shard {
        &[(expiry, ShardState::Ready), (expiry + lease.duration, ShardState::Expired)]
    } else {
        &[(expiry + ORPHANED_AFTER, ShardState::Dead)]
    };
    let last = if lease.held_by_shard { ShardState::Uncertain } else { ShardState::Orphaned };
    match stages.iter().find(|(until, _)| now < *until) {
        Some((until, state)) => Judgement { state: *state, until: Some(*until) },
        None => Judgement { state: last, until: None },
    }
}

/// Until when a shard takes part in partitioning whose Lease was seen to be gone at `seen`: deleted, or without
/// its ring label. `None` when the shard did not hold it: then it is gone at once.
///
/// There is nothing left to acquire, so time must do. The shard can't have renewed after `seen`: what it
/// trusts ends one duration later at most, and it gets a second one as under [`ShardState::Expired`].
pub fn vanished_until(last: &LeaseFacts, seen: Moment) -> Option<Moment> {
    last.held_by_shard.then(|| seen + last.duration + last.duration)
}

/// Until when a name without Lease may be that of a working shard, for a judge that sees all Leases since `complete`.
///
/// Its Lease may have been deleted just before, and its duration is unknown: the default one counts.
pub fn unknown_until(complete: Moment) -> Moment {
    complete + DEFAULT_LEASE_DURATION + DEFAULT_LEASE_DURATION
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    fn lease(name: &str, holder: Option<&str>, seconds: Option<i32>) -> LeaseFacts {
        LeaseFacts::of(&of(name, holder, seconds))
    }

    fn of(name: &str, holder: Option<&str>, seconds: Option<i32>) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.name = Some(name.into());
        lease.spec = Some(LeaseSpec {
            holder_identity: holder.map(Into::into),
            lease_duration_seconds: seconds,
            ..LeaseSpec::default()
        });
        lease
    }

    #[test]
    fn a_held_lease_passes_through_ready_expired_and_uncertain() {
        let held = lease("a", Some("a"), Some(10));
        let state = |now| judge(&held, at(100), at(now)).state;
        assert_eq!((state(100), state(109)), (ShardState::Ready, ShardState::Ready));
        assert_eq!((state(110), state(119)), (ShardState::Expired, ShardState::Expired));
        assert_eq!((state(120), state(99_999)), (ShardState::Uncertain, ShardState::Uncertain));
    }

    #[test]
    fn a_lease_that_the_shard_does_not_hold_is_dead_then_orphaned() {
        for holder in [None, Some(""), Some(SHARDER_HOLDER), Some("b")] {
            let free = lease("a", holder, Some(10));
            let state = |now| judge(&free, at(0), at(now)).state;
            assert_eq!((state(0), state(69), state(70)), (ShardState::Dead, ShardState::Dead, ShardState::Orphaned));
        }
    }

    #[test]
    fn a_shard_outlives_the_lease_that_it_held_by_two_durations() {
        assert_eq!(vanished_until(&lease("a", Some("a"), Some(10)), at(100)), Some(at(120)));
        for holder in [None, Some(SHARDER_HOLDER)] {
            assert_eq!(vanished_until(&lease("a", holder, Some(10)), at(100)), None);
        }
    }

    #[test]
    fn a_lease_without_a_usable_duration_has_the_default_one() {
        for seconds in [None, Some(0), Some(-5), Some(1), Some(121), Some(15_000), Some(i32::MAX)] {
            for holder in [Some("a"), None] {
                assert_eq!(lease("a", holder, seconds).duration, DEFAULT_LEASE_DURATION, "{seconds:?}");
            }
            let told = duration_fault(&of("a", Some("a"), seconds)).expect("it is told");
            assert!(
                told.contains(&seconds.map_or("no leaseDurationSeconds".to_owned(), |it| format!("is {it},"))),
                "{told}"
            );
        }
        for seconds in [2, 15, 120] {
            assert_eq!(
                lease("a", Some("a"), Some(seconds)).duration.as_secs(),
                u64::try_from(seconds).expect("positive")
            );
            assert_eq!(duration_fault(&of("a", Some("a"), Some(seconds))), None);
        }
        assert!(!LeaseFacts::of(&Lease::default()).held_by_shard);
        // Client libraries write 1 when they release.
        assert_eq!(duration_fault(&of("a", None, Some(1))), None);
    }

    #[test]
    fn the_sharder_holds_a_lease_for_twice_its_duration() {
        assert_eq!(lease("a", Some(SHARDER_HOLDER), Some(240)).duration, Duration::from_secs(240));
        assert_eq!(lease("a", Some(SHARDER_HOLDER), Some(241)).duration, DEFAULT_LEASE_DURATION);
    }

    #[test]
    fn a_lease_is_a_shards_once_it_was_held_under_its_name() {
        use LeaseOwner::{Other, Shard, Unknown};
        let owner = |holder, before| LeaseOwner::of(&of("a", holder, Some(15)), before);
        for before in [None, Some(Shard), Some(Unknown), Some(Other)] {
            for holder in ["a", SHARDER_HOLDER] {
                assert_eq!(owner(Some(holder), before), Shard, "{before:?}");
            }
        }
        assert_eq!((owner(None, None), owner(Some(""), None)), (Unknown, Unknown), "as a free lock");
        let mut released = of("a", None, Some(15));
        released.metadata.labels = Some([(LEASE_STATE.to_owned(), "ready".to_owned())].into());
        assert_eq!(LeaseOwner::of(&released, None), Shard, "a sharder has judged it");
        let mut released = of("a", Some(""), Some(15));
        released.metadata.annotations = Some([(LEASE_INSTANCE.to_owned(), "i".to_owned())].into());
        assert_eq!(LeaseOwner::of(&released, None), Shard, "a proxy has written it");
        assert_eq!(owner(Some("b_uuid"), None), Other);
        assert_eq!(owner(Some("b_uuid"), Some(Unknown)), Other);
        assert_eq!(owner(None, Some(Other)), Other, "the lock is free for a moment");
        assert_eq!(owner(Some("b_uuid"), Some(Shard)), Shard);
    }

    proptest! {
        /// Every (Lease, observation, now) has a state; it changes exactly when the judgement says;
        /// and without a change of the Lease it never goes back.
        #[test]
        fn states_are_total_and_monotonic_in_time(
            held: bool,
            seconds in 1_u64..=2_147_483_647,
            observed in 0_u64..1_000_000,
            mut times in proptest::collection::vec(0_u64..5_000_000_000, 1..20),
        ) {
            let facts = LeaseFacts { held_by_shard: held, duration: Duration::from_secs(seconds) };
            times.sort_unstable();
            let mut previous: Option<ShardState> = None;
            for now in times.into_iter().map(|t| at(observed + t)) {
                let judged = judge(&facts, at(observed), now);
                prop_assert!(previous.is_none_or(|state| state <= judged.state));
                prop_assert_eq!(judged.state.is_available(), held);
                if let Some(until) = judged.until {
                    prop_assert!(until > now);
                    prop_assert_eq!(judge(&facts, at(observed), until - Duration::from_nanos(1)).state, judged.state);
                    prop_assert!(judge(&facts, at(observed), until).state > judged.state);
                }
                previous = Some(judged.state);
            }
        }
    }
}
