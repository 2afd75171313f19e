//! What became of all Leases of shards, one state after the other.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

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

/// A Lease at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// When the watch showed it, on the clock of this test.
    pub(crate) at: Instant,
    pub(crate) name: String,
    pub(crate) holder: String,
    /// As the sharder judged it.
    pub(crate) state: String,
    pub(crate) acquired: Option<Timestamp>,
    pub(crate) renewed: Option<Timestamp>,
}

impl Seen {
    fn of(lease: Lease) -> Self {
        let state = lease.labels().get(LEASE_STATE).cloned().unwrap_or_default();
        let name = lease.name_any();
        let spec = lease.spec.unwrap_or_default();
        Self {
            at: Instant::now(),
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
    pub(crate) fn of(&self, shard: &str, since: Instant) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|seen| seen.name == shard && seen.at >= since).cloned().collect()
    }

    fn last(&self, shard: &str) -> Option<Seen> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().rfind(|seen| seen.name == shard).cloned()
    }

    /// Waits for a state of a shard's Lease, and returns the first like that since then.
    pub(crate) async fn until(
        &self,
        what: &str,
        shard: &str,
        since: Instant,
        within: Duration,
        is: impl Fn(&Seen) -> bool,
    ) -> Seen {
        let what = format!("{shard}: {what}");
        let found = eventually(&what, within, || async {
            let seen = self.of(shard, since);
            seen.iter().find(|seen| is(seen)).cloned().ok_or_else(|| format!("{:?}", seen.last()))
        });
        found.await.unwrap()
    }

    /// Waits until the sharder has acquired a shard's Lease.
    pub(crate) async fn until_taken(&self, shard: &str, since: Instant, within: Duration) -> Seen {
        self.until("the sharder takes its Lease", shard, since, within, |seen| !seen.is_held()).await
    }

    /// Waits until the shard renews its Lease once more.
    pub(crate) async fn until_renewed(&self, shard: &str, within: Duration) -> Seen {
        let since = Instant::now();
        let last = self.last(shard).and_then(|seen| seen.renewed);
        self.until("it renews its Lease", shard, since, within, |seen| seen.is_held() && seen.renewed != last).await
    }
}
