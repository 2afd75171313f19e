//! The real locks of the controller's elections, which the ring holds while its shards' controllers lead (DESIGN, "Leader
//! election, answered locally").
//!
//! Who elects by the same lock past the proxies, a replica of before the first rollout or of after the last one, finds it
//! held by `ringside-<ring>` and waits, and `kubectl get lease` shows who leads. All shards hold it together: one that finds
//! it held by the ring may go on at once. Each looks at it five times in the time that it lasts without renewal, and renews
//! it when nobody did for two of these, so the renewals are no more, however many shards there are. While nothing is known of
//! one for longer the controller may not act ([`super::lead`]).

use std::{collections::HashMap, convert::Infallible, fmt, time::Duration};

use futures::future::{join, join_all};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{Api, Client, ResourceExt as _, api::PostParams, core::DynamicObject, discovery::ApiResource};
use parking_lot::Mutex;
use ringside_ring::RingName;
use ringside_runtime::explain::{code, explain};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};

use super::{
    Locks,
    lead::{Lead, Leads},
    lock::LockRefusal,
    object::{Kind, LockName, Object},
    record::{LASTS, Record},
};
use crate::status::Refusal;

/// What is believed of how long a lock lasts: longer, and whoever elects past the proxies would wait for minutes when the ring
/// is gone.
const MOST: Duration = Duration::from_secs(60);
/// Whether something is due is looked at so often.
const TICK: Duration = Duration::from_millis(250);
/// How long the API server may take for that: client-go waits for 5 s in its election.
const PATIENCE: Duration = Duration::from_secs(4);
/// How often a write is tried that others overtake: shards begin together.
const ATTEMPTS: usize = 5;

/// The ring's hold on the locks.
pub struct Hold {
    client: Client,
    namespace: String,
    holder: String,
    standings: Mutex<HashMap<LockName, Standing>>,
    /// Those that somebody else was shortly ago found to hold.
    lost: Mutex<HashMap<LockName, Instant>>,
    leads: Leads,
}

/// What a lock is taken on.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// The lock as the controller has it, or wants it: in the form of its records.
    pub(super) object: Option<Object>,
    /// Whether the API server has said that it may.
    pub(super) judged: bool,
}

impl Claim {
    fn lasts(&self) -> Duration {
        self.object.as_ref().map_or(MOST, Object::lasts)
    }

    fn is_judged_in(&self, real: &DynamicObject) -> bool {
        let version = self.object.as_ref().and_then(|object| object.metadata().resource_version.as_ref());
        self.judged && version.is_some_and(|version| Some(version) == real.metadata.resource_version.as_ref())
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("holder", &self.holder).finish_non_exhaustive()
    }
}

/// How it stands with one of them. What is done when is a part of the time that a lock lasts without renewal, as whoever elects
/// past the proxies counts it from when they saw the last one.
#[derive(Clone, Debug)]
struct Standing {
    /// The last renewal was not before this.
    renewed: Instant,
    /// It was this shard's, so it was not much later either.
    own: bool,
    /// What it says of that. Others may write other things into it, which renews it for nobody.
    mark: String,
    lasts: Duration,
}

impl Standing {
    /// A renewal is due. Of another shard's it is known only between which two looks it was.
    fn is_due(&self) -> bool {
        self.renewed.elapsed() >= self.lasts * (if self.own { 2 } else { 3 }) / 5
    }

    /// So shortly ago that the controller's renewals can be answered.
    fn is_sure(&self) -> bool {
        self.renewed.elapsed() < self.lasts * 2 / 3
    }

    /// So shortly ago that nobody else can have it, and what the controller has sent by now arrives before somebody may.
    fn covers(&self) -> bool {
        self.renewed.elapsed() < self.lasts * 4 / 5
    }
}

/// A lock as it was read, by a question of then.
type Read = (Instant, Option<DynamicObject>);

/// How it goes with the looks at one of them.
#[derive(Default)]
struct Kept {
    /// When the last one that succeeded began; none in this term of the shard Lease.
    looked: Option<Instant>,
    next: Option<Instant>,
    failing: bool,
}

/// Who has a lock.
enum Holder {
    Nobody,
    Ring,
    Another,
}

impl Hold {
    /// On the locks of the controller's namespace, for a ring; none yet. By a client whose requests wait behind nothing, as it
    /// is with Leases.
    pub fn new(client: Client, namespace: String, ring: &RingName) -> Self {
        Self {
            client,
            namespace,
            holder: format!("ringside-{ring}"),
            standings: Mutex::default(),
            lost: Mutex::default(),
            leads: Leads::default(),
        }
    }

    /// The ring, as it is named in the locks.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Whether the ring was seen to hold it so shortly ago that nobody else can have it.
    fn is_sure(&self, name: &LockName) -> bool {
        self.standings.lock().get(name).is_some_and(Standing::is_sure)
    }

    /// Whether nobody else can have any of the locks that the controller may believe to lead by.
    fn covers(&self, locks: &Locks) -> bool {
        locks.all_believed(|name| self.standings.lock().get(name).is_some_and(Standing::covers))
    }

    /// Waits for up to `patience` until the controller may act, as far as its elections go.
    ///
    /// # Errors
    /// [`Refusal::LeadInDoubt`] when it may not by then.
    pub async fn lead(&self, locks: &Locks, patience: Duration) -> Result<Lead, Refusal> {
        self.leads.pass(|| self.covers(locks), patience).await
    }

    /// How long the controller has not been let act by now; zero when it may.
    pub fn doubted_for(&self) -> Duration {
        self.leads.doubted_for()
    }

    /// Makes sure of a known lock that is about to be written, unless that is known from a moment ago.
    ///
    /// # Errors
    /// [`LockRefusal::Conflict`] when somebody else holds it; [`LockRefusal::NotHeld`] when the API server can't be asked or
    /// does not let the shard write.
    pub async fn make_sure(&self, name: &LockName, claim: &Claim) -> Result<(), LockRefusal> {
        if self.is_sure(name) { Ok(()) } else { self.take(name, claim).await }
    }

    /// The version of a lock that the controller has not written here, if the ring holds it.
    ///
    /// # Errors
    /// [`LockRefusal::NotHeld`] when the API server can't be asked.
    pub async fn of_the_ring(&self, name: &LockName) -> Result<Option<String>, LockRefusal> {
        let read = async {
            let real = match self.locks(name.kind).get_opt(&name.name).await {
                // What the shard may not read it does not hold either.
                Err(error) if code(&error) == Some(403) => None,
                read => read.map_err(|error| refused(name, &error))?,
            };
            let held = real.filter(|real| matches!(self.holder_of(name.kind, real), Holder::Ring));
            Ok(held.and_then(|real| real.resource_version()))
        };
        timeout(PATIENCE, read).await.unwrap_or_else(|_| Err(late(name)))
    }

    /// Takes a lock for the ring, or makes sure of it. One that somebody else holds is taken only in the version in which the
    /// API server has judged that the controller may have it: then the controller saw it run out.
    ///
    /// # Errors
    /// [`LockRefusal::Conflict`] when somebody else holds it; [`LockRefusal::NotHeld`] when the API server can't be asked or
    /// does not let the shard write.
    pub(crate) async fn take(&self, name: &LockName, claim: &Claim) -> Result<(), LockRefusal> {
        self.write(name, claim, None).await
    }

    /// The same of one that was just read, on a question of then.
    async fn write(&self, name: &LockName, claim: &Claim, read: Option<Read>) -> Result<(), LockRefusal> {
        let before = self.mark(name);
        let taken = timeout(PATIENCE, self.try_to_write(name, claim, read)).await.unwrap_or_else(|_| Err(late(name)));
        if matches!(taken, Err(LockRefusal::Conflict(_))) {
            if self.mark(name) != before {
                let why = "it changed meanwhile".to_owned();
                return Err(LockRefusal::NotHeld { name: name.clone(), why, forbidden: false });
            }
            self.standings.lock().remove(name);
            let mut lost = self.lost.lock();
            // Longer than a write can have been under way.
            lost.retain(|_, at| at.elapsed() < 4 * PATIENCE);
            lost.insert(name.clone(), Instant::now());
        }
        taken
    }

    fn mark(&self, name: &LockName) -> Option<String> {
        self.standings.lock().get(name).map(|standing| standing.mark.clone())
    }

    async fn try_to_write(&self, name: &LockName, claim: &Claim, read: Option<Read>) -> Result<(), LockRefusal> {
        let locks = self.locks(name.kind);
        let asked = read.as_ref().map_or_else(Instant::now, |(asked, _)| *asked);
        let (mut read, mut overtaken) = (read.map(|(_, read)| read), None);
        for _ in 0..ATTEMPTS {
            let real = match read.take() {
                None => locks.get_opt(&name.name).await.map_err(|error| refused(name, &error))?,
                Some(read) => read,
            };
            let mark = real.as_ref().map(|real| mark(name.kind, real));
            let holder = real.as_ref().map_or(Holder::Nobody, |real| self.holder_of(name.kind, real));
            let written = match (real, &holder) {
                // Another shard has just written it.
                (Some(real), Holder::Ring) if overtaken.as_ref().is_some_and(|overtaken| *overtaken != mark) => {
                    self.seen(name, (asked, false), &real, claim.lasts());
                    return Ok(());
                }
                (Some(real), Holder::Another) if !claim.is_judged_in(&real) => {
                    return Err(LockRefusal::Conflict(name.clone()));
                }
                (Some(real), _) => {
                    let held = Record::for_ring(name.kind, &self.holder, Some(&real), claim.object.as_ref());
                    locks.replace(&name.name, &parameters(), &held.within(real)).await
                }
                (None, _) => {
                    let bare = DynamicObject::new(&name.name, &api(name.kind));
                    let held = Record::for_ring(name.kind, &self.holder, None, claim.object.as_ref());
                    locks.create(&parameters(), &held.within(bare)).await
                }
            };
            match written {
                Ok(written) => {
                    self.seen(name, (asked, true), &written, claim.lasts());
                    if !matches!(holder, Holder::Ring) {
                        tracing::info!(lock = %name, holder = self.holder, "the ring took the real lock of the controller's election");
                    }
                    return Ok(());
                }
                Err(error) if code(&error) == Some(409) => overtaken = Some(mark),
                Err(error) => return Err(refused(name, &error)),
            }
        }
        Err(LockRefusal::Conflict(name.clone()))
    }

    /// Keeps those that the controller leads by, until it is dropped: for as long as the shard Lease is held.
    pub async fn keep(&self, locks: &Locks) -> Infallible {
        // Each at its own pace: a look can take long, and time runs out meanwhile.
        let (never, _) = join(self.renew(locks), self.review(locks)).await;
        never
    }

    /// Nothing is known of any lock any more: after a gap of the shard Lease, in which this machine may have slept.
    pub fn knows_nothing(&self) {
        self.standings.lock().clear();
    }

    async fn review(&self, locks: &Locks) -> Infallible {
        let mut tick = ticks();
        loop {
            tick.tick().await;
            self.leads.review(self.covers(locks), locks);
        }
    }

    async fn renew(&self, locks: &Locks) -> Infallible {
        let (mut tick, mut all) = (ticks(), HashMap::<LockName, Kept>::new());
        loop {
            tick.tick().await;
            let led = locks.led();
            all.retain(|name, _| led.contains(name));
            for name in led {
                all.entry(name).or_default();
            }
            let now = Instant::now();
            let due = all.iter_mut().filter(|(_, kept)| kept.next.is_none_or(|next| next <= now));
            join_all(due.map(|(name, kept)| self.keep_one(name, kept, locks))).await;
        }
    }

    async fn keep_one(&self, name: &LockName, kept: &mut Kept, locks: &Locks) {
        let asked = Instant::now();
        let result = self.look(name, kept.looked, locks).await;
        let lasts = self.standings.lock().get(name).map_or(LASTS, |standing| standing.lasts);
        match result {
            Ok(seen) => {
                let looked = if seen { Some(asked) } else { kept.looked };
                *kept = Kept { looked, next: Some(asked + lasts / 5), failing: false };
            }
            Err(LockRefusal::Conflict(_)) => {
                tracing::warn!(lock = %name, "somebody else holds the real lock of the controller's election: the controller is shown it, and leads no more");
                locks.forget(name);
            }
            Err(error) => {
                if !kept.failing {
                    tracing::warn!(lock = %name, %error, "can't keep the real lock of the controller's election; trying again");
                }
                kept.failing = true;
                kept.next = Some(Instant::now() + lasts / 15);
            }
        }
    }

    /// Renews it, unless somebody did shortly ago, as the last look and this one show. Whether this one counts for the next.
    async fn look(&self, name: &LockName, looked: Option<Instant>, locks: &Locks) -> Result<bool, LockRefusal> {
        let asked = Instant::now();
        let before = self.standings.lock().get(name).cloned();
        let claim = Claim { object: locks.object(name), judged: false };
        let (Some(looked), Some(before)) = (looked, before) else {
            return self.take(name, &claim).await.map(|()| true);
        };
        let api = self.locks(name.kind);
        let read = timeout(PATIENCE, api.get_opt(&name.name)).await.map_err(|_| late(name))?;
        let read = read.map_err(|error| refused(name, &error))?;
        if let Some(real) = &read
            && matches!(self.holder_of(name.kind, real), Holder::Ring)
        {
            if self.mark(name).is_some_and(|now| now != before.mark) {
                // It was written here meanwhile.
                return Ok(false);
            }
            if mark(name.kind, real) != before.mark {
                // By another shard, at any time since.
                self.seen(name, (looked.max(before.renewed), false), real, before.lasts);
                return Ok(true);
            }
            if !before.is_due() {
                return Ok(true);
            }
        }
        self.write(name, &claim, Some((asked, read))).await.map(|()| true)
    }

    /// It is the ring's, and was renewed then or after. Electors go by what the record says, or by what they are told
    /// themselves, as this controller.
    fn seen(&self, name: &LockName, (renewed, own): (Instant, bool), real: &DynamicObject, lasts: Duration) {
        let lasts = Record::of(name.kind, real).map_or(LASTS, |record| record.lasts()).min(lasts).min(MOST);
        let standing = Standing { renewed, own, mark: mark(name.kind, real), lasts };
        if self.lost.lock().get(name).is_some_and(|lost| *lost > renewed) {
            // An answer that comes late: somebody else has taken it since.
            return;
        }
        let mut standings = self.standings.lock();
        if standings.get(name).is_some_and(|known| known.renewed > renewed) {
            return;
        }
        // Those are nobody's, as far as is known here, whoever asked for them.
        standings.retain(|_, standing| standing.renewed.elapsed() < standing.lasts);
        standings.insert(name.clone(), standing);
    }

    fn locks(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &api(kind))
    }

    fn holder_of(&self, kind: Kind, real: &DynamicObject) -> Holder {
        let record = Record::of(kind, real);
        match record.as_ref().and_then(Record::holder) {
            None => Holder::Nobody,
            Some(holder) if holder == self.holder => Holder::Ring,
            Some(_) => Holder::Another,
        }
    }
}

/// What a lock says of its last renewal.
fn mark(kind: Kind, real: &DynamicObject) -> String {
    Record::of(kind, real).map(|record| record.renewed()).unwrap_or_default()
}

fn ticks() -> Interval {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}

fn refused(name: &LockName, error: &kube::Error) -> LockRefusal {
    LockRefusal::NotHeld { name: name.clone(), why: explain(error), forbidden: code(error) == Some(403) }
}

fn late(name: &LockName) -> LockRefusal {
    let why = format!("the API server did not answer within {} s", PATIENCE.as_secs());
    LockRefusal::NotHeld { name: name.clone(), why, forbidden: false }
}

fn parameters() -> PostParams {
    PostParams { field_manager: Some("ringside-proxy".to_owned()), ..PostParams::default() }
}

fn api(kind: Kind) -> ApiResource {
    match kind {
        Kind::Lease => ApiResource::erase::<Lease>(&()),
        Kind::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
