//! A bound on open connections, and a narrower one on those whose clients have not proven yet that they may connect.
//!
//! Where either is reached, the oldest connection without proof is closed for the next one. So no client keeps another out by
//! many connections. Each has a moment to prove itself, in which it is not closed; who comes meanwhile waits.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

/// Enough for a TLS handshake and a request. A full queue of the system (1,024) passes in four seconds where 64 may wait.
const SPARED: Duration = Duration::from_millis(250);

/// Counts the connections of one listener.
#[derive(Debug)]
pub struct ConnectionLimit {
    most: usize,
    most_unproven: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    next: u64,
    /// Oldest first.
    unproven: VecDeque<Unproven>,
}

#[derive(Debug)]
struct Unproven {
    id: u64,
    since: Instant,
    closing: CancellationToken,
}

impl ConnectionLimit {
    /// Creates a limit of `most` connections, of which `most_unproven` without proof.
    pub fn new(most: usize, most_unproven: usize) -> Arc<Self> {
        Arc::new(Self { most, most_unproven, state: Mutex::default(), changed: Notify::new() })
    }

    /// Returns the permit of the next connection, once there is room for it.
    pub async fn admit(self: &Arc<Self>) -> ConnectionPermit {
        loop {
            let wait = match self.try_admit() {
                Ok(permit) => return permit,
                Err(wait) => wait,
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// # Errors
    /// After what time to try again, if none is closed before.
    fn try_admit(self: &Arc<Self>) -> Result<ConnectionPermit, Duration> {
        let state = &mut *self.state.lock();
        if state.open < self.most && state.unproven.len() < self.most_unproven {
            let (id, closing) = (state.next, CancellationToken::new());
            (state.open, state.next) = (state.open + 1, id + 1);
            state.unproven.push_back(Unproven { id, since: Instant::now(), closing: closing.clone() });
            return Ok(ConnectionPermit { limit: self.clone(), id, closing, proven: AtomicBool::new(false) });
        }
        let Some(oldest) = state.unproven.front() else { return Err(Duration::MAX) };
        let left = SPARED.saturating_sub(oldest.since.elapsed());
        if !left.is_zero() {
            return Err(left);
        }
        oldest.closing.cancel();
        // When it has ended, its permit tells.
        Err(Duration::MAX)
    }
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    id: u64,
    closing: CancellationToken,
    proven: AtomicBool,
}

impl ConnectionPermit {
    /// Notes that the client may connect: the connection is not closed for another one any more.
    pub fn prove(&self) {
        if !self.proven.swap(true, Ordering::Relaxed) {
            self.release(0);
        }
    }

    /// Whether it has.
    pub fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// Returns when the connection has to be closed for another one.
    pub async fn revoked(&self) {
        self.closing.cancelled().await;
    }

    fn release(&self, closed: usize) {
        let state = &mut *self.limit.state.lock();
        state.open -= closed;
        state.unproven.retain(|it| it.id != self.id);
        self.limit.changed.notify_one();
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.release(1);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn limit(most: usize, unproven: usize) -> (Arc<ConnectionLimit>, Vec<ConnectionPermit>) {
        let limit = ConnectionLimit::new(most, unproven);
        let permits = (0..unproven).map(|_| limit.admit().now_or_never().expect("there is room")).collect();
        (limit, permits)
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_without_proof_makes_room_and_has_its_time_before() {
        let (limit, mut permits) = limit(4, 2);
        let (begin, oldest) = (Instant::now(), permits.remove(0));
        let (next, ()) = tokio::join!(limit.admit(), async {
            oldest.revoked().await;
            drop(oldest);
        });
        assert_eq!(begin.elapsed().as_millis(), SPARED.as_millis());
        assert!(permits[0].revoked().now_or_never().is_none() && next.revoked().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_proof_makes_room_at_once_and_its_connection_is_never_closed_for_another() {
        let (limit, mut permits) = limit(4, 2);
        permits.iter().for_each(ConnectionPermit::prove);
        let more: Vec<_> = (0..2).map(|_| limit.admit().now_or_never().expect("there is room")).collect();
        more.iter().for_each(ConnectionPermit::prove);
        assert!(limit.admit().now_or_never().is_none(), "all places are taken");
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(limit.admit().now_or_never().is_none());
        assert!(permits.iter().chain(&more).all(|it| it.revoked().now_or_never().is_none()));
        permits.pop();
        assert!(limit.admit().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_places_are_taken_who_has_no_proof_makes_room() {
        let (limit, permits) = limit(2, 2);
        permits[0].prove();
        let (permit, ()) = tokio::join!(limit.admit(), async {
            permits[1].revoked().await;
            drop(permits);
        });
        assert!(!permit.is_proven());
    }
}
