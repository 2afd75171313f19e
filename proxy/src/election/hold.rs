//! The real locks of the controller's elections, which the ring holds while its shards' controllers lead (DESIGN, "Leader
//! election, answered locally").
//!
//! A replica that elects by the same lock past the proxies, one of before the first rollout or of after the last one,
//! finds it held by `ringside-<ring>` and waits, and `kubectl get lease` shows who leads. All shards hold it together:
//! one that finds it held by the ring may go on at once. Each looks at it five times in the time that it lasts without
//! renewal, and renews it when no shard did for two of these, so the renewals are no more, however many shards there
//! are. While nothing is known of one for longer the controller may not act ([`super::lead`]).

use std::{collections::HashMap, fmt, time::Duration};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{Api, Client, ResourceExt as _, api::PostParams, core::DynamicObject, discovery::ApiResource};
use parking_lot::Mutex;
use ringside_ring::{Moment, RingName};
use ringside_runtime::{
    clock::SharedClock,
    explain::{code, explain},
};
use tokio::time::timeout;

use super::{
    Locks,
    lead::{Lead, LeadInDoubt, Leads},
    lock::LockRefusal,
    object::{Kind, LockName, Object},
    record::{LASTS, Record},
};

mod keep;
mod last_renewal;

use last_renewal::LastRenewal;

/// The longest duration of a lock that is believed. With a longer one, a replica that elects past the proxies would
/// wait for minutes once the ring is gone.
const MAX_LASTS: Duration = Duration::from_secs(60);
/// How long the API server may take for a read or a write of one: client-go waits for 5 s in its election.
const LOCK_TIMEOUT: Duration = Duration::from_secs(4);
/// How often a write is tried that others overtake: shards begin together.
const ATTEMPTS: usize = 5;

/// The ring's hold on the locks.
pub struct Hold {
    client: Client,
    holder: String,
    standings: Mutex<HashMap<LockName, LastRenewal>>,
    /// Locks that another holder was found to have a short time ago.
    lost: Mutex<HashMap<LockName, Moment>>,
    leads: Leads,
    /// That of the shard Lease: it goes on while the machine is suspended.
    clock: SharedClock,
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
        self.object.as_ref().map_or(MAX_LASTS, Object::lasts)
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

/// A lock as it was read, by a question of then.
type Read = (Moment, Option<DynamicObject>);

/// Who has a lock.
enum Holder {
    Nobody,
    Ring,
    Another,
}

impl Hold {
    /// For a ring; none yet. By a client whose requests wait behind nothing, as it is with Leases.
    pub fn new(client: Client, ring: &RingName, clock: SharedClock) -> Self {
        Self {
            client,
            holder: format!("ringside-{ring}"),
            standings: Mutex::default(),
            lost: Mutex::default(),
            leads: Leads::default(),
            clock,
        }
    }

    /// The ring, as it is named in the locks.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Whether the ring was seen to hold the lock so recently that no other holder can have it.
    fn is_sure(&self, name: &LockName) -> bool {
        self.standings.lock().get(name).is_some_and(|last_renewal| last_renewal.is_sure(self.clock.now()))
    }

    /// Whether no other holder can have any of the locks that the controller may believe to lead by.
    fn covers(&self, locks: &Locks) -> bool {
        let now = self.clock.now();
        locks.all_claimed(|name| self.standings.lock().get(name).is_some_and(|last_renewal| last_renewal.covers(now)))
    }

    /// Waits for up to `patience` until the controller may act, as far as its elections go.
    ///
    /// # Errors
    /// [`LeadInDoubt`] when it may not by then.
    pub async fn lead(&self, locks: &Locks, patience: Duration) -> Result<Lead, LeadInDoubt> {
        self.leads.pass(|| self.covers(locks), patience).await
    }

    /// How long the controller has not been let act by now; zero when it may.
    pub fn doubted_for(&self) -> Duration {
        self.leads.doubted_for()
    }

    /// Makes sure of a known lock that is about to be written, unless that is known from a moment ago.
    ///
    /// # Errors
    /// [`LockRefusal::Conflict`] when another holder has it; [`LockRefusal::NotHeld`] when the API server can't be
    /// asked or does not let the shard write.
    pub async fn make_sure(&self, name: &LockName, claim: &Claim) -> Result<(), LockRefusal> {
        if self.is_sure(name) { Ok(()) } else { self.take(name, claim).await }
    }

    /// The version of a lock that the controller has not written here, if the ring holds it.
    ///
    /// # Errors
    /// [`LockRefusal::NotHeld`] when the API server can't be asked.
    pub async fn of_the_ring(&self, name: &LockName) -> Result<Option<String>, LockRefusal> {
        let real = match self.read(name).await {
            // What the shard may not read it does not hold either.
            Err(LockRefusal::NotHeld { forbidden: true, .. }) => None,
            read => read?,
        };
        let held = real.filter(|real| matches!(self.holder_of(name.kind, real), Holder::Ring));
        Ok(held.and_then(|real| real.resource_version()))
    }

    /// The lock as it is, if the API server says so in time.
    async fn read(&self, name: &LockName) -> Result<Option<DynamicObject>, LockRefusal> {
        let locks = self.locks(name);
        let read = timeout(LOCK_TIMEOUT, locks.get_opt(&name.name)).await.map_err(|_| late(name))?;
        read.map_err(|error| refused(name, &error))
    }

    /// Takes a lock for the ring, or makes sure of it. One that another holder has is taken only in the version in
    /// which the API server has judged that the controller may have it: then the controller saw it run out.
    ///
    /// # Errors
    /// [`LockRefusal::Conflict`] when another holder has it; [`LockRefusal::NotHeld`] when the API server can't be
    /// asked or does not let the shard write.
    pub(crate) async fn take(&self, name: &LockName, claim: &Claim) -> Result<(), LockRefusal> {
        self.write(name, claim, None).await
    }

    /// The same of one that was just read, on a question of then.
    async fn write(&self, name: &LockName, claim: &Claim, read: Option<Read>) -> Result<(), LockRefusal> {
        let before = self.mark(name);
        let taken =
            timeout(LOCK_TIMEOUT, self.try_to_write(name, claim, read)).await.unwrap_or_else(|_| Err(late(name)));
        if matches!(taken, Err(LockRefusal::Conflict(_))) {
            if self.mark(name) != before {
                let why = "it changed meanwhile".to_owned();
                return Err(LockRefusal::NotHeld { name: name.clone(), why, forbidden: false });
            }
            self.standings.lock().remove(name);
            let (mut lost, now) = (self.lost.lock(), self.clock.now());
            // Longer than a write can have been under way.
            lost.retain(|_, at| now.since(*at) < 4 * LOCK_TIMEOUT);
            lost.insert(name.clone(), now);
        }
        taken
    }

    fn mark(&self, name: &LockName) -> Option<String> {
        self.standings.lock().get(name).map(|last_renewal| last_renewal.mark.clone())
    }

    async fn try_to_write(&self, name: &LockName, claim: &Claim, read: Option<Read>) -> Result<(), LockRefusal> {
        let locks = self.locks(name);
        let asked = read.as_ref().map_or_else(|| self.clock.now(), |(asked, _)| *asked);
        let (mut read, mut overtaken) = (read.map(|(_, read)| read), None);
        for _ in 0..ATTEMPTS {
            let real = match read.take() {
                None => locks.get_opt(&name.name).await.map_err(|error| refused(name, &error))?,
                Some(read) => read,
            };
            let mark = real.as_ref().map(|real| mark(name.kind, real));
            let holder = real.as_ref().map_or(Holder::Nobody, |real| self.holder_of(name.kind, real));
            // A write is not carried out before it is sent. To count from the read would take off what that took.
            let sent = self.clock.now();
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
                    self.seen(name, (sent, true), &written, claim.lasts());
                    if !matches!(holder, Holder::Ring) {
                        tracing::info!(lock = %name, namespace = name.namespace, holder = self.holder, "acquired the real lock of the controller's election");
                    }
                    return Ok(());
                }
                Err(error) if code(&error) == Some(409) => overtaken = Some(mark),
                Err(error) => return Err(refused(name, &error)),
            }
        }
        let why = "others go on writing to it".to_owned();
        Err(LockRefusal::NotHeld { name: name.clone(), why, forbidden: false })
    }

    /// Nothing is known of any lock any more: after a gap of the shard Lease.
    pub fn knows_nothing(&self) {
        self.standings.lock().clear();
    }

    /// It is the ring's, and was renewed then or after. Electors use the duration in the record, or the one that
    /// they were given, as this controller.
    fn seen(&self, name: &LockName, (renewed, own): (Moment, bool), real: &DynamicObject, lasts: Duration) {
        let lasts = Record::of(name.kind, real).map_or(LASTS, |record| record.lasts()).min(lasts).min(MAX_LASTS);
        let last_renewal = LastRenewal { renewed, own, mark: mark(name.kind, real), lasts };
        if self.lost.lock().get(name).is_some_and(|lost| *lost > renewed) {
            // A late answer: another holder has taken the lock since.
            return;
        }
        let mut standings = self.standings.lock();
        if standings.get(name).is_some_and(|known| known.renewed > renewed) {
            return;
        }
        // Drops locks whose last known renewal has expired: as far as is known here, they have no holder.
        let now = self.clock.now();
        standings.retain(|_, last_renewal| now.since(last_renewal.renewed) < last_renewal.lasts);
        standings.insert(name.clone(), last_renewal);
    }

    fn locks(&self, of: &LockName) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &of.namespace, &api(of.kind))
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

fn refused(name: &LockName, error: &kube::Error) -> LockRefusal {
    LockRefusal::NotHeld { name: name.clone(), why: explain(error), forbidden: code(error) == Some(403) }
}

fn late(name: &LockName) -> LockRefusal {
    let why = format!("the API server did not answer within {} s", LOCK_TIMEOUT.as_secs());
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
