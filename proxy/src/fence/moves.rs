//! The drains under way, and what keeps each from being acknowledged.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ringside_ring::ResourceVersion;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    CacheScope, Fence, Registry, Uid,
    writes::{About, Target, Traffic},
};
use crate::views::DrainingObject;

#[derive(Debug, Default)]
pub(super) struct Moves {
    by_uid: HashMap<Uid, Move>,
    by_name: HashMap<Target, Uid>,
    /// When something was sent last, or was carried out, about whatever.
    last: Option<Instant>,
    /// The controller has ended, and is at work on nothing.
    ended: bool,
}

#[derive(Debug)]
struct Move {
    object: Arc<DrainingObject>,
    grace: Duration,
    /// In which term it began, if that was seen, by its number: the object was the shard's until then.
    began: Option<u64>,
    /// When something was last sent about it, or the wait for quiet began.
    last: Instant,
    /// Which of several drains of one object this is.
    notify: Arc<Notify>,
}

impl Moves {
    pub(super) fn begin(
        &mut self,
        object: Arc<DrainingObject>,
        (grace, began): (Duration, Option<u64>),
        now: Instant,
    ) -> Arc<Notify> {
        let notify = Arc::new(Notify::new());
        self.by_name.insert(Target::of(&object), object.uid.clone());
        let this = Move { grace, began, last: now, notify: notify.clone(), object };
        self.by_uid.insert(this.object.uid.clone(), this);
        notify
    }

    /// Ends one drain, unless another of the same object has begun.
    fn end(&mut self, object: &DrainingObject, notify: &Arc<Notify>) -> bool {
        let this = self.by_uid.get(&object.uid).is_some_and(|it| Arc::ptr_eq(&it.notify, notify));
        if this {
            self.by_uid.remove(&object.uid);
            let name = Target::of(object);
            if self.by_name.get(&name) == Some(&object.uid) {
                self.by_name.remove(&name);
            }
        }
        this
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// Whether the object drains, and that began within this hold on the Lease.
    pub(super) fn began(&self, cache_scope: &CacheScope, uid: &str) -> bool {
        self.by_uid.get(uid).is_some_and(|it| it.began == Some(cache_scope.term.number))
    }

    /// Returns the `resourceVersion` at which the object was seen drained, if it drains.
    pub(super) fn drained(&self, uid: &str) -> Option<&ResourceVersion> {
        self.by_uid.get(uid).map(|it| &it.object.version)
    }

    pub(super) fn by_name(&self, target: &Target) -> Option<&Uid> {
        self.by_name.get(target)
    }

    /// Something is sent, or was carried out, about whatever.
    pub(super) fn sent(&mut self, then: Instant) {
        self.last = self.last.max(Some(then));
    }

    /// A request about these has ended. The grace begins again from when it was last `sent` or carried out; a request
    /// that was refused before it was sent leaves the grace as it was.
    pub(super) fn end_write(&mut self, about: &About, sent: Option<Instant>) {
        sent.into_iter().for_each(|sent| self.sent(sent));
        if self.by_uid.is_empty() {
            return;
        }
        let mut touched: Vec<&Uid> = about.uids.iter().collect();
        if let Some(target) = &about.target {
            match &target.name {
                Some(_) => touched.extend(self.by_name.get(target)),
                None => touched.extend(self.by_name.values()),
            }
        }
        for uid in touched {
            if let Some(it) = self.by_uid.get_mut(uid)
                && about.concerns(&it.object)
            {
                it.last = sent.map_or(it.last, |sent| it.last.max(sent));
                it.notify.notify_one();
            }
        }
    }

    /// The controller has ended: none of them waits for longer than the grace from the last that was carried out. Returns when
    /// that was, if ever.
    pub(super) fn end_all(&mut self) -> Option<Instant> {
        self.ended = true;
        self.by_uid.values().for_each(|it| it.notify.notify_one());
        self.last
    }

    /// Something about any of them may have been carried out then.
    fn touch_all(&mut self, then: Instant) {
        self.sent(then);
        for it in self.by_uid.values_mut() {
            it.last = it.last.max(then);
        }
    }
}

/// What a drain still waits for.
enum Quiet {
    Now,
    At(Instant),
    /// The end of a write whose answer a client awaits.
    Blocked,
}

impl Registry {
    /// Forgets what can't be carried out any more: up to its end it could, so the grace is counted from there.
    pub(super) fn prune(&mut self, now: Instant) {
        while let Some((until, about)) = self.writes.pop_ended(now) {
            self.moves.end_write(&about, Some(until));
        }
        if let Some(until) = self.writes.pop_unknown_ended(now) {
            self.moves.touch_all(until);
        }
    }

    fn quiet(&mut self, object: &DrainingObject, now: Instant) -> Quiet {
        self.prune(now);
        let Some(this) = self.moves.by_uid.get(&object.uid) else { return Quiet::Now };
        // The controller has ended, so it works on nothing: only writes that may still be carried out count.
        let last = self.moves.last.filter(|_| self.moves.ended).map_or(this.last, |last| this.last.min(last));
        let rested = last + this.grace;
        let at = match self.writes.traffic(object) {
            Traffic::Open => return Quiet::Blocked,
            Traffic::Until(until) => rested.max(until),
            Traffic::None => rested,
        };
        if at <= now { Quiet::Now } else { Quiet::At(at) }
    }
}

/// One drain. While it is there, requests about its object are counted.
///
/// Dropped, it leaves the fence closed: the acknowledgement may have been done, or the object moved by force, or the drain
/// taken back, which the object's labels will say.
#[derive(Debug)]
pub struct DrainGuard {
    fence: Fence,
    object: Arc<DrainingObject>,
    notify: Arc<Notify>,
}

impl DrainGuard {
    pub(super) fn new(fence: Fence, object: Arc<DrainingObject>, notify: Arc<Notify>) -> Self {
        Self { fence, object, notify }
    }

    /// Returns once no request about the object is under way, and none has been for the grace time, which begins now.
    pub async fn wait_idle(&self) {
        if let Some(this) = self.fence.0.lock().moves.by_uid.get_mut(&self.object.uid) {
            this.last = this.last.max(Instant::now());
        }
        loop {
            // Made before looking, so that nothing is missed in between.
            let changed = self.notify.notified();
            let quiet = self.fence.0.lock().quiet(&self.object, Instant::now());
            match quiet {
                Quiet::Now => return,
                Quiet::At(at) => {
                    tokio::select! {
                        () = changed => {}
                        () = sleep_until(at) => {}
                    }
                }
                Quiet::Blocked => changed.await,
            }
        }
    }

    /// Closes the fence, if it is still quiet: from now on writes about the object are refused.
    pub fn close(&self) -> bool {
        let mut registry = self.fence.0.lock();
        // Closed already: what came since was refused, and holds nothing.
        if registry.moved.get(&self.object.uid).is_some() {
            return true;
        }
        if !matches!(registry.quiet(&self.object, Instant::now()), Quiet::Now) {
            return false;
        }
        registry.remember(self.object.clone());
        // Nothing passes any more, also where that has to be forgotten before this has ended.
        if let Some(this) = registry.moves.by_uid.get_mut(&self.object.uid) {
            this.began = None;
        }
        true
    }
}

impl Drop for DrainGuard {
    fn drop(&mut self) {
        let mut registry = self.fence.0.lock();
        if registry.moves.end(&self.object, &self.notify) {
            registry.remember(self.object.clone());
        }
    }
}
