//! What the status of a ring says, and waiting until it says something.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Client};
use ringside_ring::{Ring, RingName, cluster_ring::ClusterRingStatus};

use crate::eventually::{TimedOut, eventually};

/// Reads the status of a ring.
pub async fn status(client: &Client, ring: &RingName) -> Result<ClusterRingStatus, String> {
    let rings: Api<Ring> = Api::all_with(client.clone(), &ring.kind());
    let ring = rings.get(ring.name()).await.map_err(|error| error.to_string())?;
    Ok(ring.status.unwrap_or_default())
}

/// The condition of this type, or what there is instead.
pub fn condition<'a>(status: &'a ClusterRingStatus, type_: &str) -> Result<&'a Condition, String> {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_);
    found.ok_or_else(|| format!("no {type_}: {:?}", status.conditions))
}

/// Waits until the status of a ring shows something, and returns that.
pub async fn until_status<T>(
    client: &Client,
    ring: &RingName,
    what: &str,
    within: Duration,
    shows: impl Fn(&ClusterRingStatus) -> Result<T, String>,
) -> Result<T, TimedOut> {
    eventually(what, within, || async { shows(&status(client, ring).await?) }).await
}

/// Waits until a condition of a ring has this status, and returns it.
pub async fn until_condition(
    client: &Client,
    ring: &RingName,
    type_: &str,
    is: &str,
    within: Duration,
) -> Result<Condition, TimedOut> {
    until_status(client, ring, &format!("{type_} of {ring} is {is}"), within, |status| {
        let found = condition(status, type_)?.clone();
        if found.status == is { Ok(found) } else { Err(format!("{found:?}, {} available", status.available_shards)) }
    })
    .await
}

/// Waits until the sharder counts so many available shards of a ring.
pub async fn until_available(
    client: &Client,
    ring: &RingName,
    shards: usize,
    within: Duration,
) -> Result<(), TimedOut> {
    until_status(client, ring, &format!("the sharder counts {shards} shards of {ring}"), within, |status| {
        let has_all = usize::try_from(status.available_shards) == Ok(shards);
        if has_all { Ok(()) } else { Err(format!("{} available, {:?}", status.available_shards, status.conditions)) }
    })
    .await
}
