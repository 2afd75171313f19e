//! The controller's election Lease, answered from memory: every shard's controller is the leader of its own share.
//!
//! No flag names the Lease; it is learned from what a controller writes. An election record has a holder, an
//! `acquireTime` and `leaseTransitions` (client-go, fabric8 and others write all three); node heartbeats and
//! the like don't, and a Lease with the ring's label is a shard's. Until such a write comes, reads pass
//! through, so that the controller sees an old, unsharded leader and waits for it as it always did. The write
//! itself never reaches the API server.
//!
//! Lists and watches of Leases pass through for now, as do locks that are not Leases.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use parking_lot::Mutex;
use ringside_ring::{labels::LEASE_RING, lease::holder};

use crate::{
    body::{Body, full},
    request::{RequestInfo, Verb, representation::Encoding},
};

mod codec;
mod lock;
mod patch;
#[cfg(test)]
mod tests;

use lock::Lock;
pub use lock::LockRefusal;

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
        let is_lease = resource.kind.resource == "leases" && resource.kind.group == "coordination.k8s.io";
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

    /// Answers a request, or returns `None` if it is the API server's to answer.
    pub fn answer(
        &self,
        asked: &Asked,
        parts: &Parts,
        body: &Bytes,
        shard: &str,
    ) -> Option<Result<Response<Body>, LockRefusal>> {
        let now = Timestamp::now();
        let encoding = Encoding::negotiated(&parts.headers);
        let mut learned = self.learned.lock();
        let result = match asked {
            Asked::Read(name) => learned.get(name)?.read().map(|lease| (StatusCode::OK, lease)),
            Asked::Delete(name) => learned.get_mut(name)?.delete().map(|lease| (StatusCode::OK, lease)),
            Asked::Patch(name) => {
                let lock = learned.get_mut(name)?;
                let patched = lock.read().and_then(|base| patch::apply(&base, &parts.headers, body));
                patched.and_then(|lease| lock.replace(lease)).map(|lease| (StatusCode::OK, lease))
            }
            Asked::Create | Asked::Replace(_) => {
                let lease = codec::decode(&parts.headers, body)?;
                let name = lease.metadata.name.clone()?;
                match learned.get_mut(&name) {
                    Some(lock) if *asked == Asked::Create => {
                        lock.create(lease, now).map(|lease| (StatusCode::CREATED, lease))
                    }
                    Some(lock) => lock.replace(lease).map(|lease| (StatusCode::OK, lease)),
                    None if is_election(&lease, shard) => {
                        let code = if *asked == Asked::Create { StatusCode::CREATED } else { StatusCode::OK };
                        Ok((code, learn(&mut learned, name, lease, now)))
                    }
                    None => return None,
                }
            }
        };
        Some(result.map(|(code, lease)| respond(code, &lease, encoding)))
    }

    /// Answers a patch of a Lease that is not known as a lock, if it makes one of it: `base` is the real Lease,
    /// in JSON.
    pub fn adopt_patched(
        &self,
        asked: &Asked,
        parts: &Parts,
        body: &Bytes,
        base: &Bytes,
        shard: &str,
    ) -> Option<Result<Response<Body>, LockRefusal>> {
        let Asked::Patch(name) = asked else { return None };
        let before: Lease = serde_json::from_slice(base).ok()?;
        let patched = patch::apply(&before, &parts.headers, body).ok()?;
        let takes_part = is_election(&patched, shard) && before.spec != patched.spec;
        takes_part.then(|| {
            let lease = learn(&mut self.learned.lock(), name.clone(), patched, Timestamp::now());
            Ok(respond(StatusCode::OK, &lease, Encoding::negotiated(&parts.headers)))
        })
    }
}

fn learn(learned: &mut HashMap<String, Lock>, name: String, lease: Lease, now: Timestamp) -> Lease {
    tracing::info!(
        lease = name,
        holder = holder(lease.spec.as_ref()),
        "this is the controller's election Lease: it is answered here from now on"
    );
    let lock = Lock::adopt(lease, now);
    let lease = lock.current();
    learned.insert(name, lock);
    lease
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

fn respond(code: StatusCode, lease: &Lease, encoding: Encoding) -> Response<Body> {
    let mut response = Response::new(full(codec::encode(lease, encoding)));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
    response
}
