//! From where on what a client knows of a resource can be trusted.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use ringside_ring::ResourceVersion;
use tokio::{
    sync::Semaphore,
    time::{error::Elapsed, timeout},
};

/// How long the API server may take to say the resourceVersion of a collection.
pub const ANSWER: Duration = Duration::from_secs(10);
/// How long a request waits for the question of another one, before it asks as well.
const TURN: Duration = Duration::from_secs(1);

/// The resourceVersion of a collection, once it has been read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Read(Arc<(OnceLock<ResourceVersion>, Semaphore)>);

impl Default for Read {
    fn default() -> Self {
        Self(Arc::new((OnceLock::new(), Semaphore::new(1))))
    }
}

impl Read {
    /// The resourceVersion, if it has been read.
    pub fn get(&self) -> Option<&ResourceVersion> {
        self.0.0.get()
    }

    /// Returns it, and reads it by `question` where it was not read yet. One question is enough for all requests, but none waits
    /// for long for that of another one: what its client may list can be another part of the collection.
    ///
    /// # Errors
    /// As `question`, or when that has no answer within [`ANSWER`].
    pub async fn or_ask<E>(
        &self,
        question: impl Future<Output = Result<ResourceVersion, E>>,
    ) -> Result<Result<&ResourceVersion, E>, Elapsed> {
        let (version, turn) = &*self.0;
        let _turn = if version.get().is_none() { timeout(TURN, turn.acquire()).await.ok() } else { None };
        if let Some(version) = version.get() {
            return Ok(Ok(version));
        }
        Ok(timeout(ANSWER, question).await?.map(|read| version.get_or_init(|| read)))
    }
}

/// A resourceVersion of a collection, read after its resource joined the ring or left it, and after the shard's term
/// began: while the Lease was not held, objects may have moved without a drain (CONTRACT, "Handover", 2).
#[derive(Clone, Debug, Default)]
pub struct Floor(Arc<Mutex<(u64, Read)>>);

impl Floor {
    /// That of a term, by the term's number: a later one begins unread.
    pub fn during(&self, term: u64) -> Read {
        let mut latest = self.0.lock();
        if latest.0 < term {
            *latest = (term, Read::default());
        }
        // A request of a term that is over ends with it, whatever is decided on it here.
        latest.1.clone()
    }
}

/// Floors are the same when they are of the same change of the ring.
impl PartialEq for Floor {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Floor {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn a_new_term_reads_anew_and_an_old_one_does_not_come_back() {
        let floor = Floor::default();
        let read = |version: &str| std::future::ready(Ok::<_, ()>(version.parse().unwrap()));
        floor.during(1).or_ask(read("7")).await.unwrap().unwrap();
        assert!(floor.during(1).get().is_some());
        assert!(floor.during(2).get().is_none());
        floor.during(2).or_ask(read("9")).await.unwrap().unwrap();
        assert_eq!(floor.during(1).get(), floor.during(2).get());
    }
}
