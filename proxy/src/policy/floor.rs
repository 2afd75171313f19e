//! From where on what a client knows of a resource can be trusted.

use std::sync::Arc;

use parking_lot::Mutex;
use ringside_ring::ResourceVersion;
use tokio::sync::OnceCell;

/// The resourceVersion of a collection, once it has been read.
pub type Read = Arc<OnceCell<ResourceVersion>>;

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

    #[test]
    fn a_new_term_reads_anew_and_an_old_one_does_not_come_back() {
        let floor = Floor::default();
        floor.during(1).set("7".parse().unwrap()).unwrap();
        assert!(floor.during(1).get().is_some());
        assert!(floor.during(2).get().is_none());
        floor.during(2).set("9".parse().unwrap()).unwrap();
        assert_eq!(floor.during(1).get(), floor.during(2).get());
    }
}
