//! How many objects are asked for at once, and how soon one after the other.
//!
//! A drain is soon followed by more: the acknowledgement, the children, the assignment, and what the next shard writes. All of
//! that comes after the grace, so it can't be known while it is still to come how much of it the API server takes. As TCP
//! does with packets under way, a pass begins slowly: with one drain at a time, and a pause between them that is long enough for
//! what follows from each. The pause is shorter after each round in which nothing that can't wait had to, and then there is one
//! more drain at a time after each; when something had to wait there are half as many, and then the pause is twice as long.

use std::time::Duration;

use tokio::time::Instant;

/// A round, where the shards promise no longer grace: what follows from a drain is felt after that.
const ROUND: Duration = Duration::from_secs(1);
/// What has to be written soon has waited too long after this, for a seat or behind others in the API server: a move is to
/// take no more than 50 ms beyond the grace, and its writes follow on each other, so each waits.
const PROMPT: Duration = Duration::from_millis(10);
/// Between two drains at first, and at most: what follows from one move, with its children and what the next shard writes, takes
/// a control plane of two cores up to 20 ms of both.
pub(super) const LONGEST: Duration = Duration::from_millis(40);
/// Shorter ones are none.
const SHORTEST: Duration = Duration::from_millis(2);

/// The window of one pass.
#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    pause: Duration,
    /// When the round began.
    began: Instant,
    round: Duration,
    /// Whether there were as many drains under way in it.
    filled: bool,
}

impl Window {
    pub(super) fn new() -> Self {
        Self { size: 1, pause: LONGEST, began: Instant::now(), round: ROUND, filled: false }
    }

    /// Whether another drain may begin beside those under way.
    pub(super) fn has_room(&mut self, under_way: usize) -> bool {
        let has_room = under_way < self.size;
        self.filled |= !has_room;
        has_room
    }

    /// How long one that begins now counts as under way, at least.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// A drain is over whose shard promised `grace`, and what can't wait has waited for `waited` since the last one; there
    /// are `seats` for all writes.
    pub(super) fn ended(&mut self, grace: Duration, waited: Duration, seats: usize) {
        self.round = self.round.max(grace);
        let fresh = self.began.elapsed() < self.round;
        let (size, pause) = match (self.size, self.pause) {
            (1, pause) if waited > PROMPT => (1, (pause * 2).clamp(SHORTEST, LONGEST)),
            (size, pause) if waited > PROMPT => (size / 2, pause),
            _ if fresh => return,
            (size, pause) if !self.filled => (size, pause),
            (size, Duration::ZERO) => (size + 1, Duration::ZERO),
            (size, pause) => (size, Some(pause * 2 / 3).filter(|pause| *pause >= SHORTEST).unwrap_or_default()),
        };
        let size = size.clamp(1, seats.max(1));
        *self = Self { size, pause, began: Instant::now(), round: self.round, filled: false };
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SEATS: usize = 8;

    /// So many rounds in which nothing waits.
    async fn rounds(window: &mut Window, rounds: usize) {
        for _ in 0..rounds {
            assert!(!window.has_room(window.size));
            advance(window.round).await;
            window.ended(Duration::ZERO, Duration::ZERO, SEATS);
        }
    }

    /// After rounds enough for the pause to be none.
    async fn without_pause() -> Window {
        let mut window = Window::new();
        while window.pause() > Duration::ZERO {
            assert_eq!(window.size, 1);
            rounds(&mut window, 1).await;
        }
        window
    }

    #[tokio::test(start_paused = true)]
    async fn it_grows_by_one_a_round_while_it_is_filled_up_to_the_seats_and_halves_when_something_waits() {
        let mut window = without_pause().await;
        rounds(&mut window, 3).await;
        assert_eq!(window.size, 4);
        advance(ROUND).await;
        window.ended(Duration::ZERO, Duration::ZERO, SEATS);
        assert_eq!(window.size, 4, "nobody needed more");
        window.ended(Duration::ZERO, PROMPT * 2, SEATS);
        assert_eq!(window.size, 2);
        rounds(&mut window, 10).await;
        assert_eq!(window.size, SEATS);
        rounds(&mut window, 1).await;
        assert_eq!(window.size, SEATS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_is_as_long_as_the_grace() {
        let mut window = without_pause().await;
        window.round = ROUND * 10;
        for _ in 0..9 {
            assert!(!window.has_room(1));
            advance(ROUND).await;
            window.ended(ROUND * 10, Duration::ZERO, SEATS);
        }
        assert_eq!(window.size, 1, "nothing that follows has come yet");
        advance(ROUND).await;
        window.ended(ROUND * 10, Duration::ZERO, SEATS);
        assert_eq!(window.size, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn it_begins_with_pauses_that_shrink_with_each_round_and_grow_again_where_one_at_a_time_is_too_much() {
        let mut window = Window::new();
        assert_eq!(window.pause(), LONGEST);
        window.ended(Duration::ZERO, PROMPT * 2, SEATS);
        assert_eq!((window.size, window.pause()), (1, LONGEST), "at most");
        rounds(&mut window, 2).await;
        let shorter = window.pause();
        assert!(shorter < LONGEST / 2, "{shorter:?}");
        window.ended(Duration::ZERO, Duration::ZERO, SEATS);
        assert_eq!(window.pause(), shorter, "nothing that follows has come yet");
        let mut window = without_pause().await;
        rounds(&mut window, 1).await;
        for (size, pause) in [(1, Duration::ZERO), (1, SHORTEST), (1, SHORTEST * 2)] {
            window.ended(Duration::ZERO, PROMPT * 2, SEATS);
            assert_eq!((window.size, window.pause()), (size, pause));
        }
    }
}
