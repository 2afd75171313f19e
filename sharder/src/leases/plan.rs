//! What the leader does about the Leases, as a function of what was observed.

use std::sync::Arc;

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use ringside_ring::{
    Moment,
    labels::LEASE_STATE,
    lease::{LeaseFacts, LeaseOwner, SHARDER_HOLDER, ShardState},
};

use super::book::{Book, LeaseKey, Observed, state_label};

/// Something to do about one Lease.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Write its state where people see it.
    Label(ShardState),
    /// Write on it what its shard has to know.
    Tell,
    /// Acquire it: only when the API server accepted that is the shard dead (CONTRACT, "Shard Lease").
    Acquire,
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
    for (key, observed) in book.iter() {
        let judgement = observed.judge(now, since);
        next = match (next, judgement.until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let refused_until = book.refusals.until(key).filter(|until| now < *until);
        next = refused_until.map_or(next, |until| Some(next.map_or(until, |next| next.min(until))));
        // Its shard waits for what it is told.
        let is_told = judgement.state != ShardState::Ready || book.marks_for(&names, key).is_empty();
        let action = if is_told { action(observed, judgement.state) } else { Some(Action::Tell) };
        if let Some(action) = action.filter(|_| refused_until.is_none()) {
            todos.push(Todo { key: key.clone(), lease: observed.lease.clone(), action });
        }
    }
    (todos, next)
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
    let (mut lease, seconds) = (lease.clone(), LeaseFacts::of(lease).duration.as_secs());
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(SHARDER_HOLDER.to_owned());
    spec.lease_duration_seconds = Some(i32::try_from(seconds.saturating_mul(2)).unwrap_or(i32::MAX));
    spec.acquire_time = Some(MicroTime(wall_clock));
    spec.renew_time = Some(MicroTime(wall_clock));
    spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
    // In the same write: once it is accepted, that is what the shard is.
    let labels = lease.metadata.labels.get_or_insert_default();
    labels.insert(LEASE_STATE.to_owned(), ShardState::Dead.as_str().to_owned());
    lease
}
