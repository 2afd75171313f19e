use std::collections::HashSet;

use futures::FutureExt as _;
use proptest::{prelude::*, sample::select};
use tokio::time::advance;

use super::*;

/// The next key, if one is ready.
fn ready(queue: &Queue) -> Option<Work> {
    queue.next().now_or_never()
}

const REFUSED: Outcome = Outcome::Refused { version: 1, rest: Duration::from_secs(300) };

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn a_key_is_small() {
    assert!((size_of::<Slot>(), size_of::<Entry>()) <= (8, 16));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_named_often_comes_once_and_by_the_most_urgent() {
    let (queue, key) = (Queue::default(), Slot(1));
    for priority in [Priority::Repair, Priority::Between, Priority::Rebalance] {
        queue.add(key, priority);
    }
    let work = ready(&queue).expect("ready");
    assert_eq!((work.key(), work.priority(), queue.len()), (key, Priority::Between, 1));
    work.done(Outcome::Ok);
    assert!(ready(&queue).is_none() && queue.len() == 0);
}

#[tokio::test(start_paused = true)]
async fn the_earliest_moment_counts_whoever_comes_first() {
    for delays in [[100, 1_000], [1_000, 100]] {
        let (queue, key) = (Queue::default(), Slot(1));
        for delay in delays {
            queue.add_after(key, Priority::Repair, millis(delay));
        }
        advance(millis(99)).await;
        assert!(ready(&queue).is_none());
        advance(millis(1)).await;
        ready(&queue).expect("the earlier").done(Outcome::Ok);
        advance(millis(10_000)).await;
        assert!(ready(&queue).is_none(), "the later was for the same");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_does_not_wait_for_a_later_moment() {
    let (queue, key) = (Queue::default(), Slot(1));
    queue.add_after(key, Priority::Repair, millis(1_000));
    queue.add(key, Priority::Between);
    queue.add_after(key, Priority::Repair, millis(1_000));
    ready(&queue).expect("at once").done(Outcome::Ok);
    advance(millis(2_000)).await;
    assert!(ready(&queue).is_none());
    queue.add_after(key, Priority::Repair, millis(1_000));
    advance(millis(1_000)).await;
    assert!(ready(&queue).is_some(), "one that came may wait again");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_does_not_hold_up_others() {
    let (queue, slow, fast) = (Queue::default(), Slot(1), Slot(2));
    queue.add_after(slow, Priority::Between, millis(1_000));
    queue.add(fast, Priority::Repair);
    assert_eq!(queue.next().await.key(), fast);
}

#[tokio::test(start_paused = true)]
async fn a_key_comes_again_when_it_was_named_while_it_was_worked_on() {
    let (queue, key) = (Queue::default(), Slot(1));
    queue.add(key, Priority::Repair);
    let work = queue.next().await;
    queue.add_after(key, Priority::Repair, millis(500));
    queue.add(key, Priority::Between);
    assert!(ready(&queue).is_none(), "it is worked on");
    work.done(Outcome::Ok);
    let again = ready(&queue).expect("named meanwhile");
    assert_eq!(again.priority(), Priority::Between);
    queue.add_after(key, Priority::Repair, millis(500));
    again.done(Outcome::Ok);
    assert!(ready(&queue).is_none());
    advance(millis(500)).await;
    ready(&queue).expect("after its moment").done(Outcome::Ok);
    assert_eq!(queue.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_failed_waits_out_its_pause_whoever_names_it_until_it_is_another() {
    let (queue, key) = (Queue::default(), Slot(1));
    queue.add(key, Priority::Repair);
    queue.next().await.done(Outcome::Again);
    queue.add(key, Priority::Between);
    advance(millis(199)).await;
    assert!(ready(&queue).is_none());
    advance(millis(21)).await;
    let work = ready(&queue).expect("after a fifth of a second");
    assert_eq!(work.priority(), Priority::Between);
    // A task that is dropped loses nothing.
    drop(work);
    advance(millis(420)).await;
    ready(&queue).expect("twice as long").done(REFUSED);
    advance(millis(820)).await;
    let work = ready(&queue).expect("twice as long again");
    assert_eq!(work.priority(), Priority::Repair, "it holds up no other");
    work.done(REFUSED);
    advance(millis(299_000)).await;
    assert!(ready(&queue).is_none(), "the same version");
    queue.forgive(key);
    ready(&queue).expect("another version").done(Outcome::Again);
    advance(millis(220)).await;
    assert!(ready(&queue).is_some(), "from the start");
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_woken_by_what_comes_and_by_time() {
    let queue = Queue::default();
    let wait = || {
        tokio::spawn({
            let queue = queue.clone();
            async move {
                let work = queue.next().await;
                let key = work.key();
                work.done(Outcome::Ok);
                key
            }
        })
    };
    let waiting = [wait(), wait(), wait()];
    tokio::task::yield_now().await;
    queue.add_after(Slot(1), Priority::Repair, millis(5_000));
    queue.add_after(Slot(2), Priority::Repair, millis(1_000));
    queue.add(Slot(3), Priority::Repair);
    let mut keys = HashSet::new();
    for waiting in waiting {
        keys.insert(waiting.await.expect("no panic"));
    }
    assert_eq!(keys, [1, 2, 3].map(Slot).into());
}

#[tokio::test(start_paused = true)]
async fn each_class_has_an_eighth_and_the_first_has_the_rest() {
    let queue = Queue::default();
    for (class, priority) in (0..).zip(PRIORITIES) {
        (0..100).for_each(|slot| queue.add(Slot(100 * class + slot), priority));
    }
    let mut picked = Vec::new();
    for _ in 0..80 {
        let work = ready(&queue).expect("enough");
        picked.push(work.priority());
        work.done(Outcome::Ok);
    }
    for eight in picked.windows(8) {
        let of = |priority| eight.iter().filter(|it| **it == priority).count();
        assert_eq!(PRIORITIES.map(of), [5, 1, 1, 1]);
    }
}

/// As where two Pods end at once, one a moment after the other.
#[tokio::test(start_paused = true)]
async fn of_many_moves_the_first_named_do_not_hold_up_the_rest() {
    let queue = Queue::default();
    (0..1_000).for_each(|key| queue.add(Slot(key), Priority::Rebalance));
    let mut picked = Vec::new();
    for _ in 0..1_000 {
        picked.push(queue.next().await);
    }
    // One in 10^60 runs takes none of them.
    assert!(picked[..200].iter().any(|work| work.key().0 >= 500), "the last half waits for the first");
    let all: HashSet<_> = picked.iter().map(|work| work.key().0).collect();
    assert_eq!(all.len(), 1_000, "each comes once");
}

#[tokio::test(start_paused = true)]
async fn timers_that_nothing_waits_for_take_no_room() {
    let (queue, key) = (Queue::default(), Slot(1));
    for _ in 0..1_000 {
        queue.add_after(key, Priority::Repair, Duration::from_secs(300));
        queue.add(key, Priority::Repair);
        queue.next().await.done(Outcome::Ok);
    }
    assert!(queue.state.lock().timers.len() <= 66);
}

/// What the queue is told and asked.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u32, Priority),
    AddAfter(u32, Priority, u64),
    Forgive(u32),
    Next,
    Done(usize, Outcome),
    Pass(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let (key, priority) = (0_u32..5, select(PRIORITIES.to_vec()));
    let outcome = select(vec![Outcome::Ok, Outcome::Ok, Outcome::Again, REFUSED]);
    prop_oneof![
        3 => (key.clone(), priority.clone()).prop_map(|(key, priority)| Step::Add(key, priority)),
        3 => (key.clone(), priority, 0_u64..40).prop_map(|(key, at, steps)| Step::AddAfter(key, at, 20 * steps)),
        1 => key.prop_map(Step::Forgive),
        4 => Just(Step::Next),
        3 => (0_usize..5, outcome).prop_map(|(one, outcome)| Step::Done(one, outcome)),
        3 => (0_u64..40).prop_map(|steps| Step::Pass(20 * steps)),
    ]
}

/// A key in the naive queue, which goes through all keys each time.
#[derive(Clone, Copy, Debug, Default)]
struct Naive {
    running: bool,
    /// How urgent it is, and from when on it may come.
    wish: Option<(Priority, u64)>,
    /// Until when it pauses.
    pause: u64,
    failures: u32,
    refused: bool,
}

impl Naive {
    fn add(&mut self, priority: Priority, at: u64) {
        self.wish = Some(self.wish.map_or((priority, at), |(before, from)| (before.min(priority), from.min(at))));
    }
}

proptest! {
    /// No key is worked on twice at once, nothing that was named is lost, and nothing comes before its moment.
    #[test]
    fn the_queue_is_like_one_that_goes_through_all_keys(steps in proptest::collection::vec(any_step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let (queue, mut naive, mut now) = (Queue::default(), [Naive::default(); 5], 0);
            let mut running: Vec<Work> = Vec::new();
            let at = |work: &Work| work.key().0 as usize;
            for step in steps {
                match step {
                    Step::Add(key, priority) => {
                        queue.add(Slot(key), priority);
                        naive[key as usize].add(priority, now);
                    }
                    Step::AddAfter(key, priority, delay) => {
                        queue.add_after(Slot(key), priority, millis(delay));
                        naive[key as usize].add(priority, now + delay);
                    }
                    Step::Forgive(key) => {
                        queue.forgive(Slot(key));
                        naive[key as usize] = Naive { pause: 0, failures: 0, refused: false, ..naive[key as usize] };
                    }
                    Step::Next => {
                        let may_come = |one: &Naive| {
                            !one.running && one.pause <= now && one.wish.is_some_and(|(_, from)| from <= now)
                        };
                        let expected = naive.iter().filter(|one| may_come(one)).count();
                        let Some(work) = ready(&queue) else {
                            prop_assert_eq!(expected, 0, "{:?} at {}", naive, now);
                            continue;
                        };
                        let one = &mut naive[at(&work)];
                        prop_assert!(may_come(one), "{:?} at {}", one, now);
                        one.running = true;
                        one.wish = None;
                        running.push(work);
                    }
                    Step::Done(index, outcome) if !running.is_empty() => {
                        let work = running.remove(index % running.len());
                        let (one, priority) = (&mut naive[at(&work)], work.priority());
                        work.done(outcome);
                        one.running = false;
                        if outcome == Outcome::Ok {
                            (one.failures, one.refused) = (0, false);
                            continue;
                        }
                        let is_refused = outcome != Outcome::Again;
                        let pause = if is_refused && one.refused { 300_000 } else { (200 << one.failures).min(60_000) };
                        (one.failures, one.refused, one.pause) = ((one.failures + 1).min(9), is_refused, now + pause);
                        one.add(priority, now);
                    }
                    Step::Done(..) => {}
                    Step::Pass(time) => {
                        advance(millis(time)).await;
                        now += time;
                    }
                }
                let known = naive.iter().filter(|one| one.running || one.wish.is_some()).count();
                prop_assert_eq!(queue.len(), known);
            }
            // All that was named comes in the end.
            running.into_iter().for_each(|work| work.done(Outcome::Ok));
            advance(Duration::from_secs(600)).await;
            while let Some(work) = ready(&queue) {
                let one = &mut naive[at(&work)];
                prop_assert!(one.wish.take().is_some(), "{:?}", one);
                work.done(Outcome::Ok);
            }
            prop_assert!(naive.iter().all(|one| one.wish.is_none()) && queue.len() == 0, "{:?}", naive);
            Ok(())
        })?;
    }
}
