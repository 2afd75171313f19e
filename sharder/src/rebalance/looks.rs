//! Second looks at children: at those of shards that objects were moved from, and at those without label.
//!
//! A child can be created in the very moment in which its owner moves: it was labelled for the shard that still had the
//! owner, and is there when the children have been moved already. The former owner's proxy lets none of its own be so late;
//! but anybody may create children. Who is moved from is remembered for as long as such a create can take.
//!
//! And where an object is given an owner and none is known that it had, the webhook was mostly not asked when it was created:
//! its children may have been created in the same moment, and nobody sees what has no label before the next pass over all.
//! Such objects may come for as long as that lasts, so a look at what has no label does not wait for the last of them, and is
//! a tenth of the time at most.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    convert::Infallible,
    time::Duration,
};

use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::explain::explain;
use tokio::{sync::watch, time::Instant};

use super::{RETRY, children::bring_selected, unlabelled};
use crate::{
    assign::{Scope, writes::LATE},
    pauses,
};

/// When almost all creates have ended that began before a move: what Kubernetes promises for 99 of 100 writes to one object
/// (the SLO "API call latency").
const SOON: Duration = Duration::from_secs(1);

/// When to look at the children of which shard. Clones share it; it outlives the work on a snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks(watch::Sender<BTreeMap<(GroupResource, At), Look>>);

/// The children of a shard, or those without label.
type At = Option<String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// From when the first look counts: the last move, as while there are more, those that are still to come are no strays; or
    /// the first object without label.
    since: Instant,
    /// The last of either.
    last: Instant,
    /// Which of them is to come.
    next: Next,
    /// Not before this, however much there is to look at.
    not_before: Instant,
}

/// What is to come of two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    First,
    Last,
    /// Both were taken, and what is kept only says when another may be.
    None,
}

impl Look {
    /// The first of two, from now on.
    fn new() -> Self {
        let now = Instant::now();
        Self { since: now, last: now, next: Next::First, not_before: now }
    }

    fn due(self) -> Option<Instant> {
        let due = match self.next {
            Next::First => self.since + SOON,
            Next::Last => self.last + LATE,
            Next::None => return None,
        };
        Some(due.max(self.not_before))
    }
}

impl Looks {
    /// An object of the resource was moved away from a shard.
    pub(crate) fn moved(&self, resource: &GroupResource, from: &str) {
        let look = Look::new();
        // Whoever waits for an earlier look finds that it was put off; one that waits for the last look is told of the first.
        self.0.send_if_modified(|looks| {
            looks
                .insert((resource.clone(), Some(from.to_owned())), look)
                .is_none_or(|before| before.next != Next::First)
        });
    }

    /// Whether what has no label is to be looked for.
    #[cfg(test)]
    pub(super) fn is_due(&self, resource: &GroupResource) -> bool {
        self.0.borrow().contains_key(&(resource.clone(), None))
    }

    /// An object of the resource was given an owner, and none is known that it had.
    pub(crate) fn was_unlabelled(&self, resource: &GroupResource) {
        let new = Look::new();
        self.0.send_if_modified(|looks| match looks.entry((resource.clone(), None)) {
            Entry::Vacant(entry) => {
                entry.insert(new);
                true
            }
            Entry::Occupied(mut entry) => {
                let before = *entry.get();
                // Else it is due already.
                let is_sooner = before.next != Next::First;
                let since = if is_sooner { new.since } else { before.since };
                entry.insert(Look { since, not_before: before.not_before, ..new });
                is_sooner
            }
        });
    }

    /// A child may yet be sent to a shard that its owner does not go to: a write that failed may be carried out all the same.
    ///
    /// It is looked for once, when nothing can be late any more: what fails may do so for hours.
    pub(crate) fn may_be_late(&self, resource: &GroupResource, to: &str) {
        let now = Instant::now();
        self.0.send_if_modified(|looks| match looks.entry((resource.clone(), Some(to.to_owned()))) {
            Entry::Vacant(entry) => {
                entry.insert(Look { next: Next::Last, ..Look::new() });
                true
            }
            Entry::Occupied(mut entry) => {
                entry.get_mut().last = now;
                false
            }
        });
    }

    /// Forgets what was to be looked at of all other resources.
    pub(crate) fn keep_only(&self, resources: &BTreeSet<&GroupResource>) {
        self.0.send_modify(|looks| looks.retain(|(resource, _), _| resources.contains(resource)));
    }

    /// What to look at next, when it is time.
    async fn next(&self, resource: &GroupResource) -> (At, Look) {
        let mut changed = self.0.subscribe();
        loop {
            let next = {
                let looks = changed.borrow_and_update();
                let of_resource = looks.iter().filter(|((of, _), _)| of == resource);
                let to_come = of_resource.filter_map(|((_, at), look)| Some((look.due()?, at.clone(), *look)));
                to_come.min_by_key(|(due, ..)| *due)
            };
            let due = match next {
                Some((due, at, look)) if due <= Instant::now() => return (at, look),
                Some((due, ..)) => Some(due),
                None => None,
            };
            tokio::select! {
                () = pauses::at(due) => {}
                // The sender is `self`.
                _ = changed.changed() => {}
            }
        }
    }

    /// The look was taken. It counts unless there was more to look at after it had begun.
    fn done(&self, resource: &GroupResource, at: At, look: Look, took: Duration) {
        let (now, unlabelled) = (Instant::now(), at.is_none());
        let not_before = if unlabelled { now + unlabelled::pause(took) } else { now };
        self.0.send_modify(|looks| {
            let key = (resource.clone(), at);
            let Some(known) = looks.get_mut(&key) else { return };
            let next = match look.next {
                _ if *known != look => Next::First,
                Next::First => Next::Last,
                Next::Last | Next::None => Next::None,
            };
            if next == Next::None && !unlabelled {
                looks.remove(&key);
            } else {
                *known = Look { next, not_before, ..*known };
            }
        });
    }

    /// The look failed; the next ones come first, so that those of others are not kept from theirs.
    fn failed(&self, resource: &GroupResource, at: At, took: Duration) {
        let pause = if at.is_none() { unlabelled::pause(took) } else { RETRY };
        self.0.send_modify(|looks| {
            if let Some(look) = looks.get_mut(&(resource.clone(), at)) {
                look.not_before = Instant::now() + pause;
            }
        });
    }
}

/// Looks whenever it is time.
pub(crate) async fn look_again(scope: &Scope) -> Infallible {
    let resource = &scope.main.resource.id;
    loop {
        let (at, look) = scope.looks.next(resource).await;
        let begun = Instant::now();
        match look_at(scope, at.as_deref()).await {
            Ok(()) => scope.looks.done(resource, at, look, begun.elapsed()),
            Err(error) => {
                let (ring, error) = (&scope.snapshot.ring, explain(&error));
                tracing::warn!(%ring, %resource, of = at, error, "can't recheck children; trying again");
                scope.looks.failed(resource, at, begun.elapsed());
            }
        }
    }
}

async fn look_at(scope: &Scope, shard: Option<&str>) -> Result<(), kube::Error> {
    let Some(from) = shard else { return unlabelled::label(scope).await };
    let (ring, of_shard) = (&scope.snapshot.ring, format!("{}={from}", scope.snapshot.labels.shard));
    for (resource, objects) in bring_selected(scope, &of_shard).await? {
        tracing::info!(%ring, %resource, from, objects, "moved late children to their owners' shards");
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
        assert_eq!((from.as_deref(), start.elapsed()), (Some("a"), SOON + SOON));
        // Moved again while it was looked at: it is looked at again.
        looks.moved(&xs(), "a");
        looks.done(&xs(), from, look, Duration::ZERO);
        for after in [SOON + SOON + SOON, SOON + SOON + LATE] {
            let (from, look) = looks.next(&xs()).await;
            assert_eq!(start.elapsed(), after);
            looks.done(&xs(), from, look, Duration::ZERO);
        }
        assert!(looks.0.borrow().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_without_label_puts_no_look_off_and_makes_them_no_more_than_a_tenth_of_the_time() {
        let (looks, resource, start) = (Looks::default(), xs(), Instant::now());
        let (mut seen, took) = (Vec::new(), Duration::from_secs(3));
        for _ in 0..400 {
            looks.was_unlabelled(&resource);
            tokio::select! {
                (at, look) = looks.next(&resource) => {
                    seen.push(start.elapsed().as_secs());
                    tokio::time::sleep(took).await;
                    looks.done(&resource, at, look, took);
                }
                () = tokio::time::sleep(SOON / 4) => {}
            }
        }
        // Every 33 s: three for the look, ten times as long until the next.
        assert!(seen.windows(2).all(|pair| pair[1] - pair[0] >= 33), "{seen:?}");
        assert!(seen.first() == Some(&1) && seen.len() >= 3, "{seen:?}");
        // And when no more come, the last of the two.
        let last = Instant::now();
        while let Ok((at, look)) = tokio::time::timeout(LATE * 4, looks.next(&resource)).await {
            looks.done(&resource, at, look, Duration::ZERO);
        }
        assert!(last.elapsed() >= LATE);
        // The last one took no time, and another object is looked after as soon.
        let start = Instant::now();
        looks.was_unlabelled(&resource);
        let (at, look) = looks.next(&resource).await;
        assert_eq!((&at, start.elapsed()), (&None, SOON));
        looks.done(&resource, at, look, took);
        let start = Instant::now();
        looks.was_unlabelled(&resource);
        let (at, _) = looks.next(&resource).await;
        assert_eq!(start.elapsed(), took * 10);
        looks.failed(&resource, at, took);
        looks.moved(&resource, "a");
        let (at, _) = looks.next(&resource).await;
        assert_eq!(at.as_deref(), Some("a"), "one that fails keeps no other from its turn");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_last_look_is_told_of_another_move() {
        let (looks, resource) = (Looks::default(), xs());
        looks.moved(&resource, "a");
        let (at, look) = looks.next(&resource).await;
        looks.done(&resource, at, look, Duration::ZERO);
        let start = Instant::now();
        let mut next = std::pin::pin!(looks.next(&resource));
        tokio::select! {
            _ = &mut next => panic!("not yet"),
            () = tokio::time::sleep(SOON) => looks.moved(&resource, "a"),
        }
        next.await;
        assert_eq!(start.elapsed(), SOON + SOON);
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_for_long_costs_one_look_and_puts_no_other_off() {
        let (looks, resource, start) = (Looks::default(), xs(), Instant::now());
        let mut seen = Vec::new();
        for round in 0..100 {
            looks.may_be_late(&resource, "a");
            if round == 50 {
                looks.moved(&resource, "a");
            }
            while let Ok((at, look)) = tokio::time::timeout(SOON * 2, looks.next(&resource)).await {
                seen.push((round, start.elapsed()));
                looks.done(&resource, at, look, Duration::ZERO);
            }
        }
        assert_eq!(seen.iter().map(|(round, _)| *round).collect::<Vec<_>>(), [50]);
        let last = Instant::now() - SOON * 2;
        let (at, look) = looks.next(&resource).await;
        looks.done(&resource, at, look, Duration::ZERO);
        assert_eq!(last.elapsed(), LATE);
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
