//! The real locks of the controller's elections, which the ring holds while its shards' controllers lead (DESIGN, "Leader
//! election, answered locally").
//!
//! Who elects by the same lock past the proxies, a replica of before the first rollout or of after the last one, finds it
//! held by `ringside-<ring>` and waits, and `kubectl get lease` shows who leads. All shards hold it together: one that finds
//! it held by the ring may go on at once. Each looks at it three times in the time that it lasts without renewal, and renews
//! it if none of the others did since its last look, so there is one renewal each time, however many shards there are.

use std::{collections::HashMap, convert::Infallible, fmt, time::Duration};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{Api, Client, ResourceExt as _, api::PostParams, core::DynamicObject, discovery::ApiResource};
use parking_lot::Mutex;
use ringside_ring::RingName;
use ringside_runtime::explain::{code, explain};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{
    Locks,
    lock::LockRefusal,
    object::{Kind, LockName, Object},
    record::Record,
};

/// How long a lock lasts without renewal where nobody says (the default of client-go).
const LASTS: Duration = Duration::from_secs(15);
/// What is believed of that: shorter, and the renewals would be many; longer, and whoever elects past the proxies would wait
/// for minutes when the ring is gone.
const BOUNDS: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(60)];
/// Whether something is due is looked at so often.
const TICK: Duration = Duration::from_millis(500);
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

/// How it stands with one of them.
#[derive(Clone, Debug)]
struct Standing {
    /// When the ring was last seen to hold it.
    sure: Instant,
    /// The version of then.
    version: Option<String>,
    lasts: Duration,
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
        Self { client, namespace, holder: format!("ringside-{ring}"), standings: Mutex::default() }
    }

    /// The ring, as it is named in the locks.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Whether the ring was seen to hold it so shortly ago that nobody else can have it.
    pub(super) fn is_sure(&self, name: &LockName) -> bool {
        let standings = self.standings.lock();
        standings.get(name).is_some_and(|standing| standing.sure.elapsed() < standing.lasts * 2 / 3)
    }

    /// Takes a lock for the ring, or makes sure of it. One that somebody else holds is taken only in the version in which the
    /// API server has judged that the controller may have it: then the controller saw it run out.
    ///
    /// # Errors
    /// [`LockRefusal::Conflict`] when somebody else holds it; [`LockRefusal::NotHeld`] when the API server can't be asked or
    /// does not let the shard write.
    pub(super) async fn take(&self, name: &LockName, claim: &Claim) -> Result<(), LockRefusal> {
        let late = |_| {
            let why = format!("the API server did not answer within {} s", PATIENCE.as_secs());
            Err(LockRefusal::NotHeld { name: name.clone(), why, forbidden: false })
        };
        timeout(PATIENCE, self.try_to_take(name, claim)).await.unwrap_or_else(late)
    }

    async fn try_to_take(&self, name: &LockName, claim: &Claim) -> Result<(), LockRefusal> {
        let refused = |error: &kube::Error| LockRefusal::NotHeld {
            name: name.clone(),
            why: explain(error),
            forbidden: code(error) == Some(403),
        };
        let locks = self.locks(name.kind);
        let asked = Instant::now();
        for attempt in 0..ATTEMPTS {
            let real = locks.get_opt(&name.name).await.map_err(|error| refused(&error))?;
            let holder = real.as_ref().map_or(Holder::Nobody, |real| self.holder_of(name.kind, real));
            let written = match (real, &holder) {
                // Another shard has just written it.
                (Some(real), Holder::Ring) if attempt > 0 => {
                    self.seen(name, asked, &real);
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
                    self.seen(name, asked, &written);
                    if !matches!(holder, Holder::Ring) {
                        tracing::info!(lock = %name, holder = self.holder, "the ring took the real lock of the controller's election");
                    }
                    return Ok(());
                }
                Err(error) if code(&error) == Some(409) => {}
                Err(error) => return Err(refused(&error)),
            }
        }
        Err(LockRefusal::Conflict(name.clone()))
    }

    /// Keeps those that the controller leads by, until it is dropped: for as long as the shard Lease is held.
    pub async fn keep(&self, locks: &Locks) -> Infallible {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looked: HashMap<LockName, Instant> = HashMap::new();
        loop {
            tick.tick().await;
            let led = locks.led();
            looked.retain(|name, _| led.contains(name));
            for name in led {
                let lasts = self.standings.lock().get(&name).map_or(LASTS, |standing| standing.lasts);
                if looked.get(&name).is_some_and(|at| at.elapsed() < lasts / 3) {
                    continue;
                }
                looked.insert(name.clone(), Instant::now());
                match self.look(&name, locks).await {
                    Ok(()) => {}
                    Err(LockRefusal::Conflict(_)) => {
                        tracing::warn!(lock = %name, "somebody else holds the real lock of the controller's election: the controller is shown it, and leads no more");
                        locks.forget(&name);
                    }
                    Err(error) => {
                        tracing::warn!(lock = %name, %error, "can't keep the real lock of the controller's election; trying again");
                    }
                }
            }
        }
    }

    /// Renews it if nobody did since the last look.
    async fn look(&self, name: &LockName, locks: &Locks) -> Result<(), LockRefusal> {
        let asked = Instant::now();
        let known = self.standings.lock().get(name).and_then(|standing| standing.version.clone());
        if let Ok(Some(real)) = self.locks(name.kind).get_opt(&name.name).await
            && matches!(self.holder_of(name.kind, &real), Holder::Ring)
            && known.is_some()
            && known != real.metadata.resource_version
        {
            self.seen(name, asked, &real);
            return Ok(());
        }
        self.take(name, &Claim { object: locks.object(name), judged: false }).await
    }

    /// It was the ring's when this was asked.
    fn seen(&self, name: &LockName, asked: Instant, real: &DynamicObject) {
        let record = Record::of(name.kind, real);
        let lasts = record.and_then(|record| record.lasts()).unwrap_or(LASTS).clamp(BOUNDS[0], BOUNDS[1]);
        let standing = Standing { sure: asked, version: real.resource_version(), lasts };
        let mut standings = self.standings.lock();
        // Nobody is sure of those any more, whoever asked for them.
        standings.retain(|_, standing| standing.sure.elapsed() < standing.lasts);
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
