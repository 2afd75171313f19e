//! Looks at answers about one object for the record of an election that is not answered here.

use std::{sync::Arc, task::Poll};

use http::Response;
use parking_lot::Mutex;
use ringside_ring::ShardName;

use super::super::context::RequestContext;
use crate::{
    body::{Body, observed},
    election::{
        Locks,
        waits::{holder_in, name},
    },
    request::{Resource, Verb, representation::is_compressed},
};

/// Locks are small.
const MAX_LOCK: usize = 64 << 10;

/// What is looked at.
pub(super) struct Look {
    resource: Resource,
    wrote: bool,
    shard: ShardName,
    ring: String,
}

impl Look {
    /// None for a request about many objects, or about the ring's. That the controller writes to one of these is noted.
    pub(super) fn of(context: &RequestContext, locks: &Locks, ring: &str) -> Option<Self> {
        let RequestContext { info, admitted, .. } = context;
        let resource = &info.resource;
        let wrote = match info.verb {
            Verb::Get if resource.name.is_some() => false,
            Verb::Create | Verb::Update | Verb::Patch => true,
            Verb::Delete | Verb::DeleteCollection | Verb::Get | Verb::List | Verb::Watch | Verb::Unknown => {
                return None;
            }
        };
        let is_of_ring = admitted.policy.resources.contains(&resource.kind);
        if is_of_ring && wrote {
            locks.waits().acts();
        }
        let is_one = resource.subresource.is_none() && !is_of_ring;
        let (shard, ring) = (admitted.term.shard.clone(), ring.to_owned());
        is_one.then(|| Self { resource: resource.clone(), wrote, shard, ring })
    }

    /// The answer, looked at as it passes.
    pub(super) fn at(self, answer: Response<Body>, locks: Arc<Locks>) -> Response<Body> {
        if !answer.status().is_success() || is_compressed(answer.headers()) {
            return answer;
        }
        let seen = Mutex::new(Some(Vec::new()));
        answer.map(|body| {
            observed(body, (), move |(), polled| {
                let Poll::Ready(Some(Ok(frame))) = polled else { return };
                let mut seen = seen.lock();
                let Some(object) = seen.as_mut() else { return };
                object.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                let holder = holder_in(object, &self.resource.kind.group);
                if let Some(holder) = &holder {
                    self.saw(&locks, holder);
                }
                if holder.is_some() || object.len() > MAX_LOCK {
                    *seen = None;
                }
            })
        })
    }

    fn saw(&self, locks: &Locks, holder: &str) {
        // A create has no name in its path, and is one of ours.
        let lock = name(&self.resource, self.resource.name.as_deref().unwrap_or_default());
        let names: Vec<_> = locks.our_names(self.shard.as_str()).collect();
        // What the ring holds is free for the controller. Another ring's name may begin with this one's.
        let holder = if holder == self.ring { "" } else { holder };
        locks.waits().saw(&lock, holder, self.wrote, &names);
    }
}
