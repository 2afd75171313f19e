//! Whether the controller's process has lived through a gap (DESIGN, "Shard membership").
//!
//! While the shard Lease is not held, and while no proxy runs, objects can move without a word to the controller: most
//! of its watches are cut. Most clients list again then and notice what is gone. One that keeps what it knew over a
//! list can't be repaired from outside: its process has to start again. So with each gap the token is handed out with
//! another generation. What comes with an older one is of a process that began before, and a probe that is meant for
//! the controller's container fails until one comes with the new one.

use std::{
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use ringside_runtime::admin::Check;
use tokio::time::Instant;

use crate::access::{AccessError, Handout};

/// Detects whether the controller's process ran through a gap, by the generation of its token. Cheap to clone.
#[derive(Clone)]
pub struct GapDetector(Arc<SharedGap>);

struct SharedGap {
    handout: Handout,
    check: Check,
    /// The generation that this proxy began with.
    first: u64,
    state: Mutex<GapState>,
    /// The generation of the process that is there, if that is the last one: then nothing need be looked at.
    settled: AtomicU64,
}

/// No generation comes so far.
const NONE: u64 = u64::MAX;

struct GapState {
    generation: u64,
    /// Whether a process has come with it.
    seen: bool,
    /// Since when it is known that one is there which began before.
    stale: Option<Instant>,
    /// Whether one has come that began before this proxy.
    older: bool,
}

impl fmt::Debug for GapDetector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gaps").field("generation", &self.0.state.lock().generation).finish_non_exhaustive()
    }
}

impl GapDetector {
    /// Creates the detector: there was no gap since the token was handed out with this generation.
    pub fn new(handout: Handout, generation: u64, check: Check) -> Self {
        check.pass();
        let state = Mutex::new(GapState { generation, seen: false, stale: None, older: false });
        Self(Arc::new(SharedGap { handout, check, first: generation, state, settled: AtomicU64::new(NONE) }))
    }

    /// A request came with a token of this generation. `is_older` is called, once, when that shows that the controller was there
    /// before this proxy; no other such request goes on before. With a newer token it may be there still: some read it again.
    pub fn seen(&self, generation: u64, is_older: impl FnOnce()) {
        if self.0.settled.load(Ordering::Acquire) == generation {
            return;
        }
        let state = &mut *self.0.state.lock();
        if generation == state.generation {
            state.seen = true;
            self.0.settled.store(generation, Ordering::Release);
            if state.stale.take().is_some() {
                tracing::info!("a controller that started after the gap has connected");
            }
            self.0.check.pass();
        } else if !state.seen && state.stale.is_none() {
            state.stale = Some(Instant::now());
            tracing::info!("the controller ran through a gap and may hold stale objects, unless it lists again");
            self.0
                .check
                .fail("the controller ran through a gap, and may keep objects that are another shard's: restart it");
            if generation < self.0.first && !mem::replace(&mut state.older, true) {
                is_older();
            }
        }
    }

    /// Notes that objects may move from now on without a word to the controller. This counts once the next token is
    /// handed out; the caller does not wait for that.
    pub fn begins(&self) {
        let next = {
            let state = self.0.state.lock();
            // Who comes next with the last one has read it after the gap before, or will.
            state.seen.then(|| state.generation.saturating_add(1))
        };
        if let Some(next) = next {
            let gaps = self.clone();
            self.0.handout.later(move |handout| gaps.handed_out(next, handout.write(next)));
        }
    }

    fn handed_out(&self, next: u64, written: Result<(), AccessError>) {
        if let Err(error) = written {
            tracing::error!(%error, "can't renew the token; a restart of the controller after this gap can't be detected");
            return;
        }
        let state = &mut *self.0.state.lock();
        // Else another gap began before this was written: for both it is the same.
        if state.generation < next {
            self.0.settled.store(NONE, Ordering::Release);
            *state = GapState { generation: next, seen: false, stale: None, older: state.older };
        }
    }

    /// For how long it is known that the controller runs since before a gap; zero if it does not.
    pub fn stale_for(&self) -> Duration {
        self.0.state.lock().stale.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{fs, sync::mpsc, thread};

    use ringside_runtime::admin::{Health, Probe};

    use super::*;

    fn gaps(generation: u64) -> (GapDetector, Health, tempfile::TempDir) {
        let (health, folder) = (Health::new(), tempfile::tempdir().unwrap());
        let handout = Handout::to(folder.path().to_owned());
        (GapDetector::new(handout, generation, health.check("gap", Probe::Controller)), health, folder)
    }

    /// Whether a request shows, for the first time, that the controller was there before.
    fn seen(gaps: &GapDetector, generation: u64) -> bool {
        let mut is_older = false;
        gaps.seen(generation, || is_older = true);
        is_older
    }

    /// A gap that is known by the time that this returns.
    fn begins(gaps: &GapDetector) {
        gaps.begins();
        gaps.0.handout.wait_until_written();
    }

    fn fails(health: &Health) -> bool {
        !health.failures(Probe::Controller).is_empty()
    }

    #[tokio::test(start_paused = true)]
    async fn who_ran_through_a_gap_is_to_be_restarted_and_who_began_after_it_is_not() {
        let (gaps, health, folder) = gaps(0);
        assert!(!seen(&gaps, 0));
        begins(&gaps);
        assert_eq!(fs::read_to_string(folder.path().join("token")).unwrap(), "secret.1");
        assert!(!fails(&health), "it is unknown whether it runs still");
        assert!(!seen(&gaps, 0), "this proxy has served it");
        assert!(fails(&health));
        tokio::time::sleep(Duration::from_secs(7)).await;
        seen(&gaps, 0);
        assert_eq!(gaps.stale_for(), Duration::from_secs(7));
        // However often the Lease is lost meanwhile.
        begins(&gaps);
        assert!(fails(&health));
        seen(&gaps, 1);
        assert!(!fails(&health));
        assert_eq!(gaps.stale_for(), Duration::ZERO);
        // Late words of the one before.
        seen(&gaps, 0);
        assert!(!fails(&health));
        begins(&gaps);
        seen(&gaps, 1);
        assert!(fails(&health), "the next gap");
        assert!(
            health.failures(Probe::Ready).is_empty() && health.failures(Probe::Live).is_empty(),
            "the proxy is well"
        );
    }

    #[test]
    fn after_a_restart_of_the_proxy_it_is_the_same() {
        let (gaps, health, _folder) = gaps(3);
        assert!(!fails(&health));
        assert!(seen(&gaps, 2), "another proxy has served it");
        assert!(fails(&health));
        assert!(!seen(&gaps, 2), "that was said");
        assert!(!seen(&gaps, 3));
        assert!(!fails(&health));
        begins(&gaps);
        assert!(!seen(&gaps, 2), "nor is it said after the next gap");
        assert!(fails(&health));
    }

    #[test]
    fn where_nothing_can_be_handed_out_nobody_is_restarted_for_ever() {
        let (gaps, health, folder) = gaps(0);
        seen(&gaps, 0);
        drop(folder);
        fs::write(gaps.0.handout.path(), "no folder").unwrap();
        begins(&gaps);
        seen(&gaps, 0);
        assert!(!fails(&health));
    }

    #[test]
    fn a_disk_that_stalls_holds_up_neither_the_lease_nor_requests() {
        let (gaps, _health, folder) = gaps(0);
        let stalled = gaps.0.handout.stall("token");
        let (done, goes_on) = mpsc::channel();
        let same = gaps.clone();
        thread::spawn(move || {
            seen(&same, 0);
            same.begins();
            seen(&same, 0);
            same.begins();
            done.send(same.stale_for())
        });
        let stale = goes_on.recv_timeout(Duration::from_secs(10)).expect("it waits for the disk");
        assert!(stale.is_zero(), "no controller can have another token yet");
        // What was being written is lost, and the disk is well again.
        let reader = fs::File::open(&stalled).unwrap();
        fs::remove_file(&stalled).unwrap();
        drop(reader);
        gaps.0.handout.wait_until_written();
        begins(&gaps);
        assert_eq!(fs::read_to_string(folder.path().join("token")).unwrap(), "secret.1");
    }
}
