//! Looks for the families of objects while their shards still let go of them.
//!
//! A list that shows every child is slow: the API server's watch cache first asks etcd how far it is, and a chain needs one
//! list after the other. Done after the acknowledgement, that is time in which nobody owns the object. But the shard says
//! how long it has sent nothing about an object when it lets go (`ringside_ring::grace`): a list that began no longer
//! than that before the acknowledgement was seen shows all that the shard ever created under it. So, while something
//! drains, families are looked for in rounds. What no round in time has shown is looked for after the acknowledgement, as
//! is everything of shards that promise nothing.
//!
//! A round lists the controlled resources once for all that drain. It pauses for as long as the round before took, and for a
//! quarter of the grace: so a round that is in time has ended when an object is let go, and half of the time there is
//! none. A drain that is not acknowledged within [`PATIENCE`] times its grace is not looked after any more.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    convert::Infallible,
    time::Duration,
};

use ringside_ring::{Grace, Moment, cluster_ring::GroupResource};
use ringside_runtime::explain::explain;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    BATCH, Scope,
    children::{Family, families},
    plan::{Move, Sought},
};
use crate::{drains::Promised, snapshot::Main, target::Target};

/// Children remembered at most: memory must not grow with the objects (DESIGN, "Sharder").
const CHILDREN: usize = 10_000;
/// Owners in one round at most, those first that drain for the longest.
const OWNERS: usize = 2 * BATCH;
/// For how many times its grace an object that drains is looked after. One that takes longer is being worked on, or its
/// shard hangs: then the rounds would go on for ever.
const PATIENCE: u32 = 8;
/// No round is in time for a shorter grace: a list waits up to 100 ms for etcd, the period in which the API server asks it.
const SHORTEST: Duration = Duration::from_millis(100);
/// How soon it is looked again after a list that failed.
const RETRY: Duration = Duration::from_secs(5);
/// Of a promised time that much counts as less, as the clocks of two machines don't run at one speed: NTP corrects them by
/// up to 500 in a million.
const DRIFT: u32 = 100;

/// The families of one ring's objects that drain, by the main resource; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Foresight(watch::Sender<BTreeMap<GroupResource, Rounds>>);

#[derive(Debug, Default)]
struct Rounds {
    last: Option<Round>,
    under_way: Option<UnderWay>,
}

/// What a round has shown.
#[derive(Debug)]
struct Round {
    /// What it looked through.
    main: Main,
    began: Moment,
    /// By the uid of the owner, with the value of the drain label: another one is another drain.
    families: HashMap<String, (String, Family)>,
}

#[derive(Debug)]
struct UnderWay {
    began: Moment,
    drains: HashSet<String>,
}

/// Says that a round is over, however it ends.
struct Ending<'a>(&'a Foresight, &'a GroupResource);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.change(self.1, |rounds| rounds.under_way = None);
    }
}

/// What the shard of an acknowledged object promised.
struct Promise {
    drain: String,
    /// What began earlier comes too early.
    since: Moment,
}

impl Promise {
    /// Nothing for an object that is not acknowledged, or was let go of without such a promise. It counts from now: so this
    /// is asked once, when the object was seen.
    fn of(scope: &Scope, target: &Target) -> Option<Self> {
        let drain = scope.drains.id(&target.uid).filter(|_| target.shard.is_none())?;
        let grace = Grace::asked(&drain)?.duration();
        Some(Self { drain, since: scope.leases.now() - (grace - grace / DRIFT) })
    }
}

impl Foresight {
    /// Forgets what was found out about all other resources.
    pub(crate) fn keep_only(&self, resources: &BTreeSet<&GroupResource>) {
        self.0.send_modify(|all| all.retain(|resource, _| resources.contains(resource)));
    }

    /// Whether the family of an object that was seen just now need not be looked for.
    pub(super) fn knows(&self, scope: &Scope, target: &Target) -> bool {
        let Some(promise) = Promise::of(scope, target).filter(|_| scope.begun.knows(&scope.main.resource.id)) else {
            return false;
        };
        let all = self.0.borrow();
        let last = all.get(&scope.main.resource.id).and_then(|rounds| rounds.last.as_ref());
        last.is_some_and(|round| round.serves(scope, &target.uid, &promise))
    }

    /// The family of an object, if a round has shown it in time.
    fn family(&self, scope: &Scope, uid: &str, promise: &Promise) -> Option<Family> {
        let all = self.0.borrow();
        let round = all.get(&scope.main.resource.id)?.last.as_ref()?;
        if !round.serves(scope, uid, promise) {
            return None;
        }
        round.families.get(uid).map(|(_, family)| family.clone())
    }

    /// When the round under way began that will show the family in time.
    fn awaited(&self, scope: &Scope, promise: &Promise) -> Option<Moment> {
        let all = self.0.borrow();
        let round = all.get(&scope.main.resource.id)?.under_way.as_ref()?;
        (round.began >= promise.since && round.drains.contains(&promise.drain)).then_some(round.began)
    }

    /// Returns once the round that began then is over.
    async fn over(&self, resource: &GroupResource, began: Moment) {
        let is_over = |all: &BTreeMap<GroupResource, Rounds>| {
            let under_way = all.get(resource).and_then(|rounds| rounds.under_way.as_ref());
            under_way.is_none_or(|round| round.began != began)
        };
        // The sender is `self`.
        let _ = self.0.subscribe().wait_for(is_over).await;
    }

    fn change(&self, resource: &GroupResource, change: impl FnOnce(&mut Rounds)) {
        self.0.send_modify(|all| change(all.entry(resource.clone()).or_default()));
    }
}

impl Round {
    fn serves(&self, scope: &Scope, uid: &str, promise: &Promise) -> bool {
        let same = self.families.get(uid).is_some_and(|(drain, _)| *drain == promise.drain);
        same && self.began >= promise.since && self.main == scope.main
    }
}

/// The families of objects that are about to be moved, by their uids: known already, about to be, or looked for now.
pub(super) async fn families_of(scope: &Scope, moves: &[Move]) -> Result<HashMap<String, Family>, kube::Error> {
    let mut known: HashMap<String, Family> = HashMap::new();
    let (mut awaited, mut unknown, mut round) = (Vec::new(), Vec::new(), None);
    for one in moves {
        let uid = &one.target.uid;
        let Some(promise) = Promise::of(scope, &one.target).filter(|_| one.from.is_some()) else {
            unknown.push(Sought::of(one));
            continue;
        };
        if let Some(family) = scope.foresight.family(scope, uid, &promise) {
            known.insert(uid.clone(), family);
        } else if let Some(began) = scope.foresight.awaited(scope, &promise) {
            round = Some(began);
            awaited.push((one, promise));
        } else {
            unknown.push(Sought::of(one));
        }
    }
    let waiting = async {
        if let Some(began) = round {
            scope.foresight.over(&scope.main.resource.id, began).await;
        }
        let (mut shown, mut rest) = (HashMap::new(), Vec::new());
        for (one, promise) in awaited {
            match scope.foresight.family(scope, &one.target.uid, &promise) {
                Some(family) => drop(shown.insert(one.target.uid.clone(), family)),
                None => rest.push(Sought::of(one)),
            }
        }
        shown.extend(families(scope, &rest, usize::MAX).await?);
        Ok::<_, kube::Error>(shown)
    };
    let (shown, found) = futures::future::try_join(waiting, families(scope, &unknown, usize::MAX)).await?;
    known.extend(shown);
    known.extend(found);
    Ok(known)
}

/// Makes rounds while something drains.
pub(super) async fn look_ahead(scope: &Scope) -> Infallible {
    let resource = &scope.main.resource.id;
    if scope.main.controlled.is_empty() {
        return std::future::pending().await;
    }
    let (mut drains, mut took) = (scope.drains.changes(), Duration::ZERO);
    loop {
        drains.borrow_and_update();
        let Some(grace) = promised(scope).iter().map(|drain| drain.grace).min() else {
            scope.foresight.change(resource, |rounds| rounds.last = None);
            // The sender lives in `scope`.
            let _ = drains.changed().await;
            continue;
        };
        sleep((grace / 4).max(took)).await;
        let start = Instant::now();
        if let Err(error) = look(scope).await {
            let (ring, error) = (&scope.snapshot.ring, explain(&error));
            tracing::debug!(%ring, %resource, error, "can't prefetch children; they are listed when their owners are released");
            sleep(RETRY).await;
        }
        took = start.elapsed();
    }
}

/// The objects that are worth a look. Where children may be with any shard, none are.
fn promised(scope: &Scope) -> Vec<Promised> {
    let resource = &scope.main.resource.id;
    if !scope.begun.knows(resource) {
        return Vec::new();
    }
    let worth = |grace: Duration, age: Duration| grace >= SHORTEST && age < grace * PATIENCE;
    scope.drains.promised(resource, OWNERS, worth)
}

/// One round.
async fn look(scope: &Scope) -> Result<(), kube::Error> {
    let resource = &scope.main.resource.id;
    // In this order: what is listed is not older.
    let (drains, began) = (promised(scope), scope.leases.now());
    let ids = drains.iter().map(|drain| drain.id.clone()).collect();
    scope.foresight.change(resource, |rounds| rounds.under_way = Some(UnderWay { began, drains: ids }));
    let _ending = Ending(&scope.foresight, resource);
    let (sought, start): (Vec<_>, _) = (drains.iter().map(|drain| drain.sought.clone()).collect(), Instant::now());
    let mut found = families(scope, &sought, CHILDREN).await?;
    let families = drains.into_iter().filter_map(|Promised { sought, id, .. }| {
        let family = found.remove(&sought.uid)?;
        Some((sought.uid, (id, family)))
    });
    let (ring, took) = (&scope.snapshot.ring, start.elapsed());
    tracing::debug!(%ring, %resource, owners = sought.len(), ?took, "looked ahead for children");
    let round = Round { main: scope.main.clone(), began, families: families.collect() };
    scope.foresight.change(resource, |rounds| rounds.last = Some(round));
    Ok(())
}

#[cfg(test)]
mod tests;
