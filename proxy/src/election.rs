//! The controller's election, answered from memory: every shard's controller is the leader of its own share.
//!
//! The lock, a Lease or a ConfigMap of the controller's namespace or of one that is named ([`Kind`]), is learned from
//! what a controller writes. Unless one is named so is a Lease of another namespace whose holder names this pod, if the
//! controller leads by no lock elsewhere (`elsewhere`). A Lease is one if it has a holder, an `acquireTime` and `leaseTransitions` (client-go,
//! fabric8 and others write all three; node heartbeats and the like don't) and is no shard's; a ConfigMap, if it has an
//! annotation with a record that names a holder. Where a flag names the lock its holder is enough, for electors that
//! leave out the rest. Until such a write comes, reads pass through, so that the controller sees an old, unsharded leader
//! and waits for it as it always did. The first write is sent with `dryRun=All`: the API server judges it (permission,
//! conflict with a leader that has just renewed, every kind of patch) and stores nothing. Then the ring takes the real
//! lock ([`hold`]), and what the API server would have stored is where the lock goes on here. One that the ring holds
//! already, by another of its shards, is not there for the controller, who may make it. All other ConfigMaps pass as
//! they are.
//!
//! Who follows its lock by a list and a watch of this one name sees the same (`follow`, `selected`). While the lock is
//! another's such a watch passes, and ends as soon as it is answered here. Lists and watches of more than one object pass as they
//! are, and show the real locks; so do locks of other kinds.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, request::Parts};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use crate::{
    body::Body,
    request::{
        RequestInfo, Resource, Verb,
        representation::{Encoding, is_compressed},
    },
};

mod answer;
mod codec;
mod elsewhere;
pub(crate) mod follow;
pub mod hold;
mod judged;
mod kept;
pub mod lead;
mod lock;
mod lock_request;
mod messages;
mod object;
mod patch;
mod record;
mod room;
mod selected;
#[cfg(test)]
mod tests;
pub mod waits;

use answer::{Said, respond};
pub use elsewhere::Elsewhere;
pub use hold::{Claim, Hold};
pub use judged::{Judged, Judgement};
pub(crate) use kept::Kept;
pub use lead::LeadInDoubt;
use lock::Lock;
pub use lock::LockRefusal;
pub use lock_request::LockRequest;
use object::Object;
pub use object::{Kind, LockName};
use ringside_runtime::admin::Check;
use room::{MAX_BYTES, OVERHEAD, Refused, Why};
use waits::Waits;

/// An elector that was told to lead is not believed to do so for longer than this without being told again, whatever its
/// record says.
const MAX_BELIEF: Duration = Duration::from_hours(1);
/// A controller that was told to lead and has asked nothing since may stand still, and goes on as the leader when it does not
/// any more: no elector looks at the time before it acts. For so long it is reckoned with.
const STANDSTILL: Duration = Duration::from_mins(10);

/// The locks that are answered here.
#[derive(Debug)]
pub struct Locks {
    /// The namespace in which each record of an election is a lock.
    home: String,
    elsewhere: Elsewhere,
    /// The names of those that need not show what they are.
    named: BTreeSet<String>,
    learned: Mutex<HashMap<LockName, Lock>>,
    /// Tells who follows one of them that something has become of them.
    changes: watch::Sender<()>,
    /// What the controller may believe to lead by, also where it is no lock here any more.
    claims: Mutex<HashMap<LockName, LeadershipClaim>>,
    /// Where that is kept for the proxy that comes after this one.
    kept: Option<Kept>,
    /// What those may take that are not named, in bytes.
    room: usize,
    refused: Refused,
    waits: Waits,
}

/// That the controller leads by a lock.
#[derive(Clone, Copy, Debug)]
struct LeadershipClaim {
    confirmed_at: Instant,
    /// So long after it is told, or after it is first told otherwise: until then it tries.
    lasts: Duration,
    /// When it was first not told any more that it leads.
    refused: Option<Instant>,
    /// It is the ring's, as far as is known.
    ours: bool,
}

impl LeadershipClaim {
    fn new(lasts: Duration) -> Self {
        Self { confirmed_at: Instant::now(), lasts, refused: None, ours: true }
    }

    fn is_over(&self) -> bool {
        match self.refused {
            Some(refused) => self.confirmed_at.max(refused).elapsed() >= self.lasts,
            None => self.confirmed_at.elapsed() >= self.lasts + STANDSTILL,
        }
    }
}

impl Locks {
    /// None learned yet, in the controller's namespace.
    pub fn new(home: String) -> Self {
        Self {
            home,
            elsewhere: Elsewhere::default(),
            named: BTreeSet::new(),
            learned: Mutex::default(),
            changes: watch::Sender::default(),
            claims: Mutex::default(),
            kept: None,
            room: MAX_BYTES,
            refused: Refused::default(),
            waits: Waits::default(),
        }
    }

    /// With what a proxy before this one has told a controller that may run still.
    pub(crate) fn kept_in(home: String, kept: Kept) -> Self {
        let claims = kept.read().into_iter().map(|(name, lasts)| (name, LeadershipClaim::new(lasts))).collect();
        Self { claims: Mutex::new(claims), kept: Some(kept), ..Self::new(home) }
    }

    /// Whether, and by which holders, locks of other namespaces are learned.
    #[must_use]
    pub fn with_elsewhere(self, elsewhere: Elsewhere) -> Self {
        Self { elsewhere, ..self }
    }

    /// With a check that fails while a lock finds no room.
    #[must_use]
    pub fn with_check(self, check: Check) -> Self {
        Self { refused: Refused::new(check), ..self }
    }

    /// The locks of other elections that another replica keeps.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    #[cfg(test)]
    fn with_room(self, room: usize) -> Self {
        Self { room, ..self }
    }

    /// Forgets what found no room and is not tried any more.
    pub(crate) fn review_refused(&self) {
        self.refused.review(None);
    }

    /// What has one of these names is a lock by its holder alone.
    #[must_use]
    pub fn with_named(self, named: BTreeSet<String>) -> Self {
        Self { named, ..self }
    }

    /// What a request asks, if it may be for us to answer.
    pub fn concerns(&self, info: &RequestInfo) -> Option<LockRequest> {
        let (kind, namespace, resource) = self.is_of_locks(info)?;
        let namespace = namespace.to_owned();
        let Some(name) = resource.name.clone() else {
            return (info.verb == Verb::Create).then_some(LockRequest::Create(kind, namespace));
        };
        let name = LockName { kind, namespace, name };
        match info.verb {
            Verb::Update => Some(LockRequest::Replace(name)),
            Verb::Patch => Some(LockRequest::Patch(name)),
            Verb::Get => Some(LockRequest::Read(name)),
            Verb::Delete => Some(LockRequest::Delete(name)),
            _ => None,
        }
    }

    /// A field selector that leaves the locks out of a deletion of many objects, if there may be any among those.
    pub(crate) fn spared(&self, info: &RequestInfo) -> Option<String> {
        let (kind, namespace, _) = self.is_of_locks(info).filter(|_| info.verb == Verb::DeleteCollection)?;
        let (learned, claims) = (self.learned.lock(), self.claims.lock());
        let is_among = |lock: &&LockName| (lock.kind, &*lock.namespace) == (kind, namespace);
        let locks = learned.keys().chain(claims.keys()).filter(is_among);
        // A ConfigMap of such a name is a lock only by its record.
        let named = self.named.iter().filter(|_| kind == Kind::Lease && namespace == self.home);
        let names: BTreeSet<&str> = locks.map(|lock| &lock.name).chain(named).map(String::as_str).collect();
        let terms: Vec<_> = names.into_iter().map(|name| format!("metadata.name!={name}")).collect();
        (!terms.is_empty()).then(|| terms.join(","))
    }

    /// What a request is about, if it may be locks: their kind and namespace, and the resource.
    fn is_of_locks<'a>(&self, info: &'a RequestInfo) -> Option<(Kind, &'a str, &'a Resource)> {
        let resource = Some(&info.resource).filter(|resource| resource.subresource.is_none())?;
        let (kind, namespace) = (Kind::of(&resource.kind)?, resource.namespace.as_deref()?);
        let may_be = namespace == self.home || self.elsewhere.may_have(kind);
        may_be.then_some((kind, namespace, resource))
    }

    fn is_named(&self, name: &LockName) -> bool {
        name.namespace == self.home && self.named.contains(&name.name)
    }

    /// Whether an object is an election's lock that has a holder. One that is named need show no more than that.
    fn is_election(&self, asked: &LockRequest, object: &Object, shard: &str) -> bool {
        let Some(holder) = object.holder().filter(|_| !object.is_of_a_shard(shard)) else { return false };
        let is_named = || asked.named(object).is_some_and(|name| self.is_named(&name));
        let (_, namespace) = asked.place();
        (object.is_record() || is_named()) && (namespace == self.home || self.is_own(namespace, &holder, shard))
    }

    /// Whether it is known as a lock.
    pub fn knows(&self, name: &LockName) -> bool {
        self.learned.lock().contains_key(name)
    }

    /// Whether a request is about an election that the controller may believe to lead by: it is how it finds out.
    pub(crate) fn is_about_a_lead(&self, info: &RequestInfo) -> bool {
        let claims = self.claims.lock();
        let named = || self.concerns(info).and_then(|asked| asked.name().cloned()).or_else(|| self.selected(info));
        !claims.is_empty() && named().is_some_and(|name| claims.contains_key(&name))
    }

    /// Those that the controller may lead by, as far as is known here.
    pub(crate) fn led(&self) -> Vec<LockName> {
        let mut claims = self.claims.lock();
        let before = claims.len();
        claims.retain(|_, belief| !belief.is_over());
        if claims.len() < before {
            self.keep(&claims);
        }
        claims.iter().filter(|(_, belief)| belief.ours).map(|(name, _)| name.clone()).collect()
    }

    /// Whether the controller may believe to lead by it.
    pub(crate) fn is_claimed(&self, name: &LockName) -> bool {
        self.claims.lock().get(name).is_some_and(|belief| !belief.is_over())
    }

    /// The controller was not told that it leads by this one, when it asked about it.
    pub(crate) fn refused(&self, name: &LockName) {
        if let Some(belief) = self.claims.lock().get_mut(name) {
            belief.refused.get_or_insert_with(Instant::now);
        }
    }

    /// Whether something is so of all that the controller may believe to lead by.
    fn all_claimed(&self, is_so: impl Fn(&LockName) -> bool) -> bool {
        self.claims.lock().iter().all(|(name, belief)| belief.is_over() || is_so(name))
    }

    fn claimed_names(&self) -> String {
        let names: Vec<_> = self.claims.lock().keys().map(LockName::to_string).collect();
        names.join(", ")
    }

    /// The controller was told how a lock stands after its write; none if it is gone.
    fn record_claim(&self, name: LockName, object: Option<&Object>) {
        let held = object.filter(|object| object.holder().is_some());
        let lasts = held.map(|object| object.lasts().min(MAX_BELIEF));
        let mut claims = self.claims.lock();
        let before = match lasts {
            Some(lasts) => claims.insert(name, LeadershipClaim::new(lasts)),
            None => claims.remove(&name),
        };
        if before.map(|before| before.lasts) != lasts {
            self.keep(&claims);
        }
    }

    fn keep(&self, claims: &HashMap<LockName, LeadershipClaim>) {
        if let Some(kept) = &self.kept {
            kept.write(claims.iter().map(|(name, belief)| (name, belief.lasts)));
        }
    }

    /// Returns when a proxy after this one would know all that the controller is told by an answer from here. The answer waits
    /// for it.
    pub(crate) async fn kept(&self) {
        if let Some(kept) = &self.kept {
            kept.written().await;
        }
    }

    #[cfg(test)]
    fn wait_until_kept(&self) {
        self.kept.iter().for_each(Kept::wait_until_written);
    }

    /// The ring could not take a lock by which the controller would lead.
    pub(crate) fn not_taken(&self, refusal: &LockRefusal) {
        if let LockRefusal::NotHeld { name, why, forbidden: true } = refusal {
            self.refused.add(name, Why::Forbidden(why.clone()));
        }
    }

    /// Another holder has the lock: the controller is shown the real one from now on.
    pub(crate) fn forget(&self, name: &LockName) {
        self.learned.lock().remove(name);
        self.changes.send_replace(());
        if let Some(belief) = self.claims.lock().get_mut(name) {
            belief.ours = false;
        }
    }

    /// The known lock that the controller would hold after a write, and as what: it leads no more by one that it frees, and a
    /// write that is refused here changes nothing.
    pub fn claimed(&self, asked: &LockRequest, parts: &Parts, body: &Bytes) -> Option<(LockName, Claim)> {
        let learned = self.learned.lock();
        let (name, object) = match asked {
            LockRequest::Read(_) | LockRequest::Delete(_) => return None,
            LockRequest::Create(..) if !asked.makes_any_of(learned.keys()) => return None,
            LockRequest::Create(kind, _) => {
                let object = codec::decode(*kind, &parts.headers, body)?;
                let name = asked.named(&object)?;
                learned.get(&name).filter(|lock| lock.is_deleted())?;
                (name, object)
            }
            LockRequest::Replace(name) => {
                learned.get(name).filter(|lock| !lock.is_deleted())?;
                (name.clone(), codec::decode(name.kind, &parts.headers, body)?)
            }
            LockRequest::Patch(name) => (name.clone(), learned.get(name)?.patched(&parts.headers, body).ok()?),
        };
        object.holder()?;
        Some((name, Claim { object: Some(object), judged: false }))
    }

    /// A lock as the controller has it.
    fn object(&self, name: &LockName) -> Option<Object> {
        self.learned.lock().get(name).and_then(|lock| lock.read().ok())
    }

    /// There is room for this one.
    ///
    /// # Errors
    /// [`LockRefusal::NoRoom`] when there is none.
    pub fn make_room(&self, Judged { name, object, .. }: &Judged) -> Result<(), LockRefusal> {
        self.make_room_in(&mut self.learned.lock(), name, object.bytes())
    }

    /// What the controller leads by no more is found again where it asks about it. Those that are named don't count: what
    /// only looks like a lock takes no room from them, nor they from others.
    fn make_room_in(
        &self,
        learned: &mut HashMap<LockName, Lock>,
        name: &LockName,
        bytes: usize,
    ) -> Result<(), LockRefusal> {
        let counts = |other: &LockName| other != name && !self.is_named(other);
        let taken = |learned: &HashMap<LockName, Lock>| -> usize {
            learned.iter().filter(|(other, _)| counts(other)).map(|(_, lock)| lock.bytes()).sum()
        };
        while !self.is_named(name) && taken(learned) + OVERHEAD + bytes > self.room {
            let deleted =
                learned.iter().find(|(other, lock)| counts(other) && lock.is_deleted()).map(|(other, _)| other);
            let idle = learned.keys().find(|other| counts(other) && !self.is_claimed(other));
            let Some(idle) = deleted.or(idle).cloned() else {
                self.refused.add(name, Why::NoRoom);
                return Err(LockRefusal::NoRoom { name: name.clone(), most: self.room });
            };
            learned.remove(&idle);
            self.changes.send_replace(());
        }
        self.refused.review(Some(name));
        Ok(())
    }

    /// The ring holds one that the controller has not written here, in this version: it is free for this shard's.
    ///
    /// # Errors
    /// [`LockRefusal::NoRoom`] when there is none for it.
    pub fn learn_free(&self, name: &LockName, version: Option<&str>) -> Result<(), LockRefusal> {
        {
            let mut learned = self.learned.lock();
            self.make_room_in(&mut learned, name, 0)?;
            learned.entry(name.clone()).or_insert_with(|| Lock::free(name.clone(), version));
        }
        self.changes.send_replace(());
        Ok(())
    }

    /// An object was read that is no known lock. If the ring holds it, it is one, and free for this shard's controller.
    ///
    /// # Errors
    /// [`LockRefusal::NotFound`] then: so the controller makes it.
    pub fn read(&self, name: &LockName, headers: &HeaderMap, body: &Bytes, ring: &str) -> Result<(), LockRefusal> {
        let object = name.kind.may_be_in(body).then(|| codec::decode(name.kind, headers, body)).flatten();
        self.saw(name, object, ring)
    }

    /// The same of the event of a watch.
    ///
    /// # Errors
    /// [`LockRefusal::NotFound`] if the ring holds the lock that it shows.
    pub(crate) fn read_event(
        &self,
        name: &LockName,
        encoding: Encoding,
        event: &Bytes,
        ring: &str,
    ) -> Result<(), LockRefusal> {
        let object = name.kind.may_be_in(event).then(|| codec::decode_event(name.kind, encoding, event)).flatten();
        self.saw(name, object, ring)
    }

    fn saw(&self, name: &LockName, object: Option<Object>, ring: &str) -> Result<(), LockRefusal> {
        let Some(object) = object.filter(|object| object.holder().as_deref() == Some(ring)) else { return Ok(()) };
        self.learn_free(name, object.metadata().resource_version.as_deref())?;
        self.learned.lock().get(name).map_or(Ok(()), |lock| lock.read().map(drop))
    }

    /// Answers a request about an object that is known as a lock; `None` if it is not.
    pub fn answer(
        &self,
        asked: &LockRequest,
        parts: &Parts,
        body: &Bytes,
    ) -> Option<Result<Response<Body>, LockRefusal>> {
        let now = Timestamp::now();
        let mut learned = self.learned.lock();
        let result = match asked {
            LockRequest::Read(name) => learned.get(name)?.read().map(|object| (StatusCode::OK, Said::Object(object))),
            LockRequest::Delete(name) => {
                let deleted = learned.get_mut(name)?.delete();
                self.record_claim(name.clone(), None);
                deleted.map(|object| (StatusCode::OK, Said::Deleted(object)))
            }
            // Nothing is decoded of what is about something else.
            LockRequest::Replace(name) | LockRequest::Patch(name) if !learned.contains_key(name) => return None,
            LockRequest::Create(..) if !asked.makes_any_of(learned.keys()) => return None,
            write => {
                let (name, write) = match write {
                    LockRequest::Patch(name) => (name.clone(), None),
                    _ => {
                        let object = codec::decode(write.kind(), &parts.headers, body)?;
                        (asked.named(&object)?, Some(object))
                    }
                };
                // A patch may add as much as it has.
                let known = learned.get(&name)?.bytes();
                let bytes = write.as_ref().map_or_else(|| known + body.len(), Object::bytes);
                if let Err(refusal) = self.make_room_in(&mut learned, &name, bytes) {
                    return Some(Err(refusal));
                }
                let lock = learned.get_mut(&name)?;
                let written = match (asked, write) {
                    (LockRequest::Create(..), Some(object)) => {
                        lock.create(object, now).map(|it| (StatusCode::CREATED, it))
                    }
                    (_, Some(object)) => lock.replace(object, now).map(|it| (StatusCode::OK, it)),
                    (_, None) => lock.patch(&parts.headers, body, now),
                };
                written.map(|(code, object)| {
                    self.record_claim(lock.name().clone(), Some(&object));
                    (code, Said::Object(object))
                })
            }
        };
        drop(learned);
        if !matches!(asked, LockRequest::Read(_)) {
            self.changes.send_replace(());
        }
        Some(result.map(|(code, said)| respond(code, &said, &parts.headers)))
    }

    /// Whether a write of what is no lock yet may make it one, so that the API server should judge it in a dry run first.
    ///
    /// Of a patch only the outcome shows that; one that leaves the record alone takes the lead from no holder.
    pub fn may_begin(&self, asked: &LockRequest, parts: &Parts, body: &Bytes, shard: &str) -> bool {
        let kind = asked.kind();
        match asked {
            LockRequest::Read(_) | LockRequest::Delete(_) => false,
            _ if !kind.may_be_in(body) => false,
            LockRequest::Create(..) | LockRequest::Replace(_) => {
                codec::decode(kind, &parts.headers, body).is_some_and(|object| self.is_election(asked, &object, shard))
            }
            LockRequest::Patch(name) => {
                !is_compressed(&parts.headers)
                    && patch::touches_record(kind, body)
                    && self.may_name_us(name, body, shard)
            }
        }
    }

    /// Whether a write of what is no lock yet, and begins none, may free one.
    pub fn may_free(asked: &LockRequest, parts: &Parts, body: &Bytes) -> bool {
        match asked {
            LockRequest::Delete(_) => true,
            LockRequest::Replace(name) => {
                name.kind.may_be_in(body)
                    && codec::decode(name.kind, &parts.headers, body).is_some_and(|object| object.holder().is_none())
            }
            // Of a patch the dry run tells.
            LockRequest::Create(..) | LockRequest::Read(_) | LockRequest::Patch(_) => false,
        }
    }

    /// Answers a write with what the API server judged of it: a lock from now on.
    ///
    /// # Errors
    /// As the API server's of a lock that it has.
    pub fn adopt(
        &self,
        asked: &LockRequest,
        parts: &Parts,
        body: &Bytes,
        judged: Judged,
    ) -> Result<Response<Body>, LockRefusal> {
        let Judged { name, object, status } = judged;
        let adopted = {
            let mut learned = self.learned.lock();
            let first = learned.get(&name).is_none_or(Lock::is_deleted);
            first.then(|| {
                self.make_room_in(&mut learned, &name, object.bytes())?;
                learn(&mut learned, name.clone(), object, Timestamp::now())
            })
        };
        if let Some(Ok(object)) = &adopted {
            self.refused.remove(&name);
            self.record_claim(name, Some(object));
            self.changes.send_replace(());
        }
        match adopted {
            Some(adopted) => adopted.map(|object| respond(status, &Said::Object(object), &parts.headers)),
            // Another write came first while this one was judged: it meets what that one made.
            None => self.answer(asked, parts, body).unwrap_or(Err(LockRefusal::Answer)),
        }
    }
}

fn learn(
    learned: &mut HashMap<LockName, Lock>,
    name: LockName,
    object: Object,
    now: Timestamp,
) -> Result<Object, LockRefusal> {
    tracing::info!(
        lock = %name,
        namespace = name.namespace,
        holder = object.holder(),
        "the controller's election is by this: it is answered here from now on"
    );
    let lock = Lock::adopt(name.clone(), object, now);
    let object = lock.read()?;
    learned.insert(name, lock);
    Ok(object)
}
