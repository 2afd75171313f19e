//! What the webhook does with a write, as a function of the write and of the ring's snapshot.

use json_patch::Patch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ringside_ring::{
    Ownership, ShardName,
    handover::{Verdict, Write, review},
    partition::Owner,
    patch,
};

use super::request::{Odd, Request};
use crate::snapshot::{Main, Place, Snapshot};

/// The decision on a write.
#[derive(Debug, PartialEq)]
pub(super) enum Decision<'a> {
    /// The write goes on as it is.
    Leave,
    /// The write is none that the webhook is there for.
    Odd(Odd),
    /// The resource is none of the ring's: its webhook configuration is older than its spec.
    Foreign,
    /// The object gets a shard by this change of the write.
    Assign(Patch),
    /// The object keeps its shard by this change of the write.
    Restore(Patch),
    /// The object belongs where its owner is worked on, which must be looked up from this reference.
    Follow(&'a OwnerReference),
}

/// Decides on a write.
///
/// The owner that the object follows decides where it belongs; only without such an owner it is a main object.
pub(super) fn decide<'a>(request: &'a Request, snapshot: &'a Snapshot) -> Decision<'a> {
    let write = match request.write(&snapshot.labels) {
        Ok(write) => write,
        Err(odd) => return Decision::Odd(odd),
    };
    let mut named = request.owner_references().map(|references| snapshot.owner(references));
    let named = named.find(|owner| *owner != Owner::None).unwrap_or(Owner::None);
    let owner = named.one().filter(|owner| snapshot.above(&request.resource, owner).is_some());
    let main = snapshot.main(&request.resource);
    // It may follow an object of a resource that is not served at the moment, or one of several: it stays where it is.
    let may_follow = named == Owner::Several || named.one().is_some_and(|owner| snapshot.may_be_above(owner));
    if owner.is_none() && (main.is_none() || may_follow && snapshot.spec.is_controlled(&request.resource)) {
        return match review(write, true) {
            _ if !snapshot.named.contains(&request.resource) => Decision::Foreign,
            Verdict::Restore(ownership) if may_follow => Decision::Restore(label(request, snapshot, &ownership)),
            // A controlled resource without one of our owners is not covered; its owner may only be missing from the ring.
            _ => Decision::Leave,
        };
    }
    // A controlled object is not acknowledged, unless its resource is a main one as well: its children, if it has any, are moved with
    // its owner.
    let fenced = snapshot.spec.asks_for_fence();
    let waits = main.is_some_and(|main| match owner {
        None => fenced || !main.controlled.is_empty(),
        Some(_) => fenced && matches!(write, Write::Update { old, .. } if old.shard.is_some()),
    });
    match review(write, waits) {
        Verdict::Leave => Decision::Leave,
        Verdict::Restore(ownership) => Decision::Restore(label(request, snapshot, &ownership)),
        Verdict::Assign => match owner {
            Some(owner) => Decision::Follow(owner),
            None => main.map_or(Decision::Leave, |main| place(request, snapshot, main)),
        },
    }
}

/// The decision once the owner is known, and the shard that works on it at this moment.
///
/// Where there is none, a new object goes to where the owner will be placed, if that is known. One that is there
/// already is left: the controller moves it together with its owner, in the right order.
pub(super) fn followed<'a>(
    request: &Request,
    snapshot: &Snapshot,
    (main, place): (&Main, Option<Place>),
    live: Option<ShardName>,
) -> Decision<'a> {
    if snapshot.withholds(main) {
        return Decision::Leave;
    }
    let placed = || snapshot.shard_for_new(main, place?);
    match live.or_else(|| request.creates().then(placed).flatten()) {
        Some(shard) => give(request, snapshot, &shard),
        None => Decision::Leave,
    }
}

fn place<'a>(request: &Request, snapshot: &Snapshot, main: &Main) -> Decision<'a> {
    // Without a name there is no key yet: the controller assigns the object once it exists.
    let Some(object) = request.placed() else { return Decision::Leave };
    // Without a shard for it at the moment, the controller assigns it later.
    match snapshot.shard_for_new(main, snapshot.place_of(main, &object)) {
        Some(shard) => give(request, snapshot, &shard),
        None => Decision::Leave,
    }
}

fn give<'a>(request: &Request, snapshot: &Snapshot, shard: &ShardName) -> Decision<'a> {
    Decision::Assign(label(request, snapshot, &Ownership { shard: Some(shard.as_str()), drain: None }))
}

fn label(request: &Request, snapshot: &Snapshot, ownership: &Ownership<'_>) -> Patch {
    patch::admit(&snapshot.labels, ownership, &request.ownership(&snapshot.labels), request.has_labels())
}

#[cfg(test)]
pub(super) mod tests;
