//! The controller's election Lease, answered from memory: every shard's controller is the leader of its own share.
//!
//! No flag names the Lease; it is learned from what a controller writes. An election record has a holder, an
//! `acquireTime` and `leaseTransitions` (client-go, fabric8 and others write all three); node heartbeats and
//! the like don't, and a Lease with the ring's label is a shard's. Until such a write comes, reads pass
//! through, so that the controller sees an old, unsharded leader and waits for it as it always did. The first
//! write is sent with `dryRun=All`: the API server judges it (permission, conflict with a leader that has just
//! renewed, every kind of patch) and stores nothing. What it would have stored is where the Lease goes on here.
//!
//! Lists and watches of Leases pass through for now, as do locks that are not Leases.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, request::Parts};
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use parking_lot::Mutex;
use ringside_ring::{labels::LEASE_RING, lease::holder};

use crate::{
    body::{Body, full},
    request::{
        RequestInfo, Verb,
        representation::{Encoding, is_compressed},
    },
};

mod codec;
mod lock;
mod patch;
#[cfg(test)]
mod tests;

use lock::Lock;
pub use lock::LockRefusal;

/// Of Leases.
pub(crate) const GROUP: &str = "coordination.k8s.io";
pub(crate) const RESOURCE: &str = "leases";

/// How many Leases are kept here. A controller has one lock, a big manager one for each of its parts; much more
/// is a client that elects under ever new names, and each may hold a body's length of memory.
const MAX_LOCKS: usize = 32;

/// The election Leases that are answered here, by name, all in one namespace.
#[derive(Debug)]
pub struct Locks {
    namespace: String,
    learned: Mutex<HashMap<String, Lock>>,
}

/// A request that may be about one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Make a Lease.
    Create,
    /// Read it.
    Read(String),
    /// Replace it.
    Replace(String),
    /// Change it.
    Patch(String),
    /// Delete it.
    Delete(String),
}

impl Locks {
    /// None learned yet, in the controller's namespace.
    pub fn new(namespace: String) -> Self {
        Self { namespace, learned: Mutex::default() }
    }

    /// What a request asks, if it may be for us to answer.
    pub fn concerns(&self, info: &RequestInfo) -> Option<Asked> {
        let resource = info.resource.as_ref()?;
        let is_lease = resource.kind.resource == RESOURCE && resource.kind.group == GROUP;
        let here = resource.namespace.as_deref() == Some(&self.namespace) && resource.subresource.is_none();
        if !is_lease || !here {
            return None;
        }
        let learned = |name: &String| self.learned.lock().contains_key(name);
        match (info.verb, resource.name.clone()) {
            (Verb::Create, None) => Some(Asked::Create),
            (Verb::Update, Some(name)) => Some(Asked::Replace(name)),
            (Verb::Patch, Some(name)) => Some(Asked::Patch(name)),
            (Verb::Get, Some(name)) if learned(&name) => Some(Asked::Read(name)),
            (Verb::Delete, Some(name)) if learned(&name) => Some(Asked::Delete(name)),
            _ => None,
        }
    }

    /// Answers a request about a Lease that is known as a lock; `None` if it is not.
    pub fn answer(&self, asked: &Asked, parts: &Parts, body: &Bytes) -> Option<Result<Response<Body>, LockRefusal>> {
        let now = Timestamp::now();
        let mut learned = self.learned.lock();
        let result = match asked {
            Asked::Read(name) => learned.get(name)?.read().map(|lease| (StatusCode::OK, lease)),
            Asked::Delete(name) => {
                let encoding = Encoding::negotiated(&parts.headers);
                let deleted = learned.get_mut(name)?.delete();
                // What is gone at once is not shown: client libraries take an object for one that is still being deleted.
                return Some(deleted.map(|it| written(StatusCode::OK, codec::encode_deleted(&it, encoding), encoding)));
            }
            Asked::Patch(name) => {
                let lock = learned.get_mut(name)?;
                let patched = lock.read().and_then(|base| patch::apply(&base, &parts.headers, body));
                patched.and_then(|lease| lock.replace(lease, now)).map(|lease| (StatusCode::OK, lease))
            }
            Asked::Create | Asked::Replace(_) => {
                let lease = codec::decode(&parts.headers, body)?;
                let lock = learned.get_mut(lease.metadata.name.as_ref()?)?;
                match asked {
                    Asked::Create => lock.create(lease, now).map(|lease| (StatusCode::CREATED, lease)),
                    _ => lock.replace(lease, now).map(|lease| (StatusCode::OK, lease)),
                }
            }
        };
        Some(result.map(|(code, lease)| respond(code, &lease, &parts.headers)))
    }

    /// Whether a write of a Lease that is no lock yet may make it one, so that the API server should judge it
    /// in a dry run first.
    ///
    /// Of a patch only the outcome shows that; one that leaves the spec alone takes nobody's lead.
    pub fn may_begin(&self, asked: &Asked, parts: &Parts, body: &Bytes, shard: &str) -> bool {
        match asked {
            Asked::Create | Asked::Replace(_) => {
                codec::decode(&parts.headers, body).is_some_and(|lease| is_election(&lease, shard))
            }
            Asked::Patch(_) => !is_compressed(&parts.headers) && patch::touches_spec(body),
            Asked::Read(_) | Asked::Delete(_) => false,
        }
    }

    /// Answers a write with what its dry run came to, if that is an election record: a lock from now on.
    pub fn adopt(
        &self,
        asked: &Asked,
        parts: &Parts,
        body: &Bytes,
        tried: &Response<Bytes>,
        shard: &str,
    ) -> Option<Result<Response<Body>, LockRefusal>> {
        let Some(lease) = codec::decode(tried.headers(), tried.body()) else { return Some(Err(LockRefusal::Answer)) };
        let name = lease.metadata.name.clone().filter(|_| is_election(&lease, shard))?;
        let adopted = {
            let mut learned = self.learned.lock();
            let first = !learned.contains_key(&name);
            first.then(|| learn(&mut learned, name, lease, Timestamp::now()))
        };
        // Another write came first while this one was judged: it meets what that one made.
        let Some(adopted) = adopted else { return self.answer(asked, parts, body) };
        Some(adopted.map(|lease| respond(tried.status(), &lease, &parts.headers)))
    }
}

fn learn(
    learned: &mut HashMap<String, Lock>,
    name: String,
    lease: Lease,
    now: Timestamp,
) -> Result<Lease, LockRefusal> {
    if learned.len() >= MAX_LOCKS {
        let deleted = learned.iter().find(|(_, lock)| lock.is_deleted()).map(|(name, _)| name.clone());
        learned.remove(&deleted.ok_or(LockRefusal::TooMany { name: name.clone(), most: MAX_LOCKS })?);
    }
    tracing::info!(
        lease = name,
        holder = holder(lease.spec.as_ref()),
        "this is the controller's election Lease: it is answered here from now on"
    );
    let lock = Lock::adopt(name.clone(), lease, now);
    let lease = lock.read()?;
    learned.insert(name, lock);
    Ok(lease)
}

/// Whether a Lease is an election record, held by somebody.
fn is_election(lease: &Lease, shard: &str) -> bool {
    let labelled = lease.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(LEASE_RING));
    let is_record = |spec: &k8s_openapi::api::coordination::v1::LeaseSpec| {
        spec.acquire_time.is_some() && spec.lease_transitions.is_some()
    };
    let spec = lease.spec.as_ref();
    !labelled && lease.metadata.name.as_deref() != Some(shard) && holder(spec).is_some() && spec.is_some_and(is_record)
}

fn respond(code: StatusCode, lease: &Lease, asked_with: &HeaderMap) -> Response<Body> {
    let encoding = Encoding::negotiated(asked_with);
    written(code, codec::encode(lease, encoding), encoding)
}

fn written(code: StatusCode, body: Bytes, encoding: Encoding) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
    // As on every answer of the API server.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
