//! What holds in any history of writes.

use std::collections::{HashMap, VecDeque};

use proptest::{collection::vec, prelude::*};
use tokio::runtime::Builder;

use super::*;

/// What happens next, to a write by its number among those that are there.
#[derive(Clone, Debug)]
enum Step {
    Ask { ring: usize, resource: usize, priority: usize },
    Cancel(usize),
    Answer(usize, Answer),
    Drop(usize),
    Slow(usize),
    Throttle { group: bool, lasts: u64 },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let ask = (0..3_usize, 0..2_usize, 0..PRIORITIES.len()).prop_map(|(ring, resource, priority)| Step::Ask {
        ring,
        resource,
        priority,
    });
    prop_oneof![
        40 => ask,
        2 => any::<usize>().prop_map(Step::Cancel),
        30 => any::<usize>().prop_map(|number| Step::Answer(number, Answer::Good)),
        1 => any::<usize>().prop_map(|number| Step::Answer(number, Answer::TimedOut)),
        2 => any::<usize>().prop_map(|number| Step::Answer(number, Answer::Refused)),
        2 => any::<usize>().prop_map(Step::Drop),
        5 => any::<usize>().prop_map(Step::Slow),
        1 => (any::<bool>(), 1..50_u64).prop_map(|(group, lasts)| Step::Throttle { group, lasts }),
        10 => (1..20_u64).prop_map(Step::Wait),
    ]
}

struct Asked {
    id: FlowId,
    priority: Priority,
    receiver: Receiver<Permit>,
}

/// The writes of a history as its test knows them.
struct History {
    limiter: Limiter,
    waiting: Vec<Asked>,
    under_way: Vec<Permit>,
    paused: [Option<Instant>; 2],
}

impl History {
    async fn run(steps: Vec<Step>) {
        let mut this =
            Self { limiter: limiter(), waiting: Vec::new(), under_way: Vec::new(), paused: Default::default() };
        for step in steps {
            this.take(step).await;
            this.check();
        }
        let (waiting, under_way) = (this.waiting, this.under_way);
        drop((waiting, under_way));
        this.limiter.serve();
        let flows = this.limiter.0.flows.lock();
        assert!(flows.used == 0 && flows.flows.is_empty(), "all permits were given back");
    }

    async fn take(&mut self, step: Step) {
        let of = |number: usize, all: usize| (all > 0).then(|| number % all);
        match step {
            Step::Ask { ring, resource, priority } => {
                let resource = [secrets(), extended()][resource].clone();
                let (id, priority) = (FlowId { ring: ring as u64, resource }, PRIORITIES[priority]);
                let ring = RingLimiter { limiter: self.limiter.clone(), ring: id.ring };
                let receiver = ask(&ring, priority, &id.resource);
                self.waiting.push(Asked { id, priority, receiver });
            }
            Step::Cancel(number) => {
                of(number, self.waiting.len()).map(|at| self.waiting.remove(at));
                self.limiter.serve();
            }
            Step::Answer(number, answer) => {
                if let Some(at) = of(number, self.under_way.len()) {
                    self.under_way.remove(at).answered(answer);
                }
            }
            Step::Drop(number) => {
                of(number, self.under_way.len()).map(|at| self.under_way.remove(at));
            }
            Step::Slow(number) => {
                if let Some(at) = of(number, self.under_way.len()) {
                    let permit = &mut self.under_way[at];
                    permit.began = Instant::now() - SLOW;
                    permit.until_slow().now_or_never();
                }
            }
            Step::Throttle { group, lasts } => {
                let lasts = Duration::from_millis(lasts);
                let group_of = extended().group;
                self.limiter.throttled(&Pause { lasts, group: group.then_some(group_of), sent: Instant::now() });
                let paused = &mut self.paused[usize::from(group)];
                *paused = (*paused).max(Some(Instant::now() + lasts));
            }
            Step::Wait(millis) => {
                sleep(Duration::from_millis(millis)).await;
                // The end of a pause in the same moment.
                tokio::task::yield_now().await;
            }
        }
    }

    fn is_paused(&self, id: &FlowId) -> bool {
        let now = Instant::now();
        let [all, extension] = self.paused.map(|until| until.is_some_and(|until| until > now));
        all || (extension && id.resource == extended())
    }

    fn check(&mut self) {
        let mut begun = Vec::new();
        for mut asked in std::mem::take(&mut self.waiting) {
            match asked.receiver.try_recv() {
                Ok(permit) => {
                    assert!(!self.is_paused(&permit.flow) || permit.began < Instant::now());
                    begun.push(permit.flow.clone());
                    self.under_way.push(permit);
                }
                Err(_) => self.waiting.push(asked),
            }
        }
        let mut flows: HashMap<&FlowId, (usize, usize)> = HashMap::new();
        for permit in &self.under_way {
            let flow = flows.entry(&permit.flow).or_default();
            *flow = (flow.0 + 1, flow.1 + usize::from(permit.is_slow));
        }
        let state = self.limiter.0.flows.lock();
        let (permits, used) = (state.limit.permits(), self.under_way.iter().filter(|permit| !permit.is_slow).count());
        assert!((2..=MAX_PERMITS).contains(&permits), "{permits}");
        assert_eq!(state.used, used);
        assert!(begun.is_empty() || used <= permits, "{used} of {permits}");
        for id in &begun {
            let (all, slow) = flows[id];
            assert!(slow == 0 || all <= MAX_WITH_SLOW, "{all} with {slow} slow");
        }
        for (id, (all, _)) in &flows {
            assert!(*all <= MAX_PERMITS, "{all} of {id:?}");
        }
        // No permit is left unused while a write could begin.
        for asked in &self.waiting {
            let (all, slow) = flows.get(&asked.id).copied().unwrap_or_default();
            let is_bounded = slow > 0 && all >= MAX_WITH_SLOW;
            let waits_for = used >= state.limit.of(asked.priority) || self.is_paused(&asked.id) || is_bounded;
            assert!(waits_for, "{:?} of {:?} waits while {used} of {permits} are used", asked.priority, asked.id);
        }
    }
}

fn on_paused_clock<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Never above the most or below the least, never more under way than may be, and all permits come back.
    #[test]
    fn limits_hold_in_any_history(steps in vec(step(), 1..400)) {
        on_paused_clock(History::run(steps));
    }

    /// While writes of every priority wait, each priority begins one in ten, and one in eight in the long run.
    #[test]
    fn no_priority_starves(limit in 2..=MAX_PERMITS, ends in vec(any::<usize>(), 400)) {
        on_paused_clock(async {
            let limiter = limiter();
            let ring = limiter.ring();
            while ring.limit() > limit {
                advance(SHORT).await;
                rounds(&ring, 1, Answer::TimedOut).await;
            }
            while ring.limit() < limit {
                rounds(&ring, 1, Answer::Good).await;
            }
            let mut under_way = fill(&ring);
            let ask_for = |priority| ask(&ring, priority, &secrets());
            let mut waiting = PRIORITIES.map(|priority| (0..600).map(|_| ask_for(priority)).collect::<VecDeque<_>>());
            let mut begun = Vec::new();
            for end in ends {
                drop(under_way.swap_remove(end % under_way.len()));
                for (priority, waiting) in PRIORITIES.into_iter().zip(&mut waiting) {
                    while let Some(Ok(permit)) = waiting.front_mut().map(Receiver::try_recv) {
                        waiting.pop_front();
                        under_way.push(permit);
                        begun.push(priority);
                    }
                }
            }
            for priority in PRIORITIES {
                let longest = begun.split(|one| *one == priority).map(<[_]>::len).max().unwrap();
                prop_assert!(longest < 10, "{:?} waited for {} others", priority, longest);
                let count = begun.iter().filter(|one| **one == priority).count();
                prop_assert!(count * 8 + 16 >= begun.len(), "{:?} had {} of {}", priority, count, begun.len());
            }
            Ok(())
        })?;
    }
}
