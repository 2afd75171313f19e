//! Objects in namespaces that are not the ring's any more: their labels come off.
//!
//! Those of available shards were drained by a pass, and their shards take the labels off. They come here as objects without
//! owner, with those of shards that are gone; a ring without any shards has a pass for these. What they control follows them:
//! its labels come off when the children of the shard are looked at ([`crate::rebalance`]).

use std::collections::{BTreeMap, btree_map::Entry};

use futures::StreamExt;
use ringside_ring::decide::{Action, Covered};

use super::{Scope, failures::Failures, write::Outcome};
use crate::{release::Releases, target::Target};

/// Takes off what labels are there, unless a shard works on the object; returns those that must be tried again.
///
/// The watch shows every object of these namespaces: most never had labels, and cost nothing here.
pub(crate) async fn withdraw(scope: &Scope, targets: Vec<Target>) -> (Vec<Target>, Failures) {
    let (mut release, mut again, mut failures) = (Vec::new(), Vec::new(), Failures::default());
    // That a shard is gone is asked once for all of its objects: a pass drains them when it is not.
    let mut absent: BTreeMap<String, bool> = BTreeMap::new();
    for target in targets {
        scope.begun.end(&target.uid, true);
        if target.ownership() == Default::default() {
            end(scope, &target);
            continue;
        }
        let gone = match target.shard.clone().filter(|_| scope.shard_of(&target).is_none()) {
            None => true,
            Some(shard) => match absent.entry(shard) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(unknown) => {
                    let is_there = scope.leases.is_there(&scope.client, &scope.snapshot.ring, unknown.key()).await;
                    *unknown.insert(is_there.map_err(|error| failures.add(error)).is_ok_and(|is_there| !is_there))
                }
            },
        };
        match (scope.decide(&target, Covered::Leaving), gone) {
            (Action::Release, true) => release.push(target),
            (Action::Release, false) => again.push(target),
            _ => {}
        }
    }
    let next = |chosen: &Target, now: &Target| match scope.decide(now, Covered::Leaving) {
        Action::Release if now.shard == chosen.shard => Action::Release,
        // A pass asks the shard, and remembers that.
        _ => Action::Keep,
    };
    let mut writes = std::pin::pin!(Releases::of(scope, &scope.main.resource).all(release, &next));
    while let Some((target, outcome)) = writes.next().await {
        match outcome {
            Ok(Outcome::Written { on, .. }) => end(scope, &on),
            Ok(Outcome::Needless(_) | Outcome::Gone) => {}
            Err(error) => {
                scope.failed(&target, &error);
                again.push(target);
                failures.add(error);
            }
        }
    }
    (again, failures)
}

/// Nobody works on the object any more, so its children are looked at.
fn end(scope: &Scope, target: &Target) {
    let from = target.shard.clone().or_else(|| scope.drains.previous(&target.uid));
    let Some(from) = from else { return };
    scope.drains.forget(&target.uid);
    if !scope.main.controlled.is_empty() {
        scope.looks.moved(&scope.main.resource.id, &from);
    }
}

#[cfg(test)]
mod tests;
