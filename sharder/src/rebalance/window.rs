//! How many objects are asked for at once.
//!
//! A drain is soon followed by more: the acknowledgement, the children, the assignment, and what the next shard writes. All of
//! that comes after the grace, so it can't be known while it is still to come how much of it the API server takes. As TCP
//! does with packets under way, a pass begins with one drain at a time, each with a pause for what follows from it; has one
//! more after each round in which nothing that can't wait had to; and half as many when something had.

use std::time::Duration;

use tokio::time::Instant;

/// A round, where the shards promise no longer grace: what follows from a drain is felt after that.
const ROUND: Duration = Duration::from_secs(1);
/// What has to be written soon has waited too long after this, for a seat or behind others in the API server: a move is to
/// take no more than 50 ms beyond the grace, and its writes follow on each other, so each waits.
const PROMPT: Duration = Duration::from_millis(10);

/// The window of one pass.
#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    /// When the round began.
    began: Instant,
    round: Duration,
    /// Whether there were as many drains under way in it.
    filled: bool,
}

impl Window {
    pub(super) fn new() -> Self {
        Self { size: 1, began: Instant::now(), round: ROUND, filled: false }
    }

    /// Whether another drain may begin beside those under way.
    pub(super) fn has_room(&mut self, under_way: usize) -> bool {
        let has_room = under_way < self.size;
        self.filled |= !has_room;
        has_room
    }

    /// A drain is over whose shard promised `grace`, and what can't wait has waited for `waited` since the last one; there
    /// are `seats` for all writes.
    pub(super) fn ended(&mut self, grace: Duration, waited: Duration, seats: usize) {
        self.round = self.round.max(grace);
        let fresh = self.began.elapsed() < self.round;
        let size = match self.size {
            size if waited > PROMPT => size / 2,
            _ if fresh => return,
            size if self.filled => size + 1,
            size => size,
        };
        *self = Self { size: size.clamp(1, seats.max(1)), began: Instant::now(), round: self.round, filled: false };
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
            advance(ROUND).await;
            window.ended(Duration::ZERO, Duration::ZERO, SEATS);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_grows_by_one_a_round_while_it_is_filled_up_to_the_seats_and_halves_when_something_waits() {
        let mut window = Window::new();
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
        let mut window = Window::new();
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
}
