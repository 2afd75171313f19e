//! The gate: open while the Lease is held; when it closes, everything that passed it hears of it, and is cut.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ringside_ring::ShardName;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{body::BoxError, status::Refusal};

/// One uninterrupted time of holding the Lease.
#[derive(Clone)]
pub struct LeaseTerm {
    /// Who holds it.
    pub shard: ShardName,
    /// The selector of the shard's objects.
    pub selector: Arc<str>,
    /// Higher than that of any term before it, in this process.
    pub number: u64,
    /// When it began.
    pub began: Instant,
    /// Asks the clock, because a validity runs out even if no task runs to notice it.
    held: Arc<dyn Fn() -> bool + Send + Sync>,
    over: CancellationToken,
}

impl LeaseTerm {
    /// A term that lasts while `held` says so, and until the gate is closed.
    pub fn new(shard: ShardName, selector: Arc<str>, held: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self { shard, selector, number, began: Instant::now(), held: Arc::new(held), over: CancellationToken::new() }
    }

    /// Whether both are one and the same hold on the Lease.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.held, &other.held)
    }

    /// Whether it lasts still.
    pub fn is_on(&self) -> bool {
        (self.held)() && !self.over.is_cancelled()
    }

    /// Returns, with the error for a stream, when the term is over.
    pub fn over(&self) -> impl Future<Output = BoxError> + Send + 'static {
        let over = self.over.clone().cancelled_owned();
        async move {
            over.await;
            "this instance lost its shard Lease".into()
        }
    }
}

impl fmt::Debug for LeaseTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("shard", &self.shard).field("on", &self.is_on()).finish_non_exhaustive()
    }
}

/// The gate that every request for a resource passes.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<watch::Sender<Option<LeaseTerm>>>);

impl Gate {
    /// A closed one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets requests through, for this term.
    pub fn open(&self, term: LeaseTerm) {
        self.0.send_replace(Some(term));
    }

    /// Lets nothing through any more, and cuts what passed.
    pub fn close(&self) {
        if let Some(term) = self.0.send_replace(None) {
            term.over.cancel();
        }
    }

    /// Passes, if need be after waiting for up to `patience`.
    ///
    /// # Errors
    /// When the gate stays closed.
    pub async fn pass(&self, patience: Duration) -> Result<LeaseTerm, Refusal> {
        let mut terms = self.0.subscribe();
        let open = terms.wait_for(|term| term.as_ref().is_some_and(LeaseTerm::is_on));
        match timeout(patience, open).await {
            Ok(Ok(term)) => term.clone().ok_or(Refusal::NotAShard),
            _ => Err(Refusal::NotAShard),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::AtomicBool;

    use futures::FutureExt;

    use super::*;

    const PASS_TIMEOUT: Duration = Duration::from_secs(3);

    fn term(held: impl Fn() -> bool + Send + Sync + 'static) -> LeaseTerm {
        LeaseTerm::new("me".parse().unwrap(), "shard=me".into(), held)
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_early_waits_a_little() {
        let gate = Gate::new();
        assert!(gate.pass(PASS_TIMEOUT).await.is_err());
        let (passed, ()) = tokio::join!(gate.pass(PASS_TIMEOUT), async {
            tokio::time::sleep(PASS_TIMEOUT / 2).await;
            gate.open(term(|| true));
        });
        assert!(passed.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_validity_that_ran_out_unnoticed_lets_nothing_through() {
        let gate = Gate::new();
        let held = Arc::new(AtomicBool::new(true));
        let asked = held.clone();
        gate.open(term(move || asked.load(Ordering::Relaxed)));
        assert!(gate.pass(PASS_TIMEOUT).await.is_ok());
        held.store(false, Ordering::Relaxed);
        assert!(gate.pass(PASS_TIMEOUT).await.is_err());
    }

    #[tokio::test]
    async fn closing_cuts_what_passed_and_not_what_comes_after() {
        let gate = Gate::new();
        gate.open(term(|| true));
        let first = gate.pass(PASS_TIMEOUT).await.unwrap();
        assert!(first.over().now_or_never().is_none());
        gate.close();
        assert!(first.over().now_or_never().is_some());
        gate.open(term(|| true));
        let second = gate.pass(PASS_TIMEOUT).await.unwrap();
        assert!(second.over().now_or_never().is_none());
    }
}
