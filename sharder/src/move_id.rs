//! The value of a drain label: unique to the move (CONTRACT, "Labels"). It says when the move began. The next leader
//! reads that, and so does the webhook: it alone sees some moves end.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::distr::{Alphanumeric, SampleString};

/// Random characters: moves of one millisecond differ.
const RANDOM: usize = 12;
/// An older drain has a user's own value, or a clock is wrong.
const OLDEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// A value for a move that begins at `now`: milliseconds since 1970 in hexadecimal, and random characters.
pub(crate) fn move_id(now: SystemTime) -> String {
    let millis = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    format!("{millis:x}-{}", Alphanumeric.sample_string(&mut rand::rng(), RANDOM))
}

/// The id alone, without what a shard promised behind it: what logs name a move by.
pub(crate) fn short(drain: &str) -> &str {
    drain.split('.').next().unwrap_or(drain)
}

/// How long ago a move began, as its drain label says; none when it is not one of ours. Clocks of replicas differ a little:
/// one that is about to begin begins now.
pub fn age(id: &str, now: SystemTime) -> Option<Duration> {
    // Behind it may be what its shard promised (`ringside_ring::grace`).
    let (millis, random) = id.split('.').next()?.split_once('-')?;
    let began = UNIX_EPOCH.checked_add(Duration::from_millis(u64::from_str_radix(millis, 16).ok()?))?;
    let age = match now.duration_since(began) {
        Ok(age) => age,
        Err(ahead) if ahead.duration() < Duration::from_secs(1) => Duration::ZERO,
        Err(_) => return None,
    };
    (random.len() == RANDOM && age < OLDEST).then_some(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_says_when_it_began_and_no_other_word_does() {
        let began = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let (id, other) = (move_id(began), move_id(began));
        assert!(id != other && id.len() <= 63, "{id} {other}");
        assert!(id.ends_with(|c: char| c.is_ascii_alphanumeric()), "{id} is no label value");
        assert_eq!(age(&id, began + Duration::from_millis(250)), Some(Duration::from_millis(250)));
        assert_eq!(age(&format!("{id}.1500ms"), began), Some(Duration::ZERO), "with what its shard promised");
        assert_eq!(age(&id, began - Duration::from_millis(9)), Some(Duration::ZERO), "of a clock that is ahead");
        assert_eq!(short(&format!("{id}.1500ms")), id);
        for now in [began - Duration::from_secs(60), began + OLDEST] {
            assert_eq!(age(&id, now), None);
        }
        for word in ["true", "", "18c-x", "zz-aaaaaaaaaaaa", "-aaaaaaaaaaaa"] {
            assert_eq!(age(word, began), None, "{word}");
        }
    }
}
