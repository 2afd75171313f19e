//! Second looks at the children of shards that objects were moved from.
//!
//! A child can be created in the very moment in which its owner moves: it was labelled for the shard that still had the
//! owner, and is there when the children have been moved already. The former owner's proxy lets none of its own be so late;
//! but anybody may create children. Who is moved from is remembered for as long as such a create can take.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::Duration,
};

use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::explain::explain;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{RETRY, children::bring_selected};
use crate::assign::Scope;

/// When almost all creates have ended that began before a move: what Kubernetes promises for 99 of 100 writes to one object
/// (the SLO "API call latency").
const SOON: Duration = Duration::from_secs(1);
/// When the last of them has: a write that was forwarded may live for 34 s in the API server (CONTROL-PLANE, 13).
const LATE: Duration = Duration::from_secs(35);

/// When to look at the children of which shard. Clones share it; it outlives the work on a snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks(watch::Sender<BTreeMap<(GroupResource, String), Look>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// The last move. While there are more, those that are still to come are no strays.
    last: Instant,
    /// Whether the first of the two looks is still to come.
    first: bool,
}

impl Look {
    fn due(self) -> Instant {
        self.last + if self.first { SOON } else { LATE }
    }
}

impl Looks {
    /// An object of the resource was moved away from a shard.
    pub(crate) fn moved(&self, resource: &GroupResource, from: &str) {
        let look = Look { last: Instant::now(), first: true };
        // Whoever waits for an earlier look finds that it was put off.
        self.0.send_if_modified(|looks| looks.insert((resource.clone(), from.to_owned()), look).is_none());
    }

    /// Forgets what was to be looked at of all other resources.
    pub(crate) fn keep_only(&self, resources: &BTreeSet<&GroupResource>) {
        self.0.send_modify(|looks| looks.retain(|(resource, _), _| resources.contains(resource)));
    }

    /// The next shard to look at, when it is time.
    async fn next(&self, resource: &GroupResource) -> (String, Look) {
        let mut changed = self.0.subscribe();
        loop {
            let next = {
                let looks = changed.borrow_and_update();
                let of_resource = looks.iter().filter(|((of, _), _)| of == resource);
                of_resource.map(|((_, from), look)| (from.clone(), *look)).min_by_key(|(_, look)| look.due())
            };
            let due = match next {
                Some((from, look)) if look.due() <= Instant::now() => return (from, look),
                Some((_, look)) => Some(look.due()),
                None => None,
            };
            tokio::select! {
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                // The sender is `self`.
                _ = changed.changed() => {}
            }
        }
    }

    /// The look was taken. It counts unless there were moves after it had begun.
    fn done(&self, resource: &GroupResource, from: String, look: Look) {
        self.0.send_modify(|looks| {
            let key = (resource.clone(), from);
            match looks.get_mut(&key) {
                Some(now) if *now == look && look.first => now.first = false,
                Some(now) if *now == look => drop(looks.remove(&key)),
                _ => {}
            }
        });
    }
}

/// Looks whenever it is time.
pub(crate) async fn look_again(scope: &Scope) -> Infallible {
    let resource = &scope.main.resource.id;
    loop {
        let (from, look) = scope.looks.next(resource).await;
        match look_at(scope, &from).await {
            Ok(()) => scope.looks.done(resource, from, look),
            Err(error) => {
                let (ring, error) = (&scope.snapshot.ring, explain(&error));
                tracing::warn!(%ring, %resource, from, error, "can't look again at the children of a shard; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn look_at(scope: &Scope, from: &str) -> Result<(), kube::Error> {
    let of_shard = format!("{}={from}", scope.snapshot.labels.shard);
    for (resource, objects) in bring_selected(scope, &of_shard).await? {
        let ring = &scope.snapshot.ring;
        tracing::info!(%ring, %resource, from, objects, "brought children that were late for a move");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn xs() -> GroupResource {
        GroupResource { group: String::new(), resource: "xs".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn each_shard_is_looked_at_soon_after_its_last_move_and_when_nothing_can_be_late_any_more() {
        let (looks, resource, start) = (Looks::default(), xs(), Instant::now());
        let mut next = std::pin::pin!(looks.next(&resource));
        for _ in 0..2 {
            tokio::select! {
                _ = &mut next => panic!("not yet"),
                () = tokio::time::sleep(SOON / 2) => looks.moved(&xs(), "a"),
            }
        }
        let (from, look) = next.await;
        assert_eq!((&*from, start.elapsed()), ("a", SOON + SOON));
        // Moved again while it was looked at: it is looked at again.
        looks.moved(&xs(), "a");
        looks.done(&xs(), from, look);
        for after in [SOON + SOON + SOON, SOON + SOON + LATE] {
            let (from, look) = looks.next(&xs()).await;
            assert_eq!(start.elapsed(), after);
            looks.done(&xs(), from, look);
        }
        assert!(looks.0.borrow().is_empty());
    }

    #[test]
    fn of_a_resource_that_leaves_the_ring_nothing_is_kept() {
        let (looks, ys) = (Looks::default(), GroupResource { resource: "ys".into(), ..xs() });
        looks.moved(&xs(), "a");
        looks.moved(&ys, "a");
        looks.keep_only(&[&ys].into());
        assert_eq!(looks.0.borrow().keys().map(|(resource, _)| resource).collect::<Vec<_>>(), [&ys]);
    }
}
