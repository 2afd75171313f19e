//! The drains under way: who was asked to release which object, and since when.
//!
//! An acknowledged object carries no label that tells who had it. So this is kept until the object has a shard again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, SystemTime},
};

use ringside_ring::{Grace, cluster_ring::GroupResource, doing::millis};
use tokio::{sync::watch, time::Instant};

use crate::{
    doing::{Move, WaitsFor},
    lock::Mutex,
    move_id,
    target::Target,
};
use ringside_ring::REQUEST_LIFETIME;

/// A shard that has released an object is trusted for so long to release others: rights and programs change.
const TRUSTED: Duration = Duration::from_secs(3600);

struct Drain {
    resource: GroupResource,
    shard: String,
    /// The value of the drain label: another one is another drain.
    id: String,
    /// The object, by its namespace and name.
    place: String,
    /// Whether it was reported that its shard is late.
    is_reported: bool,
    /// When it began, by the clock of the replica that began it.
    began: SystemTime,
    since: Instant,
    /// What its shard promised to wait for before it releases the object.
    grace: Duration,
    asked: Asked,
    /// When its shard released the object, or it was taken from that shard.
    over: Option<Instant>,
}

impl Drain {
    /// When it is to be released.
    fn due(&self) -> Instant {
        self.since + self.grace
    }

    /// The move as it is shown.
    fn shown(&self, now: Instant) -> Move {
        let (waits_for, since) = match (self.over, self.asked) {
            (Some(over), _) => (WaitsFor::Shard, over),
            (None, Asked::NotYet | Asked::Perhaps) => (WaitsFor::Drain, self.since),
            (None, Asked::Yes) if now < self.due() => (WaitsFor::Grace, self.since),
            (None, Asked::Yes) => (WaitsFor::Release, self.due()),
        };
        let millis = millis(now.saturating_duration_since(since));
        let (resource, object, from) = (self.resource.to_string(), self.place.clone(), self.shard.clone());
        Move { resource, object, from, waits_for, millis }
    }
}

/// What is known of the write that asks for a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// It is under way, or waits for its turn: no watch shows it yet.
    NotYet,
    /// It had no answer, and may have been carried out, or be.
    Perhaps,
    /// It was carried out.
    Yes,
}

#[derive(Default)]
struct Register {
    by_uid: HashMap<String, Drain>,
    /// What its shard has, by when it is to release it.
    due: BTreeSet<(Instant, String)>,
    /// What its shard has no longer, by when it released it.
    over: BTreeSet<(Instant, String)>,
    by_shard: HashMap<String, OfShard>,
    /// Tells when a drain ends.
    ended: watch::Sender<()>,
}

/// What was asked of one shard.
#[derive(Default)]
struct OfShard {
    /// What it has not released, by age.
    open: BTreeSet<(Instant, String)>,
    /// When it released an object last.
    released: Option<Instant>,
}

impl OfShard {
    /// Whether it has shown of late that it can release objects.
    fn has_released(&self) -> bool {
        self.released.is_some_and(|released| released.elapsed() < TRUSTED)
    }
}

impl Register {
    fn remember(&mut self, resource: &GroupResource, target: &Target, shard: &str, id: &str) {
        let (uid, now) = (&*target.uid, Instant::now());
        if self.by_uid.get(uid).is_some_and(|drain| drain.id != id) {
            // An earlier drain of the object was acknowledged.
            self.forget(uid);
        }
        if let Some(drain) = self.by_uid.get_mut(uid) {
            if drain.asked != Asked::Yes {
                // It is shown, so it was carried out: its shard's time begins.
                drain.asked = Asked::Yes;
                self.date(uid, now);
            }
            return;
        }
        let drain = Drain {
            resource: resource.clone(),
            shard: shard.to_owned(),
            id: id.to_owned(),
            place: target.place(),
            is_reported: false,
            began: SystemTime::now() - move_id::age(id, SystemTime::now()).unwrap_or_default(),
            since: now,
            grace: Grace::asked(id).map_or(Duration::ZERO, Grace::duration),
            asked: Asked::Yes,
            over: None,
        };
        self.due.insert((drain.due(), uid.to_owned()));
        self.by_uid.insert(uid.to_owned(), drain);
        if !self.by_shard.contains_key(shard) {
            self.by_shard.retain(|_, of| !of.open.is_empty() || of.has_released());
        }
        self.by_shard.entry(shard.to_owned()).or_default().open.insert((now, uid.to_owned()));
    }

    /// The drain has been known since `now`, and not for longer.
    fn date(&mut self, uid: &str, now: Instant) {
        let Some(drain) = self.by_uid.get_mut(uid) else { return };
        let (due, before) = (drain.due(), std::mem::replace(&mut drain.since, now));
        let open = &mut self.by_shard.entry(drain.shard.clone()).or_default().open;
        for (by_time, before, now) in [(&mut self.due, due, drain.due()), (open, before, now)] {
            if by_time.remove(&(before, uid.to_owned())) {
                by_time.insert((now, uid.to_owned()));
            }
        }
    }

    /// Its shard is not waited for any more. Returns which that is, where it was.
    fn over(&mut self, uid: &str) -> Option<String> {
        let drain = self.by_uid.get_mut(uid).filter(|drain| drain.asked == Asked::Yes && drain.over.is_none())?;
        let now = Instant::now();
        drain.over = Some(now);
        self.due.remove(&(drain.due(), uid.to_owned()));
        self.over.insert((now, uid.to_owned()));
        self.by_shard.entry(drain.shard.clone()).or_default().open.remove(&(drain.since, uid.to_owned()));
        Some(drain.shard.clone())
    }

    fn forget(&mut self, uid: &str) {
        if let Some(drain) = self.by_uid.remove(uid) {
            self.due.remove(&(drain.due(), uid.to_owned()));
            if let Some(over) = drain.over {
                self.over.remove(&(over, uid.to_owned()));
            }
            if let Some(of_shard) = self.by_shard.get_mut(&drain.shard) {
                of_shard.open.remove(&(drain.since, uid.to_owned()));
            }
            self.ended.send_replace(());
        }
    }
}

/// The objects on the move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InProgress {
    /// Those that their shards do not see any more, and the next ones do not yet.
    pub(crate) hidden: usize,
    /// Those of them whose grace is over.
    pub(crate) between: usize,
}

/// What is told of the drains of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) draining: usize,
    /// When the first of them began.
    pub(crate) since: Option<SystemTime>,
    /// By shard, those that it has not released in time, and keeps.
    pub(crate) overdue: BTreeMap<String, Overdue>,
}

/// Objects that a shard has not released in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overdue {
    pub(crate) objects: usize,
    /// The first of them, by its namespace and name.
    pub(crate) first: String,
}

impl Overdue {
    /// These as well.
    pub(crate) fn add(&mut self, objects: usize, first: &str) {
        self.objects += objects;
        if self.first.is_empty() || *first < *self.first {
            first.clone_into(&mut self.first);
        }
    }
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
        let is_open = |drain: &&mut Drain| drain.id == self.id && drain.asked == Asked::NotYet;
        if let Some(drain) = register.by_uid.get_mut(&self.uid).filter(is_open) {
            drain.asked = self.asked;
            // From now on its shard has time: before that it knew of nothing.
            register.date(&self.uid, Instant::now());
        }
    }
}

/// The drains of one ring; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Drains(Arc<Mutex<Register>>);

impl Drains {
    /// `shard` was asked by `id` to release the object, and has not done so.
    pub(crate) fn remember(&self, resource: &GroupResource, target: &Target, shard: &str, id: &str) {
        self.0.lock().remember(resource, target, shard, id);
    }

    /// The same, of a drain that is about to be asked for.
    pub(crate) fn asking(&self, resource: &GroupResource, target: &Target, shard: &str, id: &str) -> Asking {
        let mut register = self.0.lock();
        register.remember(resource, target, shard, id);
        if let Some(drain) = register.by_uid.get_mut(&target.uid) {
            drain.asked = Asked::NotYet;
        }
        Asking { drains: self.clone(), uid: target.uid.clone(), id: id.to_owned(), asked: Asked::Perhaps }
    }

    /// Tells when a drain ends.
    pub(crate) fn ended(&self) -> watch::Receiver<()> {
        self.0.lock().ended.subscribe()
    }

    /// How many objects are on the move. One that has been due for `kept` without a release, or was released so long ago, is not
    /// counted: its shard keeps it, or something else holds it up.
    pub(crate) fn in_progress(&self, kept: Duration) -> InProgress {
        let (register, now) = (self.0.lock(), Instant::now());
        let from = now.checked_sub(kept).unwrap_or(now);
        let since = |by_time: &BTreeSet<(Instant, String)>| by_time.range((from, String::new())..).count();
        let due = register.due.range((from, String::new())..=(now, char::MAX.to_string())).count();
        let over = since(&register.over);
        InProgress { hidden: since(&register.due) + over, between: due + over }
    }

    /// The shard has released the object, which has another one, or none. Returns the shard where that is news.
    pub(crate) fn released(&self, uid: &str, now_with: Option<&str>) -> Option<String> {
        let mut register = self.0.lock();
        register.by_uid.get(uid).filter(|drain| now_with != Some(&*drain.shard))?;
        let shard = register.over(uid)?;
        register.by_shard.entry(shard.clone()).or_default().released = Some(Instant::now());
        Some(shard)
    }

    /// The object is taken from the shard, which has not released it.
    pub(crate) fn given_up(&self, uid: &str) {
        self.0.lock().over(uid);
    }

    /// How many objects a shard was asked for longer ago than this and has not released. None while it releases others.
    pub(crate) fn late(&self, shard: &str, after: Duration, most: usize) -> usize {
        let (register, now) = (self.0.lock(), Instant::now());
        let (Some(of), Some(before)) = (register.by_shard.get(shard), now.checked_sub(after)) else { return 0 };
        if of.released.is_some_and(|released| released > before) {
            return 0;
        }
        let is_shown =
            |(_, uid): &&(Instant, String)| register.by_uid.get(uid).is_some_and(|it| it.asked == Asked::Yes);
        of.open.range(..=(before, char::MAX.to_string())).filter(is_shown).take(most).count()
    }

    /// How many objects a shard was asked for, or is about to be, without having shown that it can release any: `most` at most. None
    /// once it has. One that it may never have been asked for says nothing of it.
    pub(crate) fn unproven(&self, shard: &str, most: usize) -> usize {
        let register = self.0.lock();
        let Some(of) = register.by_shard.get(shard).filter(|of| !of.has_released()) else { return 0 };
        let counts =
            |(_, uid): &&(Instant, String)| register.by_uid.get(uid).is_some_and(|it| it.asked != Asked::Perhaps);
        of.open.iter().filter(counts).take(most).count()
    }

    /// The value of the drain label by which the object was last asked for.
    pub(crate) fn id(&self, uid: &str) -> Option<String> {
        self.0.lock().by_uid.get(uid).map(|drain| drain.id.clone())
    }

    /// Which shard was asked to release the object.
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

    /// How many objects are on the move, and those of them that began first.
    pub(crate) fn oldest(&self, most: usize) -> (usize, Vec<Move>) {
        let (register, now) = (self.0.lock(), Instant::now());
        let mut all: Vec<_> = register.by_uid.iter().map(|(uid, drain)| (drain.since, uid, drain)).collect();
        all.sort_unstable_by_key(|(since, uid, _)| (*since, *uid));
        let of = |(_, _, drain): &(Instant, &String, &Drain)| drain.shown(now);
        (all.len(), all.iter().take(most).map(of).collect())
    }

    /// Whether it is the first time that this drain is reported.
    pub(crate) fn report(&self, target: &Target) -> bool {
        let mut register = self.0.lock();
        let drain = register.by_uid.get_mut(&target.uid);
        drain.is_some_and(|drain| !std::mem::replace(&mut drain.is_reported, true))
    }

    /// Whether none is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().by_uid.is_empty()
    }

    /// The object was shown with a shard and without a drain label. A drain that is being asked for, or may be, is not over.
    pub(crate) fn settled(&self, uid: &str) {
        let mut register = self.0.lock();
        let is_over = register.by_uid.get(uid).is_some_and(|drain| match drain.asked {
            Asked::Yes => true,
            Asked::NotYet => false,
            Asked::Perhaps => drain.since.elapsed() >= REQUEST_LIFETIME,
        });
        if is_over {
            register.forget(uid);
        }
    }

    /// Forgets the drains of objects that are not known to be on the move. `is_moving` is asked without the lock: the index, which
    /// knows it, tells the drains what it is shown.
    pub(crate) fn keep(&self, is_moving: impl Fn(&GroupResource, &str) -> bool) {
        let known: Vec<_> = {
            let register = self.0.lock();
            let asked = register.by_uid.iter().filter(|(_, drain)| drain.asked == Asked::Yes);
            asked.map(|(uid, drain)| (drain.resource.clone(), uid.clone(), drain.id.clone())).collect()
        };
        for (_, uid, id) in known.into_iter().filter(|(resource, uid, _)| !is_moving(resource, uid)) {
            let mut register = self.0.lock();
            if register.by_uid.get(&uid).is_some_and(|drain| drain.id == id && drain.asked == Asked::Yes) {
                register.forget(&uid);
            }
        }
    }

    /// The drain was refused. One that was shown meanwhile was carried out by an attempt before.
    pub(crate) fn refused(&self, uid: &str) {
        let mut register = self.0.lock();
        if register.by_uid.get(uid).is_some_and(|drain| drain.asked != Asked::Yes) {
            register.forget(uid);
        }
    }

    /// The object has a shard again, or is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().forget(uid);
    }

    /// What is known of the drains of each resource.
    pub(crate) fn figures(&self) -> BTreeMap<GroupResource, Figures> {
        let register = self.0.lock();
        let mut figures: BTreeMap<GroupResource, Figures> = BTreeMap::new();
        for drain in register.by_uid.values().filter(|drain| drain.asked != Asked::Perhaps) {
            let figures = figures.entry(drain.resource.clone()).or_default();
            figures.draining += 1;
            figures.since = figures.since.into_iter().chain([drain.began]).min();
            if drain.is_reported {
                figures.overdue.entry(drain.shard.clone()).or_default().add(1, &drain.place);
            }
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str) -> GroupResource {
        GroupResource { group: String::new(), resource: name.into() }
    }

    fn target(uid: &str) -> Target {
        Target { uid: uid.into(), ..Target::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn each_move_says_what_it_waits_for_and_for_how_long() {
        let (drains, xs, second) = (Drains::default(), resource("xs"), Duration::from_secs(1));
        let object = Target { namespace: Some("n".into()), name: "o".into(), ..target("u") };
        let id = "m.2000ms".to_owned();
        let waits = |count, expected: &[(WaitsFor, u64)]| {
            let (all, oldest) = drains.oldest(1);
            let shown: Vec<_> = oldest.iter().map(|it| (it.waits_for, it.millis)).collect();
            assert_eq!((all, &*shown), (count, expected));
        };
        let asking = drains.asking(&xs, &object, "a", &id);
        tokio::time::advance(second).await;
        waits(1, &[(WaitsFor::Drain, 1000)]);
        asking.answered();
        tokio::time::advance(second).await;
        waits(1, &[(WaitsFor::Grace, 1000)]);
        tokio::time::advance(4 * second).await;
        waits(1, &[(WaitsFor::Release, 3000)]);
        drains.remember(&xs, &target("v"), "a", "m");
        drains.released("u", None);
        tokio::time::advance(second).await;
        waits(2, &[(WaitsFor::Shard, 1000)]);
        let (_, oldest) = drains.oldest(1);
        assert_eq!((&*oldest[0].object, &*oldest[0].resource, &*oldest[0].from), ("n/o", "xs", "a"));
        drains.settled("u");
        assert_eq!(drains.oldest(5).0, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_about_to_be_asked_for_is_not_forgotten_before_it_was_written() {
        let (drains, xs, moment) = (Drains::default(), resource("xs"), Duration::from_secs(1));
        let asking = drains.asking(&xs, &target("u"), "a", "m");
        drains.settled("u");
        tokio::time::advance(moment).await;
        assert_eq!(drains.age("u", "m"), Duration::ZERO, "its shard knows of nothing");
        asking.answered();
        assert_eq!((drains.previous("u").as_deref(), drains.age("u", "m")), (Some("a"), Duration::ZERO));
        tokio::time::advance(moment).await;
        assert_eq!(drains.age("u", "m"), moment);
        drains.settled("u");
        assert_eq!(drains.previous("u"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_asked_for_without_an_answer_is_kept_until_it_is_seen_or_can_come_no_more() {
        let (drains, xs, moment) = (Drains::default(), resource("xs"), Duration::from_secs(1));
        for uid in ["seen", "never"] {
            drop(drains.asking(&xs, &target(uid), "a", "m"));
        }
        tokio::time::advance(moment).await;
        drains.settled("never");
        assert_eq!(drains.id("seen").zip(drains.id("never")), Some(("m".to_owned(), "m".to_owned())));
        assert_eq!((drains.figures().len(), drains.age("seen", "m")), (0, Duration::ZERO));
        drains.remember(&xs, &target("seen"), "a", "m");
        tokio::time::advance(moment).await;
        assert_eq!(
            (drains.figures()[&xs].draining, drains.age("seen", "m")),
            (1, moment),
            "since then its shard knows"
        );
        tokio::time::advance(REQUEST_LIFETIME).await;
        drains.settled("never");
        assert_eq!((drains.id("never"), drains.0.lock().due.len()), (None, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn another_drain_of_an_object_has_its_own_age() {
        let (drains, named) = (Drains::default(), |name: &str| Target { name: name.into(), ..target("u") });
        drains.remember(&resource("xs"), &named("o"), "a", "m1");
        tokio::time::advance(Duration::from_secs(9)).await;
        drains.remember(&resource("xs"), &named("o"), "a", "m1");
        assert_eq!((drains.age("u", "m1"), drains.age("u", "m2")), (Duration::from_secs(9), Duration::ZERO));
        assert_eq!(drains.figures()[&resource("xs")].overdue, BTreeMap::new());
        assert!(drains.report(&named("o")) && !drains.report(&named("o")));
        let one = Overdue { objects: 1, first: "o".to_owned() };
        assert_eq!(drains.figures()[&resource("xs")].overdue, BTreeMap::from([("a".to_owned(), one)]));
        drains.remember(&resource("xs"), &target("u"), "b", "m2");
        assert_eq!((drains.age("u", "m2"), drains.previous("u").as_deref()), (Duration::ZERO, Some("b")));
        assert!(drains.report(&named("o")));
        assert_eq!(drains.0.lock().due.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_is_late_with_what_it_was_asked_for_while_it_releases_nothing() {
        let (drains, late) = (Drains::default(), Duration::from_secs(3));
        let count = |most| drains.late("a", late, most);
        for uid in ["u1", "u2", "u3"] {
            drains.remember(&resource("xs"), &target(uid), "a", "m");
        }
        tokio::time::advance(late / 2).await;
        drains.remember(&resource("xs"), &target("u4"), "a", "m");
        assert_eq!(count(9), 0);
        tokio::time::advance(late / 2).await;
        assert_eq!((count(9), count(2), drains.late("b", late, 9)), (3, 2, 0));
        assert_eq!(drains.released("u1", Some("a")), None, "it has it still");
        assert_eq!(drains.released("u1", None).as_deref(), Some("a"));
        assert_eq!((drains.released("u1", None), count(9)), (None, 0), "it works");
        tokio::time::advance(late).await;
        assert_eq!(count(9), 3);
        drains.given_up("u2");
        drains.forget("u3");
        assert_eq!((count(9), drains.released("u2", Some("b"))), (1, None), "it was taken from it");
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_its_grace_is_hidden_and_between_two_shards_from_the_release_on() {
        let (drains, second) = (Drains::default(), Duration::from_secs(1));
        let counts = || {
            let InProgress { hidden, between } = drains.in_progress(2 * second);
            (hidden, between)
        };
        for uid in ["released", "kept"] {
            drains.remember(&resource("xs"), &target(uid), "a", "m.3000ms");
        }
        drains.remember(&resource("xs"), &target("unpromised"), "b", "m");
        assert_eq!(counts(), (3, 1));
        tokio::time::advance(second).await;
        drains.released("unpromised", None);
        assert_eq!(counts(), (3, 1));
        drains.forget("unpromised");
        tokio::time::advance(2 * second).await;
        assert_eq!(counts(), (2, 2));
        drains.released("released", None);
        tokio::time::advance(2 * second + Duration::from_millis(1)).await;
        assert_eq!(counts(), (0, 0), "what is held up is not waited for");
        drains.forget("released");
        drains.forget("kept");
        let register = drains.0.lock();
        assert!(register.due.is_empty() && register.over.is_empty());
    }
}
