//! Labels on what follows no object of the ring.

use ringside_ring::decide::Action;

use super::{family::Failed, ring::Ring};
use crate::{
    index::{ResourceId, Slot},
    queue::limiter::Priority,
    release::release_or_drain,
    target::Target,
    write::Outcome,
};

const CANT_RELEASE: &str = "can't take labels off children of objects that are not the ring's";

/// Takes the labels off. One whose controller is not known (yet) waits until that one would have been listed.
pub(super) async fn release(
    ring: &Ring,
    (resource, slot): (ResourceId, Slot),
    target: Target,
    is_lone: bool,
) -> Result<(), Failed> {
    if !is_lone && !ring.is_listed(resource) {
        ring.judge.queue(resource).add_after(slot, Priority::Repair, std::time::Duration::from_secs(5));
        return Ok(());
    }
    if target.ownership() == Default::default() {
        return Ok(());
    }
    let kind = ring.resource(resource);
    let writes = ring.writes.with_priority(Priority::Repair);
    let seen = target.resource_version.clone();
    // What has changed since may follow an object of the ring by now.
    let next = |now: &Target| if now.resource_version == seen { Action::Release } else { Action::Keep };
    match release_or_drain(&writes, (ring.client(), kind), &ring.labels, target, next).await {
        Ok(Outcome::Written { .. }) => {
            ring.told.released_stray(&kind.id);
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(Failed { error, child: None, what: CANT_RELEASE }),
    }
}
