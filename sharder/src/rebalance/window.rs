//! How many objects are asked for at once, and how soon one after the other.
//!
//! A drain is soon followed by more: the acknowledgement, the children, the assignment, and what the next shard writes. All of
//! that comes after the grace, so it can't be known while it is still to come how much of it the API server takes. So a pass
//! goes no faster than is of use: one drain at a time, and between two of them a pause that is long enough for what follows from
//! each, or as long as lets all of them be drained soon enough. Only where it is slower than that, as each takes longer than the
//! pause, or there are more than were counted, are there half as many more at a time after each round in which nothing that
//! can't wait had to. When more than one write had to wait there are half as many, and then the pause is twice as long. From
//! then on about as many are known to be too many: the pause is a tenth shorter after each round, then there is one more. A
//! longer step would be felt too late, as the drains of one round are let go of in the next.

use std::time::Duration;

use tokio::time::Instant;

/// A round, beyond the grace that the shards promise: what follows from a drain is felt by then. Those that promise none let
/// go when they like, and most at once.
const ROUND: Duration = Duration::from_millis(250);
/// What had to wait longer ago is not for the same reason.
const RECENT: Duration = Duration::from_secs(1);
/// What has to be written soon has waited too long after this, for a seat or behind others in the API server: a move is to
/// take no more than 50 ms beyond the grace, and its writes follow on each other, so each waits.
const PROMPT: Duration = Duration::from_millis(10);
/// Between two drains at most: what follows from one move, with its children and what the next shard writes, takes
/// a control plane of two cores up to 20 ms of both. After each sixty moves or so the API server collects its garbage, with all
/// the cores that it has, for some tenths of a second: what moves meanwhile is what takes longest, so it is to be little.
pub(super) const LONGEST: Duration = Duration::from_millis(40);
/// All those of one look together: else thousands of objects would wait for minutes, and that is worse for them than that some
/// take longer to move.
const TOGETHER: Duration = Duration::from_secs(20);
/// Shorter ones are none.
const SHORTEST: Duration = Duration::from_millis(2);

/// The window of one pass.
#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    pause: Duration,
    /// So little time for each drain is of use; none where nobody knows how many there are.
    goal: Duration,
    /// When the last drain begins, or did.
    last: Option<Instant>,
    /// When the round began; none before the first drain.
    began: Option<Instant>,
    round: Duration,
    /// Whether there were as many drains under way in it.
    filled: bool,
    /// When something that can't wait had to, last.
    waited: Option<Instant>,
    /// When there were fewer drains for that, last.
    cut: Option<Instant>,
}

/// How long it takes at least until the last of so many drains of one resource begins.
pub(crate) fn time_of_drains(drains: usize) -> Duration {
    times(Window::new(drains, true).pause(), drains.saturating_sub(1))
}

/// How a drain went, as far as it says how many more there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// What its shard promised.
    pub(super) grace: Duration,
    /// How long it counted as under way for its own sake: a pause that is no longer makes no difference.
    pub(super) own: Duration,
    /// How long what can't wait has waited since the last one.
    pub(super) waited: Duration,
    /// How many writes there may be at once.
    pub(super) seats: usize,
}

impl Window {
    /// For a pass that is to drain so many by its first look, and no more if that was the whole.
    pub(super) fn new(drains: usize, whole: bool) -> Self {
        let each = TOGETHER / u32::try_from(drains).unwrap_or(u32::MAX).max(1);
        let pause = each.clamp(SHORTEST, LONGEST);
        let goal = if whole { pause } else { Duration::ZERO };
        Self { size: 1, pause, goal, last: None, began: None, round: ROUND, filled: false, waited: None, cut: None }
    }

    /// Whether another drain may begin beside those under way.
    pub(super) fn has_room(&mut self, under_way: usize) -> bool {
        let has_room = under_way < self.size;
        self.filled |= !has_room;
        if has_room {
            self.began.get_or_insert_with(Instant::now);
        }
        has_room
    }

    /// How long one that begins now counts as under way, at least.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// How much later one begins that has room now: they begin evenly, also those that have room at the same time.
    pub(super) fn later(&mut self) -> Duration {
        let now = Instant::now();
        let next = self.last.map_or(now, |last| now.max(last + self.apart()));
        self.last = Some(next);
        next - now
    }

    fn apart(&self) -> Duration {
        self.pause / u32::try_from(self.size).unwrap_or(u32::MAX)
    }

    /// A drain is over.
    pub(super) fn ended(&mut self, Ended { grace, own, waited, seats }: Ended) {
        self.round = self.round.max(grace + ROUND);
        let (now, least, seats) = (Instant::now(), own.max(SHORTEST), seats.max(1));
        if waited > PROMPT {
            // One write is late now and then, whatever is under way; and what waits for one and the same thing says so one
            // after the other.
            let is_lone = !is_recent(self.waited.replace(now), now);
            if is_lone || is_recent(self.cut, now) {
                return;
            }
            self.cut = Some(now);
            match self.size {
                1 => self.pause = least.max(self.pause * 2),
                size => self.size = size / 2,
            }
        } else if self.began.is_some_and(|began| now - began < self.round) {
            return;
        } else if self.filled {
            self.faster(least);
        }
        if self.size > seats {
            // Fewer at a time, and as far apart.
            (self.size, self.pause) = (seats, times(self.apart(), seats));
        }
        self.pause = self.pause.min(times(LONGEST, self.size));
        (self.began, self.filled) = (Some(now), false);
    }

    /// No faster than is of use. Each takes `least`, whatever its pause.
    fn faster(&mut self, least: Duration) {
        let shorter = (self.pause * 9 / 10).max(self.time_for(self.size));
        if shorter > least {
            self.pause = shorter;
        } else {
            self.size += if self.cut.is_none() { self.size.div_ceil(2) } else { 1 };
            self.pause = self.time_for(self.size);
        }
    }

    /// What is of use where there are so many at a time.
    fn time_for(&self, size: usize) -> Duration {
        times(self.goal, size)
    }
}

fn times(each: Duration, size: usize) -> Duration {
    each * u32::try_from(size).unwrap_or(u32::MAX)
}

fn is_recent(then: Option<Instant>, now: Instant) -> bool {
    then.is_some_and(|then| now - then < RECENT)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const CALM: Ended = Ended { grace: Duration::ZERO, own: Duration::ZERO, waited: Duration::ZERO, seats: 8 };
    const LATE: Ended = Ended { waited: Duration::from_millis(20), ..CALM };

    /// So many rounds in which nothing waits.
    async fn rounds(window: &mut Window, rounds: usize) {
        for _ in 0..rounds {
            assert!(window.has_room(0) && !window.has_room(window.size));
            advance(window.round).await;
            window.ended(CALM);
        }
    }

    /// Of a pass of nobody knows how many, after rounds enough for the pause to be none.
    async fn without_pause() -> Window {
        let mut window = Window::new(1, false);
        while window.pause() > Duration::ZERO {
            assert_eq!(window.size, 1);
            rounds(&mut window, 1).await;
        }
        assert_eq!(window.size, 2);
        window
    }

    /// Two in a row, and a while after what was before.
    async fn late(window: &mut Window) {
        advance(RECENT).await;
        window.ended(LATE);
        window.ended(LATE);
    }

    #[tokio::test(start_paused = true)]
    async fn it_grows_by_half_while_it_is_filled_up_to_the_seats_and_by_one_after_something_had_to_wait() {
        let mut window = without_pause().await;
        for size in [3, 5] {
            rounds(&mut window, 1).await;
            assert_eq!(window.size, size);
        }
        advance(ROUND).await;
        window.ended(CALM);
        assert_eq!(window.size, 5, "nobody needed more");
        for size in [CALM.seats, CALM.seats] {
            rounds(&mut window, 1).await;
            assert_eq!(window.size, size);
        }
        late(&mut window).await;
        assert_eq!(window.size, CALM.seats / 2);
        rounds(&mut window, 3).await;
        assert_eq!(window.size, CALM.seats / 2 + 3);
        rounds(&mut window, 3).await;
        assert_eq!(window.size, CALM.seats);
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_is_longer_than_the_grace_and_begins_with_a_drain() {
        let mut window = Window::new(1, false);
        // A look at all objects takes its time.
        advance(ROUND).await;
        assert!(window.has_room(0) && !window.has_room(1));
        window.ended(CALM);
        assert_eq!(window.pause(), LONGEST);
        let mut window = without_pause().await;
        for _ in 0..10 {
            assert!(!window.has_room(2));
            advance(ROUND).await;
            window.ended(Ended { grace: ROUND * 10, ..CALM });
        }
        assert_eq!(window.size, 2, "nothing that follows has come yet");
        advance(ROUND).await;
        window.ended(CALM);
        assert_eq!(window.size, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn it_begins_with_pauses_that_shrink_with_each_round_and_grow_again_where_one_at_a_time_is_too_much() {
        let mut window = Window::new(1, false);
        assert_eq!(window.pause(), LONGEST);
        late(&mut window).await;
        assert_eq!((window.size, window.pause()), (1, LONGEST), "at most");
        rounds(&mut window, 7).await;
        let shorter = window.pause();
        assert!(shorter < LONGEST / 2, "{shorter:?}");
        window.ended(CALM);
        assert_eq!(window.pause(), shorter, "nothing that follows has come yet");
        let mut window = without_pause().await;
        for pause in [Duration::ZERO, SHORTEST, SHORTEST * 2] {
            late(&mut window).await;
            assert_eq!((window.size, window.pause()), (1, pause));
        }
    }

    #[test]
    fn of_very_many_the_first_do_not_make_the_last_wait_for_minutes() {
        let at_first = [0, 250, 1_000, 1_999].map(|drains| Window::new(drains, true).pause().as_millis());
        assert_eq!(at_first, [40, 40, 20, 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_no_faster_than_is_of_use() {
        // However much of them a write takes.
        for own in [0, 3, 25, 200].map(Duration::from_millis) {
            let each = |window: &Window| window.pause().max(own) / u32::try_from(window.size).unwrap();
            let mut window = Window::new(1_000, true);
            for _ in 0..40 {
                assert!(window.has_room(0) && !window.has_room(window.size));
                advance(window.round).await;
                window.ended(Ended { own, seats: 50, ..CALM });
                assert!(each(&window) >= Duration::from_millis(20), "{own:?}: {window:?}");
            }
            assert_eq!(each(&window), Duration::from_millis(20), "{own:?}: {window:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_no_slower_where_there_are_no_more_seats() {
        for (own, seats) in [(25, 1), (110, 5)].map(|(own, seats)| (Duration::from_millis(own), seats)) {
            let mut window = Window::new(1_000, true);
            for _ in 0..40 {
                assert!(window.has_room(0) && !window.has_room(window.size));
                advance(window.round).await;
                window.ended(Ended { own, seats, ..CALM });
                assert!(window.pause() <= own, "{window:?}");
            }
            assert_eq!(window.size, seats);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn once_something_had_to_wait_it_is_no_faster_and_not_slower_than_the_longest_pause() {
        let own = Duration::from_millis(600);
        let each = |window: &Window| window.pause().max(own) / u32::try_from(window.size).unwrap();
        for (drains, fewest) in [(10, 1), (1_000, 3)] {
            let mut window = Window::new(drains, true);
            for _ in 0..20 {
                assert!(window.has_room(0) && !window.has_room(window.size));
                advance(window.round).await;
                window.ended(Ended { own, ..CALM });
            }
            assert_eq!(window.size, CALM.seats);
            for _ in 0..5 {
                let before = each(&window);
                advance(RECENT).await;
                (0..2).for_each(|_| window.ended(Ended { own, ..LATE }));
                assert!(each(&window) >= before && window.apart() <= LONGEST, "{window:?}");
            }
            // As fast as before where there are fewer seats.
            let mut window = Window { size: 8, pause: 4 * LONGEST, ..Window::new(drains, true) };
            advance(RECENT).await;
            window.ended(Ended { seats: fewest, ..CALM });
            assert_eq!((window.size, window.apart()), (fewest, LONGEST / 2));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_something_had_to_wait_it_is_as_fast_as_is_of_use_again() {
        let mut window = Window::new(1_000, true);
        let goal = window.pause();
        late(&mut window).await;
        assert_eq!(window.pause(), 2 * goal);
        rounds(&mut window, 20).await;
        assert_eq!((window.size, window.pause()), (1, goal));
    }

    #[tokio::test(start_paused = true)]
    async fn one_write_that_is_late_says_nothing_and_many_that_wait_for_one_thing_say_it_once() {
        let mut window = without_pause().await;
        rounds(&mut window, 7).await;
        for _ in 0..3 {
            advance(RECENT).await;
            window.ended(LATE);
            assert_eq!(window.size, CALM.seats);
        }
        for _ in 0..9 {
            window.ended(LATE);
        }
        assert_eq!(window.size, CALM.seats / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn no_round_is_spent_on_a_pause_that_makes_no_difference() {
        let own = LONGEST * 19 / 20;
        let mut window = Window::new(1, false);
        assert!(window.has_room(0) && !window.has_room(1));
        advance(ROUND).await;
        window.ended(Ended { own, ..CALM });
        assert_eq!((window.size, window.pause()), (2, Duration::ZERO));
        advance(RECENT).await;
        for _ in 0..2 {
            window.ended(Ended { own, ..LATE });
        }
        assert_eq!((window.size, window.pause()), (1, Duration::ZERO));
        advance(RECENT).await;
        for _ in 0..2 {
            window.ended(Ended { own, ..LATE });
        }
        assert_eq!((window.size, window.pause()), (1, own));
    }
}
