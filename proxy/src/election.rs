//! The controller's election, answered from memory: every shard's controller is the leader of its own share.
//!
//! No flag names the lock, a Lease or a ConfigMap of the controller's namespace ([`Kind`]); it is learned from what a
//! controller writes. A Lease is one if it has a holder, an `acquireTime` and `leaseTransitions` (client-go, fabric8 and
//! others write all three; node heartbeats and the like don't) and is no shard's; a ConfigMap, if it has an annotation with
//! a record that names a holder. Until such a write comes, reads pass through, so that the controller sees an old, unsharded
//! leader and waits for it as it always did. The first write is sent with `dryRun=All`: the API server judges it
//! (permission, conflict with a leader that has just renewed, every kind of patch) and stores nothing. Then the ring takes the
//! real lock ([`hold`]), and what the API server would have stored is where the lock goes on here. One that the ring holds
//! already, by another of its shards, is not there for the controller, who may make it. All other ConfigMaps pass as they are.
//!
//! Lists and watches of Leases and ConfigMaps pass through for now, as do locks of other kinds.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, request::Parts};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use crate::{
    body::Body,
    request::{RequestInfo, Verb, representation::is_compressed},
};

mod answer;
mod codec;
pub mod hold;
mod lock;
mod messages;
mod object;
mod patch;
mod record;
#[cfg(test)]
mod tests;

use answer::{Said, respond};
pub use hold::{Claim, Hold};
use lock::Lock;
pub use lock::LockRefusal;
use object::Object;
pub use object::{Kind, LockName};

/// How many locks are kept here. A controller has one, a big manager one for each of its parts; much more
/// is a client that elects under ever new names, and each may hold a body's length of memory.
const MAX_LOCKS: usize = 32;

/// The locks that are answered here, all in one namespace.
#[derive(Debug)]
pub struct Locks {
    namespace: String,
    learned: Mutex<HashMap<LockName, Lock>>,
}

/// A request that may be about one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Make an object of this kind.
    Create(Kind),
    /// Read it.
    Read(LockName),
    /// Replace it.
    Replace(LockName),
    /// Change it.
    Patch(LockName),
    /// Delete it.
    Delete(LockName),
}

impl Asked {
    /// Of what kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Create(kind) => *kind,
            Self::Read(name) | Self::Replace(name) | Self::Patch(name) | Self::Delete(name) => name.kind,
        }
    }
}

impl Locks {
    /// None learned yet, in the controller's namespace.
    pub fn new(namespace: String) -> Self {
        Self { namespace, learned: Mutex::default() }
    }

    /// What a request asks, if it may be for us to answer.
    pub fn concerns(&self, info: &RequestInfo) -> Option<Asked> {
        let resource = info.resource.as_ref()?;
        let kind = Kind::of(&resource.kind)?;
        if resource.namespace.as_deref() != Some(&self.namespace) || resource.subresource.is_some() {
            return None;
        }
        match (info.verb, resource.name.clone().map(|name| LockName { kind, name })) {
            (Verb::Create, None) => Some(Asked::Create(kind)),
            (Verb::Update, Some(name)) => Some(Asked::Replace(name)),
            (Verb::Patch, Some(name)) => Some(Asked::Patch(name)),
            (Verb::Get, Some(name)) => Some(Asked::Read(name)),
            (Verb::Delete, Some(name)) if self.knows(&name) => Some(Asked::Delete(name)),
            _ => None,
        }
    }

    /// Whether it is known as a lock.
    pub fn knows(&self, name: &LockName) -> bool {
        self.learned.lock().contains_key(name)
    }

    /// Those that the controller leads by.
    pub(crate) fn led(&self) -> Vec<LockName> {
        self.learned.lock().iter().filter(|(_, lock)| lock.is_held()).map(|(name, _)| name.clone()).collect()
    }

    /// It is somebody else's: the controller is shown the real one from now on.
    pub(crate) fn forget(&self, name: &LockName) {
        self.learned.lock().remove(name);
    }

    /// The known lock that a write is about, and what the controller claims it by.
    pub fn written(&self, asked: &Asked, parts: &Parts, body: &Bytes) -> Option<(LockName, Claim)> {
        let (name, object) = match asked {
            Asked::Read(_) | Asked::Delete(_) => return None,
            Asked::Replace(name) | Asked::Patch(name) => (name.clone(), self.object(name)),
            Asked::Create(kind) if !self.learned.lock().keys().any(|name| name.kind == *kind) => return None,
            Asked::Create(kind) => {
                let object = codec::decode(*kind, &parts.headers, body)?;
                (object.name()?, Some(object))
            }
        };
        self.knows(&name).then_some((name, Claim { object, judged: false }))
    }

    /// A lock as the controller has it.
    fn object(&self, name: &LockName) -> Option<Object> {
        self.learned.lock().get(name).and_then(|lock| lock.read().ok())
    }

    /// An object was read that is no known lock. If the ring holds it, it is one, and free for this shard's controller.
    ///
    /// # Errors
    /// [`LockRefusal::NotFound`] then: so the controller makes it.
    pub fn read(&self, name: &LockName, headers: &HeaderMap, body: &Bytes, ring: &str) -> Result<(), LockRefusal> {
        let object = name.kind.may_be_in(body).then(|| codec::decode(name.kind, headers, body)).flatten();
        let Some(object) = object.filter(|object| object.holder().as_deref() == Some(ring)) else { return Ok(()) };
        let mut learned = self.learned.lock();
        if !learned.contains_key(name) {
            make_room(&mut learned, name)?;
            let version = object.metadata().resource_version.as_deref();
            learned.insert(name.clone(), Lock::free(name.clone(), version));
        }
        learned.get(name).map_or(Ok(()), |lock| lock.read().map(drop))
    }

    /// Answers a request about an object that is known as a lock; `None` if it is not.
    pub fn answer(&self, asked: &Asked, parts: &Parts, body: &Bytes) -> Option<Result<Response<Body>, LockRefusal>> {
        let now = Timestamp::now();
        let mut learned = self.learned.lock();
        let result = match asked {
            Asked::Read(name) => learned.get(name)?.read().map(|object| (StatusCode::OK, Said::Object(object))),
            Asked::Delete(name) => {
                learned.get_mut(name)?.delete().map(|object| (StatusCode::OK, Said::Deleted(object)))
            }
            Asked::Patch(name) => {
                let lock = learned.get_mut(name)?;
                let patched = lock.read().and_then(|base| patch::apply(&base, &parts.headers, body));
                patched
                    .and_then(|object| lock.replace(object, now))
                    .map(|object| (StatusCode::OK, Said::Object(object)))
            }
            // Nothing is decoded of what is about something else.
            Asked::Replace(name) if !learned.contains_key(name) => return None,
            Asked::Create(kind) if !learned.keys().any(|name| name.kind == *kind) => return None,
            Asked::Create(kind) | Asked::Replace(LockName { kind, .. }) => {
                let object = codec::decode(*kind, &parts.headers, body)?;
                let lock = learned.get_mut(&object.name()?)?;
                match asked {
                    Asked::Create(_) => lock.create(object, now).map(|it| (StatusCode::CREATED, Said::Object(it))),
                    _ => lock.replace(object, now).map(|it| (StatusCode::OK, Said::Object(it))),
                }
            }
        };
        Some(result.map(|(code, said)| respond(code, &said, &parts.headers)))
    }

    /// Whether a write of what is no lock yet may make it one, so that the API server should judge it in a dry run first.
    ///
    /// Of a patch only the outcome shows that; one that leaves the record alone takes nobody's lead.
    pub fn may_begin(&self, asked: &Asked, parts: &Parts, body: &Bytes, shard: &str) -> bool {
        let kind = asked.kind();
        match asked {
            Asked::Read(_) | Asked::Delete(_) => false,
            _ if !kind.may_be_in(body) => false,
            Asked::Create(_) | Asked::Replace(_) => {
                codec::decode(kind, &parts.headers, body).is_some_and(|object| object.is_election(shard))
            }
            Asked::Patch(_) => !is_compressed(&parts.headers) && patch::touches_record(kind, body),
        }
    }

    /// What a dry run came to, if that is an election's record.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn judged(asked: &Asked, tried: &Response<Bytes>, shard: &str) -> Result<Option<Judged>, LockRefusal> {
        let object = codec::decode(asked.kind(), tried.headers(), tried.body()).ok_or(LockRefusal::Answer)?;
        let name = object.name().filter(|_| object.is_election(shard));
        Ok(name.map(|name| Judged { name, object, status: tried.status() }))
    }

    /// Answers a write with what the API server judged of it: a lock from now on.
    ///
    /// # Errors
    /// As the API server's of a lock that it has.
    pub fn adopt(
        &self,
        asked: &Asked,
        parts: &Parts,
        body: &Bytes,
        judged: Judged,
    ) -> Result<Response<Body>, LockRefusal> {
        let Judged { name, object, status } = judged;
        let adopted = {
            let mut learned = self.learned.lock();
            let first = learned.get(&name).is_none_or(Lock::is_deleted);
            first.then(|| learn(&mut learned, name, object, Timestamp::now()))
        };
        match adopted {
            Some(adopted) => adopted.map(|object| respond(status, &Said::Object(object), &parts.headers)),
            // Another write came first while this one was judged: it meets what that one made.
            None => self.answer(asked, parts, body).unwrap_or(Err(LockRefusal::Answer)),
        }
    }
}

/// A write that begins an election, as the API server would have stored it.
#[derive(Debug)]
pub struct Judged {
    name: LockName,
    object: Object,
    status: StatusCode,
}

impl Judged {
    /// Takes the real lock for the ring, in the version that was judged.
    ///
    /// # Errors
    /// [`LockRefusal::Conflict`] when somebody else holds it; [`LockRefusal::NotHeld`] when the API server can't be asked or
    /// does not let the shard write.
    pub async fn taken_for(self, hold: &Hold) -> Result<Self, LockRefusal> {
        hold.take(&self.name, &Claim { object: Some(self.object.clone()), judged: true }).await?;
        Ok(self)
    }
}

impl Hold {
    /// Makes sure of a known lock that is about to be written, unless that is known from a moment ago.
    ///
    /// # Errors
    /// [`LockRefusal::Conflict`] when somebody else holds it; [`LockRefusal::NotHeld`] when the API server can't be asked or
    /// does not let the shard write.
    pub async fn make_sure(&self, name: &LockName, claim: &Claim) -> Result<(), LockRefusal> {
        if self.is_sure(name) { Ok(()) } else { self.take(name, claim).await }
    }
}

fn make_room(learned: &mut HashMap<LockName, Lock>, name: &LockName) -> Result<(), LockRefusal> {
    if learned.len() >= MAX_LOCKS && !learned.contains_key(name) {
        let deleted = learned.iter().find(|(_, lock)| lock.is_deleted()).map(|(name, _)| name.clone());
        learned.remove(&deleted.ok_or_else(|| LockRefusal::TooMany { name: name.clone(), most: MAX_LOCKS })?);
    }
    Ok(())
}

fn learn(
    learned: &mut HashMap<LockName, Lock>,
    name: LockName,
    object: Object,
    now: Timestamp,
) -> Result<Object, LockRefusal> {
    make_room(learned, &name)?;
    tracing::info!(
        lock = %name,
        holder = object.holder(),
        "the controller's election is by this: it is answered here from now on"
    );
    let lock = Lock::adopt(name.clone(), object, now);
    let object = lock.read()?;
    learned.insert(name, lock);
    Ok(object)
}
