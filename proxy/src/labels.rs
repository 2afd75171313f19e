//! Hides the labels of the ring from the controller: a copy or a hash of an object's labels is the same on every shard.
//!
//! [`Filter`] overwrites them in what passes, so that nothing changes its length: in JSON (`json`) with blanks, in protobuf
//! (`protobuf`) with a field that decoders skip. [`insert`] puts the shard's label into an object that is written without it.

use std::sync::Arc;

use memchr::memmem::Finder;
use ringside_ring::RingLabels;

mod filter;
pub mod insert;
mod json;
mod protobuf;
#[cfg(test)]
mod tests;

pub use filter::Filter;

/// The keys of the labels to hide. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Keys(Arc<[Finder<'static>; 2]>);

impl Keys {
    /// Returns the keys of a ring's labels.
    pub fn of(labels: &RingLabels) -> Self {
        Self(Arc::new([&labels.shard, &labels.drain].map(|key| Finder::new(&format!("\"{key}\"")).into_owned())))
    }

    /// Returns the keys as they stand in JSON, with their quotes.
    fn quoted(&self) -> impl Iterator<Item = &Finder<'static>> {
        self.0.iter()
    }

    /// Whether this is one of the keys, without quotes.
    fn have(&self, key: &[u8]) -> bool {
        self.quoted().any(|quoted| quoted.needle()[1..quoted.needle().len() - 1] == *key)
    }
}
