//! What reviews read of owners: one read of a thing at a time, shared by all that wait for it, and few that wait.
//!
//! Each review that waits holds a place of the API server's, which all controllers of the cluster share.

use std::{collections::HashMap, sync::Arc};

use crate::lock::Mutex;
use futures::{
    FutureExt,
    future::{BoxFuture, WeakShared},
};
use tokio::sync::Semaphore;

use crate::resources::Object;

/// Reviews that read owners at once, so as many reads at most.
pub(super) const MAX_WAITING: usize = 64;

/// An answer that many share.
pub(super) type Answer<T> = Result<T, Arc<kube::Error>>;

/// The reads of all reviews.
pub(crate) struct OwnerReads {
    pub(super) room: Semaphore,
    pub(super) objects: Reads<Option<Object>>,
    /// Whether a shard is available that this replica knows nothing of.
    pub(super) shards: Reads<bool>,
}

impl Default for OwnerReads {
    fn default() -> Self {
        let room = Semaphore::new(MAX_WAITING);
        Self { room, objects: Reads(Mutex::default()), shards: Reads(Mutex::default()) }
    }
}

/// The reads that are under way.
pub(super) struct Reads<T>(Mutex<HashMap<String, WeakShared<BoxFuture<'static, Answer<T>>>>>);

impl<T: Clone> Reads<T> {
    /// Waits for the read of this key that is under way, or else for this one.
    pub(super) async fn join(&self, key: String, read: impl Future<Output = Answer<T>> + Send + 'static) -> Answer<T> {
        let shared = {
            let mut all = self.0.lock();
            all.retain(|_, read| read.upgrade().is_some_and(|read| read.peek().is_none()));
            all.get(&key).and_then(WeakShared::upgrade).unwrap_or_else(|| {
                let shared = read.boxed().shared();
                all.extend(shared.downgrade().map(|read| (key, read)));
                shared
            })
        };
        shared.await
    }
}

#[cfg(test)]
mod tests;
