//! The objects that are known to wait for their shard to let go.
//!
//! An acknowledged object carries no label that tells who had it. Who remembers that needs to look at that shard's
//! children only, and at all children otherwise: forgetting costs time, nothing else.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use ringside_ring::{Grace, cluster_ring::GroupResource};
use tokio::{sync::watch, time::Instant};

use crate::{
    assign::{Sought, writes::LATE},
    move_id,
    target::Target,
};

/// Objects remembered at most: memory must not grow with the objects (DESIGN, "Sharder").
const CAPACITY: usize = 10_000;
/// A table of so many is as good as none.
const FEW: usize = 64;

struct Drain {
    resource: GroupResource,
    namespace: Option<String>,
    shard: String,
    /// The value of the drain label: another one is another drain.
    id: String,
    /// Whether it was reported that the shard is late.
    reported: bool,
    /// When it began, by the clock of whoever began it.
    began: SystemTime,
    since: Instant,
    last_seen: Instant,
    asked: Asked,
}

/// What is known of the write that asks for a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// It is under way, or waits for its turn: no list shows it yet.
    NotYet,
    /// It had no answer, and may have been carried out, or be.
    Perhaps,
    /// It was carried out.
    Yes,
}

#[derive(Default)]
struct Register {
    by_uid: HashMap<String, Drain>,
    by_age: BTreeSet<(Instant, String)>,
    /// How many of each resource there were when somebody last looked at all: there may be more than can be remembered.
    found: BTreeMap<GroupResource, usize>,
    /// Tells when something begins to drain, and when somebody has looked at all that do.
    changes: watch::Sender<()>,
    /// Tells when a drain ends.
    ended: watch::Sender<()>,
}

impl Register {
    fn remember(&mut self, resource: &GroupResource, target: &Target, shard: &str, id: &str) {
        let (uid, now) = (&*target.uid, Instant::now());
        // An earlier drain of the object was acknowledged, and nobody saw who had it since.
        if let Some(earlier) = self.by_uid.get(uid).filter(|drain| drain.id != id).map(|drain| drain.since) {
            self.by_uid.remove(uid);
            self.by_age.remove(&(earlier, uid.to_owned()));
        }
        if let Some(drain) = self.by_uid.get_mut(uid) {
            shard.clone_into(&mut drain.shard);
            drain.last_seen = now;
            if drain.asked == Asked::Perhaps {
                // It was carried out after all: its shard's time begins.
                drain.asked = Asked::Yes;
                self.date(uid, now);
            }
        } else if self.by_uid.len() < CAPACITY {
            let drain = Drain {
                resource: resource.clone(),
                namespace: target.namespace.clone(),
                shard: shard.to_owned(),
                id: id.to_owned(),
                reported: false,
                began: SystemTime::now() - move_id::age(id, SystemTime::now()).unwrap_or_default(),
                since: now,
                last_seen: now,
                asked: Asked::Yes,
            };
            self.by_uid.insert(uid.to_owned(), drain);
            self.by_age.insert((now, uid.to_owned()));
            self.changes.send_replace(());
        }
    }

    /// The drain has been known since `now`, and not for longer.
    fn date(&mut self, uid: &str, now: Instant) {
        let Some(drain) = self.by_uid.get_mut(uid) else { return };
        let before = std::mem::replace(&mut drain.since, now);
        drain.last_seen = now;
        self.by_age.remove(&(before, uid.to_owned()));
        self.by_age.insert((now, uid.to_owned()));
        self.changes.send_replace(());
    }

    /// Drains have ended. Gives back what a table of many takes when most of them are gone: by itself it stays as large as it was.
    fn shrink(&mut self) {
        self.ended.send_replace(());
        let most = (self.by_uid.len() * 2).max(FEW);
        if most < self.by_uid.capacity() / 2 {
            self.by_uid.shrink_to(most);
        }
    }
}

/// What is told of the drains of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) draining: usize,
    /// When the first of them began.
    pub(crate) since: Option<SystemTime>,
    /// By shard, those that it has not let go of in time, and keeps.
    pub(crate) overdue: BTreeMap<String, usize>,
}

/// A drain whose shard said how long it sends nothing about the object before it lets go.
#[derive(Debug)]
pub(crate) struct Promised {
    /// The object, and where its children are.
    pub(crate) sought: Sought,
    /// The value of the drain label.
    pub(crate) id: String,
    pub(crate) grace: Duration,
}

/// A drain that is about to be asked for. Dropped: it may have been carried out, or be, for as long as a write can take.
#[must_use]
pub(crate) struct Asking {
    drains: Drains,
    uid: String,
    id: String,
    /// What is known of it in the end.
    asked: Asked,
}

impl Asking {
    /// It was carried out.
    pub(crate) fn answered(mut self) {
        self.asked = Asked::Yes;
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut register = self.drains.0.lock();
        if let Some(drain) = register.by_uid.get_mut(&self.uid).filter(|drain| drain.id == self.id) {
            drain.asked = self.asked;
            // From now on a list shows it, and its shard has time: what waited for its turn was nobody's to let go of.
            register.date(&self.uid, Instant::now());
        }
    }
}

/// The drains of one ring; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Drains(Arc<Mutex<Register>>);

impl Drains {
    /// `shard` was asked by `id` to let go of the object, and has not done so.
    pub(crate) fn remember(&self, resource: &GroupResource, target: &Target, shard: &str, id: &str) {
        self.0.lock().remember(resource, target, shard, id);
    }

    /// The same, of a drain that is about to be asked for: until what this returns is dropped, whoever looks at all objects may
    /// not see it.
    pub(crate) fn asking(&self, resource: &GroupResource, target: &Target, shard: &str, id: &str) -> Asking {
        let mut register = self.0.lock();
        register.remember(resource, target, shard, id);
        if let Some(drain) = register.by_uid.get_mut(&target.uid) {
            drain.asked = Asked::NotYet;
        }
        Asking { drains: self.clone(), uid: target.uid.clone(), id: id.to_owned(), asked: Asked::Perhaps }
    }

    /// Tells when something begins to drain, and when somebody has looked at all that do.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.0.lock().changes.subscribe()
    }

    /// Tells when a drain ends.
    pub(crate) fn ended(&self) -> watch::Receiver<()> {
        self.0.lock().ended.subscribe()
    }

    /// How many objects are on the move: those that were asked for, or first seen to drain, within this time.
    pub(crate) fn in_progress(&self, within: Duration) -> usize {
        let Some(since) = Instant::now().checked_sub(within) else { return self.0.lock().by_age.len() };
        self.0.lock().by_age.range((since, String::new())..).count()
    }

    /// Of a resource's objects those with a promise that, by its grace and the age of the drain, are worth it: the oldest
    /// first, and not more than `most`.
    pub(crate) fn promised(
        &self,
        resource: &GroupResource,
        most: usize,
        worth: impl Fn(Duration, Duration) -> bool,
    ) -> Vec<Promised> {
        let Register { by_uid, by_age, .. } = &*self.0.lock();
        let promised = by_age.iter().filter_map(|(since, uid)| {
            let drain = by_uid.get(uid).filter(|drain| drain.resource == *resource && drain.asked != Asked::Perhaps)?;
            let grace = Grace::asked(&drain.id)?.duration();
            let (namespace, from) = (drain.namespace.clone(), Some(drain.shard.clone()));
            let sought = Sought { uid: uid.clone(), namespace, from };
            worth(grace, since.elapsed()).then(|| Promised { sought, id: drain.id.clone(), grace })
        });
        promised.take(most).collect()
    }

    /// The value of the drain label by which the object was last asked for.
    pub(crate) fn id(&self, uid: &str) -> Option<String> {
        self.0.lock().by_uid.get(uid).map(|drain| drain.id.clone())
    }

    /// Who was asked to let go of the object.
    pub(crate) fn previous(&self, uid: &str) -> Option<String> {
        self.0.lock().by_uid.get(uid).map(|drain| drain.shard.clone())
    }

    /// When the object's drain began, as far as that is known.
    pub(crate) fn began(&self, uid: &str) -> Option<SystemTime> {
        self.0.lock().by_uid.get(uid).map(|drain| drain.began)
    }

    /// For how long the object has been known to be drained by `id`: not while that is still to be written, or to be seen.
    pub(crate) fn age(&self, uid: &str, id: &str) -> Duration {
        let register = self.0.lock();
        let asked = register.by_uid.get(uid).filter(|drain| drain.id == id && drain.asked == Asked::Yes);
        asked.map_or(Duration::ZERO, |drain| drain.since.elapsed())
    }

    /// Whether any of a resource's objects is known to drain.
    pub(crate) fn any(&self, resource: &GroupResource) -> bool {
        let register = self.0.lock();
        register.by_uid.values().any(|drain| drain.resource == *resource && drain.asked == Asked::Yes)
    }

    /// Since when the first of a resource's objects has been waiting, or may have been.
    pub(crate) fn oldest(&self, resource: &GroupResource) -> Option<Instant> {
        let register = self.0.lock();
        let of_resource = |uid: &str| register.by_uid.get(uid).is_some_and(|drain| drain.resource == *resource);
        register.by_age.iter().find(|(_, uid)| of_resource(uid)).map(|(since, _)| *since)
    }

    /// Whether it is the first time that this drain is reported.
    pub(crate) fn report(&self, uid: &str) -> bool {
        let mut register = self.0.lock();
        register.by_uid.get_mut(uid).is_some_and(|drain| !std::mem::replace(&mut drain.reported, true))
    }

    /// The object has an owner again, or is gone.
    pub(crate) fn forget(&self, uid: &str) {
        let mut register = self.0.lock();
        if let Some(drain) = register.by_uid.remove(uid) {
            register.by_age.remove(&(drain.since, uid.to_owned()));
            register.shrink();
        }
    }

    /// Whoever looked at all objects of a resource, from `start` on, has seen `found` that drain: the others are gone.
    pub(crate) fn forget_unseen_since(&self, resource: &GroupResource, start: Instant, found: usize) {
        let mut register = self.0.lock();
        let Register { by_uid, by_age, found: all_found, .. } = &mut *register;
        let may_be_unseen = |drain: &Drain| match drain.asked {
            Asked::NotYet => true,
            Asked::Perhaps => drain.since.elapsed() < LATE,
            Asked::Yes => false,
        };
        by_uid.retain(|_, drain| drain.resource != *resource || may_be_unseen(drain) || drain.last_seen >= start);
        by_age.retain(|(_, uid)| by_uid.contains_key(uid));
        all_found.insert(resource.clone(), found);
        register.shrink();
        register.changes.send_replace(());
    }

    /// Forgets the drains of all other resources.
    pub(crate) fn keep_only(&self, resources: &BTreeSet<&GroupResource>) {
        let mut register = self.0.lock();
        let Register { by_uid, by_age, found, .. } = &mut *register;
        by_uid.retain(|_, drain| resources.contains(&drain.resource));
        by_age.retain(|(_, uid)| by_uid.contains_key(uid));
        found.retain(|resource, _| resources.contains(resource));
        register.shrink();
    }

    /// What is known of the drains of each resource.
    pub(crate) fn figures(&self) -> BTreeMap<GroupResource, Figures> {
        let register = self.0.lock();
        let mut figures: BTreeMap<GroupResource, Figures> = BTreeMap::new();
        for drain in register.by_uid.values().filter(|drain| drain.asked != Asked::Perhaps) {
            if !figures.contains_key(&drain.resource) {
                figures.insert(drain.resource.clone(), Figures::default());
            }
            let Some(figures) = figures.get_mut(&drain.resource) else { continue };
            figures.draining += 1;
            figures.since = figures.since.into_iter().chain([drain.began]).min();
            if drain.reported {
                *figures.overdue.entry(drain.shard.clone()).or_default() += 1;
            }
        }
        if register.by_uid.len() == CAPACITY {
            for (resource, figures) in &mut figures {
                figures.draining = figures.draining.max(register.found.get(resource).copied().unwrap_or_default());
            }
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn resource(name: &str) -> GroupResource {
        GroupResource { group: String::new(), resource: name.into() }
    }

    fn target(uid: &str) -> Target {
        Target { uid: uid.into(), ..Target::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_whole_pass_does_not_see_is_forgotten() {
        let drains = Drains::default();
        drains.remember(&resource("xs"), &target("gone"), "a", "m");
        drains.remember(&resource("xs"), &target("here"), "a", "m");
        drains.remember(&resource("ys"), &target("other"), "a", "m");
        tokio::time::advance(Duration::from_secs(1)).await;
        let start = Instant::now();
        drains.remember(&resource("xs"), &target("here"), "a", "m");
        drains.forget_unseen_since(&resource("xs"), start, 1);
        assert_eq!((drains.previous("gone"), drains.previous("here")), (None, Some("a".into())));
        assert_eq!(drains.previous("other").as_deref(), Some("a"), "another resource's pass is another");
        drains.forget("other");
        drains.forget("here");
        assert_eq!(drains.previous("here"), None);
        let register = drains.0.lock();
        assert!(register.by_uid.is_empty() && register.by_age.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_about_to_be_asked_for_is_not_forgotten_by_who_could_not_see_it() {
        let (drains, xs, moment) = (Drains::default(), resource("xs"), Duration::from_secs(1));
        let asking = drains.asking(&xs, &target("waits"), "a", "m");
        tokio::time::advance(moment).await;
        let start = Instant::now();
        drains.forget_unseen_since(&xs, start, 0);
        assert_eq!(drains.previous("waits").as_deref(), Some("a"), "no list shows it yet");
        tokio::time::advance(moment).await;
        assert_eq!(drains.age("waits", "m"), Duration::ZERO, "its shard knows of nothing");
        asking.answered();
        assert_eq!(drains.age("waits", "m"), Duration::ZERO, "and has not been late yet");
        assert_eq!(drains.oldest(&xs), Some(Instant::now()));
        drains.forget_unseen_since(&xs, start, 0);
        assert_eq!(drains.previous("waits").as_deref(), Some("a"), "that list began before it was asked for");
        tokio::time::advance(moment).await;
        drains.forget_unseen_since(&xs, Instant::now(), 0);
        assert_eq!(drains.previous("waits"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_asked_for_without_an_answer_is_kept_until_it_is_seen_or_can_come_no_more() {
        let (drains, xs, moment) = (Drains::default(), resource("xs"), Duration::from_secs(1));
        for uid in ["seen", "never"] {
            drop(drains.asking(&xs, &target(uid), "a", "m"));
        }
        tokio::time::advance(moment).await;
        drains.forget_unseen_since(&xs, Instant::now(), 0);
        assert_eq!(drains.id("seen").zip(drains.id("never")), Some(("m".to_owned(), "m".to_owned())));
        assert_eq!((drains.any(&xs), drains.figures().len(), drains.age("seen", "m")), (false, 0, Duration::ZERO));
        assert!(drains.oldest(&xs).is_some(), "somebody is to look");
        drains.remember(&xs, &target("seen"), "a", "m");
        tokio::time::advance(moment).await;
        assert_eq!((drains.any(&xs), drains.figures()[&xs].draining), (true, 1));
        assert_eq!(drains.age("seen", "m"), moment, "since then its shard has known");
        drains.remember(&xs, &target("seen"), "a", "m");
        assert_eq!(drains.age("seen", "m"), moment);
        tokio::time::advance(LATE).await;
        let start = Instant::now();
        drains.remember(&xs, &target("seen"), "a", "m");
        drains.forget_unseen_since(&xs, start, 1);
        assert_eq!((drains.id("seen"), drains.id("never")), (Some("m".to_owned()), None));
        assert_eq!(drains.0.lock().by_age.len(), 1);
    }

    #[tokio::test]
    async fn of_a_resource_that_leaves_the_ring_nothing_is_kept() {
        let drains = Drains::default();
        for name in ["xs", "ys"] {
            drains.remember(&resource(name), &target(name), "a", "m");
            drains.forget_unseen_since(&resource(name), Instant::now() - Duration::from_secs(60), 1);
        }
        drains.keep_only(&[&resource("ys")].into());
        assert_eq!((drains.previous("xs"), drains.previous("ys")), (None, Some("a".into())));
        let register = drains.0.lock();
        assert_eq!((register.by_age.len(), register.found.len()), (1, 1));
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        let drains = Drains::default();
        for i in 0..=CAPACITY {
            drains.remember(&resource("xs"), &target(&i.to_string()), "a", "m");
        }
        assert_eq!(drains.0.lock().by_uid.len(), CAPACITY);
        drains.remember(&resource("xs"), &target("0"), "b", "m");
        assert_eq!(drains.previous("0").as_deref(), Some("b"));
        drains.forget_unseen_since(&resource("xs"), Instant::now() - Duration::from_secs(60), CAPACITY + 7);
        assert_eq!(drains.figures()[&resource("xs")].draining, CAPACITY + 7, "all that there are");
        drains.forget("0");
        assert_eq!(drains.figures()[&resource("xs")].draining, CAPACITY - 1, "all of them are remembered");
        for i in 1..CAPACITY {
            drains.forget(&i.to_string());
        }
        let left = drains.0.lock().by_uid.capacity();
        assert!(left < 4 * FEW, "the table of {CAPACITY} stays, with room for {left}");
    }

    #[tokio::test(start_paused = true)]
    async fn another_drain_of_an_object_has_its_own_age() {
        let drains = Drains::default();
        drains.remember(&resource("xs"), &target("u"), "a", "m1");
        tokio::time::advance(Duration::from_secs(9)).await;
        drains.remember(&resource("xs"), &target("u"), "a", "m1");
        assert_eq!((drains.age("u", "m1"), drains.age("u", "m2")), (Duration::from_secs(9), Duration::ZERO));
        assert_eq!(drains.figures()[&resource("xs")].overdue, BTreeMap::new());
        assert!(drains.report("u") && !drains.report("u"));
        assert_eq!(drains.figures()[&resource("xs")].overdue, BTreeMap::from([("a".to_owned(), 1)]));
        drains.remember(&resource("xs"), &target("u"), "b", "m2");
        assert_eq!((drains.age("u", "m2"), drains.oldest(&resource("xs"))), (Duration::ZERO, Some(Instant::now())));
        assert!(drains.report("u"));
        assert_eq!(drains.oldest(&resource("ys")), None);
        assert_eq!(drains.0.lock().by_age.len(), 1);
    }
}
