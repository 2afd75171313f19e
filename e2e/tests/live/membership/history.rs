//! What became of all Leases of shards, one state after the other.

use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, watcher},
    },
};
use ringside_e2e::plain_shard::LEASE_RING;
use ringside_e2e::{eventually::eventually, system::NAMESPACE};
use ringside_ring::labels::LEASE_STATE;
use tokio_util::task::AbortOnDropHandle;

use super::fixture::{DEADLINE, HOUR};

/// A Lease at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// When the watch showed it.
    pub(crate) at: Timestamp,
    name: String,
    holder: String,
    /// As the sharder judged it.
    pub(crate) state: String,
    pub(crate) acquired: Option<Timestamp>,
    renewed: Option<Timestamp>,
}

impl Seen {
    fn of(lease: Lease) -> Self {
        let state = lease.labels().get(LEASE_STATE).cloned().unwrap_or_default();
        let name = lease.name_any();
        let spec = lease.spec.unwrap_or_default();
        Self {
            at: Timestamp::now(),
            name,
            holder: spec.holder_identity.unwrap_or_default(),
            state,
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
        }
    }

    /// Whether the shard has it.
    pub(crate) fn is_held(&self) -> bool {
        self.holder == self.name
    }

    /// Whether the shard has it, and the sharder says so.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_held() && self.state == "ready"
    }

    /// Whether the clock by which it was renewed is wrong.
    pub(crate) fn is_by_wrong_clock(&self) -> bool {
        self.renewed.is_some_and(|renewed| renewed.duration_since(self.at).as_secs().abs() > HOUR / 2)
    }
}

pub(crate) struct History {
    seen: Arc<Mutex<Vec<Seen>>>,
    _watching: AbortOnDropHandle<()>,
}

impl History {
    pub(crate) fn start(client: &Client) -> Self {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
        let shown = watcher(leases, watcher::Config::default().labels(LEASE_RING)).default_backoff().applied_objects();
        let noted = seen.clone();
        let watching = shown.for_each(move |lease| {
            if let Ok(lease) = lease {
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(Seen::of(lease));
            }
            std::future::ready(())
        });
        Self { seen, _watching: AbortOnDropHandle::new(tokio::spawn(watching)) }
    }

    /// What was seen of a shard's Lease since then.
    pub(crate) fn of(&self, shard: &str, since: Timestamp) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|seen| seen.name == shard && seen.at >= since).cloned().collect()
    }

    /// Waits for a state of a shard's Lease, and returns the first like that since then.
    pub(crate) async fn until(&self, what: &str, shard: &str, since: Timestamp, is: impl Fn(&Seen) -> bool) -> Seen {
        let what = format!("{shard}: {what}");
        let found = eventually(&what, DEADLINE, || async {
            let seen = self.of(shard, since);
            seen.iter().find(|seen| is(seen)).cloned().ok_or_else(|| format!("{:?}", seen.last()))
        });
        found.await.unwrap()
    }

    /// Waits until the sharder has acquired a shard's Lease.
    pub(crate) async fn until_taken(&self, shard: &str, since: Timestamp) -> Seen {
        self.until("the sharder takes its Lease", shard, since, |seen| !seen.is_held()).await
    }

    /// Waits until the shard renews its Lease once more.
    pub(crate) async fn until_renewed(&self, shard: &str) -> Seen {
        let last = self.of(shard, Timestamp::MIN).pop().and_then(|seen| seen.renewed);
        let renewed = |seen: &Seen| seen.is_held() && seen.renewed != last;
        self.until("it renews its Lease", shard, Timestamp::now(), renewed).await
    }
}
