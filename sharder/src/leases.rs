//! Shard Leases: who is there.
//!
//! Every replica observes them ([`book`], [`watch`]); the leader alone acts on them ([`plan`], [`act`]).

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use ringside_ring::{Members, Moment, RingName};
use ringside_runtime::clock::SharedClock;
use tokio::sync::watch as channel;

mod act;
mod book;
mod plan;
mod watch;

pub(crate) use act::keep_states;
pub(crate) use watch::follow;

use book::{Book, Change};

/// The shard Leases as this replica observed them; clones share them.
#[derive(Clone)]
pub(crate) struct Leases {
    book: Arc<Mutex<Book>>,
    clock: SharedClock,
    /// Shards came, went, or changed between available and not.
    membership: channel::Sender<()>,
    /// A Lease changed in a way that its state label does not say yet.
    attention: channel::Sender<()>,
}

impl Leases {
    /// None observed yet.
    pub(crate) fn new(clock: SharedClock) -> Self {
        let signal = || channel::Sender::new(());
        Self { book: Arc::new(Mutex::new(Book::default())), clock, membership: signal(), attention: signal() }
    }

    /// Tells when shards come, go, or change between available and not.
    pub(crate) fn membership(&self) -> channel::Receiver<()> {
        self.membership.subscribe()
    }

    /// The shards of each ring; `None` until all Leases have been seen: a shard that is missing from half a list is not gone.
    pub(crate) fn members(&self) -> Option<BTreeMap<RingName, Members>> {
        let now = self.clock.now();
        self.book.lock().members(now, Moment::default())
    }

    /// Takes in what was seen of the Leases.
    fn observe(&self, event: Event<Lease>) {
        let change = self.book.lock().apply(event, self.clock.now());
        if change == Change::Membership {
            self.membership.send_replace(());
        }
        if change != Change::Nothing {
            self.attention.send_replace(());
        }
    }
}
