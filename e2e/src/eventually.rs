//! Waiting for a condition with a deadline: what tests use where a sleep would be a guess.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// How often a condition is looked at. Most are answered by a process on the same machine within a millisecond or
/// two; the interval is what a test loses at most after its condition came true.
const INTERVAL: Duration = Duration::from_millis(20);

/// How much slower than the one that deadlines were written on a machine may be. What comes true in time waits no longer for it.
const SLOWEST: u32 = 4;

/// The condition did not come true in time.
#[derive(Debug, thiserror::Error)]
#[error("{what}: not within {within:?}; last seen: {last}")]
pub struct TimedOut {
    what: String,
    within: Duration,
    last: String,
}

/// Calls `probe` until it answers `Ok`, for at most `within` on a quick machine, and four times that on a slow one. The last
/// `Err` says in the report what was seen instead.
pub async fn eventually<T, P, F>(what: &str, within: Duration, mut probe: P) -> Result<T, TimedOut>
where
    P: FnMut() -> F,
    F: Future<Output = Result<T, String>>,
{
    let (begin, within) = (Instant::now(), within * SLOWEST);
    let mut last = "nothing: the first look did not end".to_owned();
    loop {
        let left = within.saturating_sub(begin.elapsed());
        match tokio::time::timeout(left, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => last = seen,
            Err(_) => break,
        }
        if begin.elapsed() >= within {
            break;
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Err(TimedOut { what: what.to_owned(), within, last })
}

/// Asserts that it took at most so long. A case that was slower beside others is run once more alone.
///
/// # Panics
/// With a [`TimedOut`] where it took longer.
#[track_caller]
pub fn in_time(what: &str, took: Duration, within: Duration) {
    if took > within {
        let late = TimedOut { what: what.to_owned(), within, last: format!("it took {took:?}") };
        panic!("{late:?}");
    }
}

/// Asserts that enough was measured to judge by. A case that measured less beside others is run once more alone.
///
/// # Panics
/// With a [`TimedOut`] where there is less.
#[track_caller]
pub fn enough(what: &str, measured: usize, least: usize) {
    if measured < least {
        let within = Duration::ZERO;
        panic!("{:?}", TimedOut { what: what.to_owned(), within, last: format!("{measured}, {least} at least") });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn answers_the_first_success() {
        let mut looks = 0;
        let seen = eventually("three looks", Duration::from_secs(1), || {
            looks += 1;
            let answer = if looks == 3 { Ok(looks) } else { Err(format!("{looks} looks")) };
            async { answer }
        });
        assert_eq!(seen.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn says_what_was_seen_instead() {
        let never = eventually("the moon", Duration::from_millis(50), || async { Err::<(), _>("clouds".to_owned()) });
        let report = never.await.unwrap_err().to_string();
        assert!(report.contains("the moon") && report.contains("clouds"), "{report}");
    }

    #[tokio::test]
    async fn a_probe_that_hangs_does_not_outlive_the_deadline() {
        let hung = eventually("an answer", Duration::from_millis(50), std::future::pending::<Result<(), String>>);
        assert!(hung.await.is_err());
    }
}
