//! Tells which tasks are not polled any more: one that waits for a lock blocks its thread, and never comes round again.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// How often a task shows that it is polled.
const BEAT: Duration = Duration::from_secs(5);
/// After how long without that a task counts as stalled: longer than any step of its takes.
pub const STALLED: Duration = Duration::from_secs(60);

struct Beat {
    name: String,
    last: Instant,
}

#[derive(Default)]
struct Inner {
    beats: Mutex<BTreeMap<u64, Beat>>,
    next: AtomicU64,
}

/// The tasks of a process that show that they are polled; clones share them.
#[derive(Clone, Default)]
pub struct Heartbeats(Arc<Inner>);

impl std::fmt::Debug for Heartbeats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.stalled()).finish()
    }
}

impl Heartbeats {
    /// Runs a task, and notes for as long as it runs when it was polled.
    pub async fn follow<T>(&self, name: impl Into<String>, task: impl Future<Output = T>) -> T {
        let guard = HeartbeatGuard { number: self.0.next.fetch_add(1, Ordering::Relaxed), heartbeats: self };
        self.0.beats.lock().insert(guard.number, Beat { name: name.into(), last: Instant::now() });
        let beats = async {
            loop {
                sleep(BEAT).await;
                guard.beat();
            }
        };
        tokio::select! {
            // A beat says that the task was polled just now.
            biased;
            ended = task => ended,
            never = beats => never,
        }
    }

    /// All these tasks, and for how long each was not polled.
    pub fn ages(&self) -> Vec<(String, Duration)> {
        self.0.beats.lock().values().map(|beat| (beat.name.clone(), beat.last.elapsed())).collect()
    }

    /// The tasks that were not polled for [`STALLED`], and for how long.
    pub fn stalled(&self) -> Vec<(String, Duration)> {
        let mut ages = self.ages();
        ages.retain(|(_, age)| *age >= STALLED);
        ages
    }
}

/// Forgets the task on drop.
struct HeartbeatGuard<'a> {
    number: u64,
    heartbeats: &'a Heartbeats,
}

impl HeartbeatGuard<'_> {
    fn beat(&self) {
        if let Some(beat) = self.heartbeats.0.beats.lock().get_mut(&self.number) {
            beat.last = Instant::now();
        }
    }
}

impl Drop for HeartbeatGuard<'_> {
    fn drop(&mut self) {
        self.heartbeats.0.beats.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::FutureExt;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn task_that_is_not_polled_is_stalled_until_it_is() {
        let heartbeats = Heartbeats::default();
        let mut task = Box::pin(heartbeats.follow("the ring 'x'", pending::<()>()));
        assert!(task.as_mut().now_or_never().is_none());
        advance(STALLED / 2).await;
        assert!(task.as_mut().now_or_never().is_none());
        advance(STALLED - BEAT).await;
        assert_eq!(heartbeats.stalled(), []);
        advance(BEAT).await;
        assert_eq!(heartbeats.stalled(), [("the ring 'x'".to_owned(), STALLED)]);
        assert!(task.as_mut().now_or_never().is_none());
        assert_eq!(heartbeats.stalled(), []);
        drop(task);
        advance(2 * STALLED).await;
        assert_eq!(heartbeats.stalled(), [], "what has ended is no task any more");
    }
}
