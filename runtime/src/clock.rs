//! The clock by which Leases are kept and judged.

use std::{sync::Arc, time::Duration};

use ringside_ring::Moment;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

/// A clock that neither steps nor stops.
pub trait Clock: Send + Sync + 'static {
    /// The time since this clock's origin.
    fn now(&self) -> Moment;
}

/// A clock that several parts of a process read.
pub type SharedClock = Arc<dyn Clock>;

#[cfg(not(target_os = "macos"))]
const BOOTTIME: ClockId = ClockId::Boottime;
/// It runs on there while the machine sleeps.
#[cfg(target_os = "macos")]
const BOOTTIME: ClockId = ClockId::Monotonic;

/// `CLOCK_BOOTTIME`: runs on while the machine is suspended, unlike `std::time::Instant`, whose
/// `CLOCK_MONOTONIC` stops. A shard that slept past its Lease must know that it did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boottime;

impl Clock for Boottime {
    fn now(&self) -> Moment {
        let now = clock_gettime(BOOTTIME);
        // The kernel counts both up from zero, so neither is ever negative.
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
        Moment::from_origin(Duration::new(seconds, nanos))
    }
}

/// Follows tokio's clock, so that a test which pauses that one pauses this one.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// A clock whose origin is now.
    pub fn start() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment::from_origin(self.origin.elapsed())
    }
}

/// Waits until `clock` shows `moment`.
///
/// Timers stop in suspend where the clock goes on, so a wait may end late (by a second at most), never early:
/// a caller that must not act after `moment` asks the clock again before acting.
pub async fn sleep_until(clock: &dyn Clock, moment: Moment) {
    loop {
        let left = moment.since(clock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK_AGAIN)).await;
    }
}

/// Waits until there is news on `told`, whose sender has to last, or until `clock` shows `at`, if there is such a moment.
pub async fn told_or_at<T>(told: &mut watch::Receiver<T>, clock: &dyn Clock, at: Option<Moment>) {
    let moment = async {
        match at {
            Some(moment) => sleep_until(clock, moment).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = told.changed() => {}
        () = moment => {}
    }
}

/// How often a wait asks the clock: what must end at a moment ends this long after it at most, also when the machine
/// slept through that moment.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// In a time namespace whose machine has been suspended for an hour, as far as this clock goes.
    #[test]
    #[allow(clippy::print_stdout, reason = "it is read there")]
    fn boottime_goes_on_while_the_machine_is_suspended() {
        const TELLS: &str = "RINGSIDE_TELLS_ITS_CLOCK";
        if std::env::var_os(TELLS).is_some() {
            println!("clock {}", Boottime.now().since(Moment::default()).as_secs());
            return;
        }
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--time", "--fork", "--boottime", "3600"]);
        command.arg(std::env::current_exe().expect("this test"));
        command.args(["--exact", "clock::tests::boottime_goes_on_while_the_machine_is_suspended", "--nocapture"]);
        let told = command.env(TELLS, "1").output().expect("unshare, of util-linux");
        let said = format!("{}{}", String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
        let there = said.split("clock ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        let here = Boottime.now().since(Moment::default()).as_secs();
        let ahead = there.unwrap_or_else(|| panic!("no time namespace: {said}")).saturating_sub(here);
        assert!((3_500..3_700).contains(&ahead), "ahead by {ahead} s");
    }

    #[test]
    fn boottime_only_goes_forward() {
        let before = Boottime.now();
        assert!(Boottime.now() >= before && before > Moment::default());
    }

    /// A clock that goes on by an hour while timers stand still.
    struct Suspended(std::sync::atomic::AtomicBool);

    impl Clock for Suspended {
        fn now(&self) -> Moment {
            let slept = self.0.swap(true, std::sync::atomic::Ordering::Relaxed);
            Moment::from_origin(Duration::from_secs(if slept { 3_600 } else { 0 }))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_notices_a_suspend() {
        let begun = tokio::time::Instant::now();
        sleep_until(&Suspended(false.into()), Moment::from_origin(Duration::from_secs(600))).await;
        assert!(begun.elapsed() <= LOOK_AGAIN + Duration::from_millis(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_moment() {
        let clock = TokioClock::start();
        let moment = clock.now() + Duration::from_secs(3_600);
        sleep_until(&clock, moment).await;
        assert!(clock.now() >= moment && clock.now().since(moment) < Duration::from_secs(1));
    }
}
