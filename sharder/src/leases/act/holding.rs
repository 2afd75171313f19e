//! Writes by which the sharder holds Leases, and releases them.

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Namespace},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use ringside_ring::{Moment, RingName, ShardName, labels};
use ringside_runtime::explain::code;

use super::WriteError;
use crate::leases::{
    Leases,
    book::LeaseKey,
    plan::{Action, Todo, acquired, released, renewed},
};

/// Acquires a Lease, by its version.
pub(super) async fn acquire(api: &Api<Lease>, todo: &Todo) -> Result<Lease, WriteError> {
    let lease = acquired(&todo.lease, Timestamp::now());
    let lease = api.replace(&todo.key.name, &PostParams::default(), &lease).await?;
    tell_hold(todo, &lease);
    Ok(lease)
}

/// None where the hold needs it no more, or it is too late.
pub(super) async fn renew(
    api: &Api<Lease>,
    leases: &Leases,
    todo: &Todo,
    begun: Moment,
) -> Result<Option<Lease>, WriteError> {
    // As the API server stores it.
    let now = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).unwrap_or_default();
    let mut lease = renewed(&todo.lease, now);
    // The watch may show it before the answer is there.
    let asked = leases.book.lock().holds.renewing(&todo.key, lease.spec.take().unwrap_or_default(), begun);
    if asked.is_none() {
        return Ok(None);
    }
    lease.spec = asked;
    let lease = api.replace(&todo.key.name, &PostParams::default(), &lease).await?;
    tell_hold(todo, &lease);
    Ok(Some(lease))
}

/// Makes the Lease of a shard that has none. None where there is a Lease of that name already, no such namespace or one that is
/// being deleted, so that no shard can begin there, or where no Lease can have the name, as of a label that was set by hand.
pub(super) async fn make(
    (api, client): (&Api<Lease>, &Client),
    leases: &Leases,
    todo: &Todo,
    begun: Moment,
) -> Result<Option<Lease>, WriteError> {
    let hold_without = || {
        if let Some(ring) = ring_of(&todo.lease) {
            leases.book.lock().hold_without_lease(&todo.key, &ring, begun);
        }
        leases.attention.send_replace(());
    };
    if todo.key.name.parse::<ShardName>().is_err() {
        hold_without();
        return Ok(None);
    }
    match api.create(&PostParams::default(), &todo.lease).await {
        Ok(lease) => {
            tell_hold(todo, &lease);
            Ok(Some(lease))
        }
        Err(error) if matches!(code(&error), Some(404 | 409)) => {
            // It may be the shard's own.
            let there = api.get_opt(&todo.key.name).await?;
            leases.take_answer(&todo.key, there);
            hold_without();
            Ok(None)
        }
        // What the namespace has, such as the sharder's rights, goes before it does.
        Err(error) if code(&error) == Some(403) && is_being_deleted(client, &todo.key.namespace).await => {
            hold_without();
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

async fn is_being_deleted(client: &Client, namespace: &str) -> bool {
    let found = Api::<Namespace>::all(client.clone()).get_metadata(namespace).await;
    found.is_ok_and(|found| found.metadata.deletion_timestamp.is_some())
}

/// None where the hold is used again.
pub(super) async fn release(api: &Api<Lease>, leases: &Leases, todo: &Todo) -> Result<Option<Lease>, WriteError> {
    let LeaseKey { namespace, name } = &todo.key;
    let Some((duration, ran_out)) = leases.book.lock().holds.release(&todo.key, leases.clock.now()) else {
        return Ok(None);
    };
    let lease = released(&todo.lease, duration, Timestamp::now());
    let lease = api.replace(name, &PostParams::default(), &lease).await?;
    let why = if ran_out { "the hold has run out" } else { "nothing of the shard is left to be taken" };
    tracing::info!(
        namespace,
        shard = name,
        ring = ring_of(&lease).map(tracing::field::display),
        why,
        "released a shard's Lease"
    );
    if ran_out {
        leases.book.lock().holds.rest(&todo.key, leases.clock.now());
    }
    Ok(Some(lease))
}

fn tell_hold(todo: &Todo, lease: &Lease) {
    let why = match todo.action {
        Action::Acquire => "it does not renew: it is dead",
        Action::Make => "it has none, and objects name it",
        Action::Renew => "the takeover makes progress",
        _ => "it is gone, and its objects go to others",
    };
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let (ring, LeaseKey { namespace, name }) = (ring_of(lease).map(tracing::field::display), &todo.key);
    tracing::info!(namespace, shard = name, ring, seconds, why, "holding a shard's Lease");
}

fn ring_of(lease: &Lease) -> Option<RingName> {
    labels::ring_of(&lease.metadata)?.ok()
}
