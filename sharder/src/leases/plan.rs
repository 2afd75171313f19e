//! What the leader does about the Leases, as a function of what was observed.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use ringside_ring::{
    Moment, RingName,
    labels::LEASE_STATE,
    lease::{LeaseFacts, LeaseOwner, SHARDER_HOLDER, ShardState, holder},
};

use super::{
    book::{Book, LeaseKey, Observed, state_label},
    hold::DEFAULT_HOLD,
};

/// How long a shard that is gone has no label that says so: a hold writes the label too, if it has objects.
pub(super) const LABELLED_BY_HOLD: Duration = Duration::from_secs(1);

/// Something to do about one Lease.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Write its state where people see it.
    Label(ShardState),
    /// Write on it what its shard has to know.
    Tell,
    /// Acquire it: only when the API server accepted that is the shard dead (CONTRACT, "Shard Lease").
    Acquire,
    /// Hold it while the objects of its shard, which is gone, are taken.
    Hold,
    /// Renew the hold on it: the takeover makes progress.
    Renew,
    /// Make it, and hold it: objects name its shard, which has none.
    Make,
    /// Release it: nothing of its shard is left to be taken, or the hold has run out.
    Release,
    /// Delete it: its shard is gone for good.
    Delete,
}

/// An action and the Lease that it was decided on.
#[derive(Clone, Debug)]
pub(super) struct Todo {
    pub(super) key: LeaseKey,
    pub(super) lease: Arc<Lease>,
    pub(super) action: Action,
}

impl Todo {
    /// The state that the Lease's label told people.
    pub(super) fn state_label(&self) -> Option<&str> {
        state_label(&self.lease)
    }
}

/// One action a Lease at most: its outcome is observed before the next is decided.
/// And when the first state changes by itself.
pub(super) fn plan(book: &Book, now: Moment, since: Moment) -> (Vec<Todo>, Option<Moment>) {
    let mut todos = Vec::new();
    let mut next: Option<Moment> = None;
    let names = book.names();
    let to_hold: BTreeSet<LeaseKey> =
        book.holds.wanted(now).filter_map(|(ring, shard)| book.to_hold(ring, shard, now)).flatten().collect();
    for (key, observed) in book.iter() {
        let judgement = observed.judge(now, since);
        let refused_until = book.refusals.until(key).filter(|until| now < *until);
        let (hold, hold_changes) = hold(book, key, now, to_hold.contains(key));
        next = [next, judgement.until, refused_until, hold_changes].into_iter().flatten().min();
        // Its shard waits for what it is told.
        let is_told = judgement.state != ShardState::Ready || book.marks_for(&names, key).is_empty();
        let action = if is_told { hold.or_else(|| action(observed, judgement.state)) } else { Some(Action::Tell) };
        let held_first = Some(observed.changed + LABELLED_BY_HOLD)
            .filter(|until| now < *until && action == Some(Action::Label(ShardState::Dead)));
        next = next.into_iter().chain(held_first).min();
        if let Some(action) = action.filter(|_| refused_until.is_none() && held_first.is_none()) {
            todos.push(Todo { key: key.clone(), lease: observed.lease.clone(), action });
        }
    }
    // A shard beyond the bound is told so. Its Lease is acquired as any other, so that it goes when its shard is dead.
    for (key, seen) in book.beyond() {
        let judgement = seen.judge(now, since);
        let refused_until = book.refusals.until(key).filter(|until| now < *until);
        next = next.into_iter().chain(judgement.until).chain(refused_until).min();
        let is_told = book.marks_for(&names, key).is_empty();
        let action = match judgement.state {
            ShardState::Uncertain => Some(Action::Acquire),
            _ => (!is_told).then_some(Action::Tell),
        };
        if let Some(action) = action.filter(|_| refused_until.is_none()) {
            todos.push(Todo { key: key.clone(), lease: seen.lease.clone(), action });
        }
    }
    for (ring, key) in book.missing(now) {
        let refused_until = book.refusals.until(&key).filter(|until| now < *until);
        next = next.into_iter().chain(refused_until).min();
        if refused_until.is_none() {
            let lease = Arc::new(made(&key, &ring, Timestamp::now()));
            todos.push(Todo { key, lease, action: Action::Make });
        }
    }
    (todos, next)
}

/// What is to be done about the hold on a Lease, and when that is something else.
fn hold(book: &Book, key: &LeaseKey, now: Moment, is_wanted: bool) -> (Option<Action>, Option<Moment>) {
    match (book.holds.ends(key), book.holds.rests(key, now)) {
        (Some(ends), _) if ends <= now => (Some(Action::Release), None),
        (Some(ends), _) => match book.holds.renews(key, now) {
            Some(renews) if renews <= now => (Some(Action::Renew), Some(ends)),
            renews => (None, renews.into_iter().chain([ends]).min()),
        },
        (None, Some(until)) if is_wanted => (None, Some(until)),
        (None, _) => (is_wanted.then_some(Action::Hold), None),
    }
}

fn action(observed: &Observed, state: ShardState) -> Option<Action> {
    if observed.owner == LeaseOwner::Unknown {
        return None;
    }
    match state {
        // Without a label first: it would only be one more write, and one that can fail.
        ShardState::Orphaned => Some(Action::Delete),
        ShardState::Uncertain => Some(Action::Acquire),
        ShardState::Ready | ShardState::Expired | ShardState::Dead => {
            (observed.state_label() != Some(state.as_str())).then_some(Action::Label(state))
        }
    }
}

/// The Lease as the sharder holds it: for twice the duration, after which its shard may take it back.
///
/// The resourceVersion stays, so a renewal that came in between makes the API server refuse.
pub(super) fn acquired(lease: &Lease, wall_clock: Timestamp) -> Lease {
    let (duration, transitions) = (own_duration(lease), lease.spec.as_ref().and_then(|spec| spec.lease_transitions));
    let mut lease = written(lease, SHARDER_HOLDER, 2 * duration, wall_clock);
    let spec = lease.spec.get_or_insert_default();
    spec.acquire_time = Some(MicroTime(wall_clock));
    spec.lease_transitions = Some(transitions.unwrap_or_default().saturating_add(1));
    lease
}

/// The same as its hold is renewed: it lasts as long as before, and the version is tested.
pub(super) fn renewed(lease: &Lease, wall_clock: Timestamp) -> Lease {
    let mut lease = lease.clone();
    lease.spec.get_or_insert_default().renew_time = Some(MicroTime(wall_clock));
    lease
}

/// The Lease as the sharder releases it, of a shard whose own lasts for `duration`.
pub(super) fn released(lease: &Lease, duration: Duration, wall_clock: Timestamp) -> Lease {
    written(lease, "", duration, wall_clock)
}

/// The Lease of a shard that has none, as the sharder holds it.
fn made(key: &LeaseKey, ring: &RingName, wall_clock: Timestamp) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.name = Some(key.name.clone());
    lease.metadata.namespace = Some(key.namespace.clone());
    lease.metadata.labels = Some([(ring.kind().names().lease_label.to_owned(), ring.name().to_owned())].into());
    let mut lease = written(&lease, SHARDER_HOLDER, DEFAULT_HOLD, wall_clock);
    let spec = lease.spec.get_or_insert_default();
    spec.acquire_time = Some(MicroTime(wall_clock));
    spec.lease_transitions = Some(0);
    lease
}

/// How long a renewal of the Lease's shard lasts. A leader before may hold it.
fn own_duration(lease: &Lease) -> Duration {
    let duration = LeaseFacts::of(lease).duration;
    if holder(lease.spec.as_ref()) == Some(SHARDER_HOLDER) { duration / 2 } else { duration }
}

fn written(lease: &Lease, holder: &str, duration: Duration, wall_clock: Timestamp) -> Lease {
    let mut lease = lease.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(holder.to_owned());
    spec.lease_duration_seconds = Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX));
    spec.renew_time = Some(MicroTime(wall_clock));
    // In the same write: once it is accepted, that is what the shard is.
    let labels = lease.metadata.labels.get_or_insert_default();
    labels.insert(LEASE_STATE.to_owned(), ShardState::Dead.as_str().to_owned());
    lease
}
