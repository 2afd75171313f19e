#![allow(clippy::unwrap_used)]

use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use ringside_ring::Grace;
use tokio::{sync::Semaphore, task::JoinSet, time::sleep};

use super::*;
use crate::{drains::Asking, target::Target};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An API server, and shards that release what they are asked for after their grace.
#[derive(Clone, Copy, Debug)]
struct Ground {
    /// Writes that it works on at once, and how long one takes.
    workers: usize,
    takes: Duration,
    grace: Duration,
    children: usize,
    objects: usize,
    /// Every how many objects one is kept by its shard.
    kept: usize,
    /// By how much a write may take longer than others that wait for nothing, by chance, in parts of what it takes.
    spread: f64,
}

/// Of two cores, with a child an object.
const SMALL: Ground = Ground {
    workers: 2,
    takes: millis(3),
    grace: Duration::ZERO,
    children: 1,
    objects: 700,
    kept: usize::MAX,
    spread: 0.0,
};

struct ApiServer {
    permits: Semaphore,
    workers: Semaphore,
    takes: Duration,
    spread: f64,
    random: Mutex<SmallRng>,
}

impl ApiServer {
    /// Returns how long it took.
    async fn write(&self) -> Duration {
        let start = Instant::now();
        let _permit = self.permits.acquire().await.unwrap();
        let _worker = self.workers.acquire().await.unwrap();
        let more = self.random.lock().random_range(0.0..=self.spread);
        sleep(self.takes.mul_f64(1.0 + more - self.spread / 2.0)).await;
        start.elapsed()
    }
}

#[derive(Debug)]
struct Told {
    took: Duration,
    /// From the drain to the next owner, beyond the grace, sorted.
    beyond: Vec<Duration>,
}

impl Told {
    fn percentile(&self, percent: usize) -> Duration {
        self.beyond[(self.beyond.len() - 1) * percent / 100]
    }
}

impl Ground {
    /// The shortest time in which the API server could carry out all writes.
    fn shortest(self) -> Duration {
        let writes = u32::try_from(self.objects * (3 + self.children)).unwrap();
        self.takes * writes / u32::try_from(self.workers).unwrap()
    }

    /// Moves all objects.
    fn wanted(self, resource: &GroupResource) -> Wanted {
        let Self { grace, children, objects, .. } = self;
        // Of four shards one has joined.
        Wanted { resource: resource.clone(), grace, children, objects: 4 * objects, worked_on_by: Some("a".into()) }
    }

    async fn play(self, moves: &Moves) -> Told {
        let (drains, resource) = (Drains::default(), GroupResource { group: String::new(), resource: "xs".into() });
        let (workers, permits) = (Semaphore::new(self.workers), Semaphore::new(64));
        let server = Arc::new(ApiServer {
            permits,
            workers,
            takes: self.takes,
            spread: self.spread,
            random: Mutex::new(SmallRng::seed_from_u64(1)),
        });
        let (start, wanted, mut ends) = (Instant::now(), self.wanted(&resource), JoinSet::new());
        let id = Grace::drain_value("m", Grace::of(self.grace));
        release_one(&drains, &resource, "a");
        moves.begin(&drains);
        let (mut objects, mut under_way) = (0..self.objects, FuturesUnordered::new());
        loop {
            let place = moves.place(&drains, &wanted, under_way.len());
            tokio::select! {
                biased;
                Some(drained) = under_way.next() => {
                    let (uid, is_kept): (String, bool) = drained;
                    if is_kept {
                        continue;
                    }
                    let (server, drains, drained) = (server.clone(), drains.clone(), Instant::now());
                    ends.spawn(async move {
                        sleep(self.grace).await;
                        server.write().await;
                        drains.released(&uid, None);
                        join_all((0..self.children).map(|_| server.write())).await;
                        server.write().await;
                        drains.forget(&uid);
                        drained.elapsed() - self.grace
                    });
                }
                () = place, if !objects.is_empty() => {
                    let before = drains.in_progress(KEPT);
                    assert!(before.between < moves.bound().max(if self.grace.is_zero() { 0 } else { FEW }), "{before:?} move, and {} may", moves.bound());
                    assert!(before.hidden < (wanted.objects / HIDDEN_PART).max(HIDDEN), "{before:?}");
                    let object = objects.next().unwrap();
                    let target = Target { uid: object.to_string(), ..Target::default() };
                    let (server, drains, resource, id) = (&server, &drains, &resource, &id);
                    under_way.push(async move {
                        let asking = drains.asking(resource, &target, "a", id);
                        let took = server.write().await;
                        asking.answered();
                        moves.written(resource, took);
                        (target.uid, (object + 1) % self.kept == 0)
                    });
                }
                else => break,
            }
        }
        let mut beyond = ends.join_all().await;
        beyond.sort_unstable();
        Told { took: start.elapsed(), beyond }
    }
}

/// The shard shows that it can release objects.
fn release_one(drains: &Drains, resource: &GroupResource, shard: &str) {
    drains.remember(resource, &Target { uid: "before".into(), ..Target::default() }, shard, "m");
    drains.released("before", None);
    drains.forget("before");
}

/// At most: how many times the shortest time, and half and 99 of 100 moves beyond the grace.
async fn within(ground: Ground, [times, half, most]: [f64; 3]) {
    let told = ground.play(&Moves::default()).await;
    let shortest = ground.shortest() + ground.grace;
    let alone = 3 * ground.takes;
    assert!(told.took <= shortest.mul_f64(times), "{ground:?}: {:?}, {times} times {shortest:?}", told.took);
    for (percent, most) in [(50, half), (99, most)] {
        let time = told.percentile(percent);
        assert!(time <= alone.mul_f64(most), "{ground:?}: {percent} of 100 took {time:?}, {most} times {alone:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn moves_are_as_fast_as_the_api_server_takes_them_and_wait_little() {
    within(SMALL, [1.1, 4.0, 8.0]).await;
    within(Ground { children: 5, ..SMALL }, [1.1, 4.0, 13.0]).await;
    within(Ground { takes: millis(30), ..SMALL }, [1.1, 4.0, 8.0]).await;
}

#[tokio::test(start_paused = true)]
async fn more_move_at_once_where_the_api_server_takes_more() {
    within(Ground { workers: 32, takes: millis(10), objects: 20_000, ..SMALL }, [1.1, 3.5, 5.0]).await;
    within(Ground { workers: 64, takes: millis(50), objects: 2_000, ..SMALL }, [1.5, 2.0, 2.5]).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_grace_ends_evenly_and_comes_faster_with_each() {
    let grace = millis(2_000);
    within(Ground { grace, ..SMALL }, [1.2, 2.0, 3.5]).await;
    within(Ground { grace, spread: 1.8, ..SMALL }, [1.4, 2.0, 12.0]).await;
    within(Ground { grace, objects: 10_000, ..SMALL }, [1.3, 1.5, 18.0]).await;
    within(Ground { grace, workers: 32, takes: millis(10), objects: 10_000, ..SMALL }, [2.1, 1.5, 5.0]).await;
    within(Ground { grace, takes: millis(30), ..SMALL }, [1.2, 3.0, 6.0]).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_keeps_its_objects_holds_up_the_others_for_a_while_only() {
    within(Ground { kept: 10, ..SMALL }, [10.0, 2.5, 6.5]).await;
    within(Ground { kept: 10, grace: millis(2_000), ..SMALL }, [1.3, 1.5, 3.0]).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_has_released_nothing_is_asked_for_few_objects_that_it_works_on() {
    let (moves, drains) = (Moves::default(), Drains::default());
    let xs = GroupResource { group: String::new(), resource: "xs".into() };
    let of = |shard: &str| Wanted {
        worked_on_by: Some(shard.into()),
        ..Ground { grace: millis(2_000), ..SMALL }.wanted(&xs)
    };
    let ask = async |wanted: &Wanted, uids: std::ops::Range<usize>| {
        for uid in uids {
            moves.place(&drains, wanted, 0).await;
            let target = Target { uid: uid.to_string(), ..Target::default() };
            let shard = wanted.worked_on_by.as_deref().unwrap_or("a");
            drains.asking(&xs, &target, shard, "m.2000ms").answered();
        }
    };
    let start = Instant::now();
    ask(&of("a"), 0..FIRST_BOUND).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    ask(&of("b"), 100..101).await;
    ask(&Wanted { worked_on_by: None, ..of("a") }, 101..102).await;
    assert_eq!(start.elapsed(), Duration::ZERO, "another shard, and what the shard does not work on");
    // Until it is late: then the caller holds its objects back.
    ask(&of("a"), 102..103).await;
    assert!(start.elapsed() >= millis(2_000) + KEPT && of("a").is_held_back(&drains), "{:?}", start.elapsed());

    let (drains, start) = (Drains::default(), Instant::now());
    drains.remember(&xs, &Target { uid: "0".into(), ..Target::default() }, "a", "m.2000ms");
    drains.released("0", None);
    for uid in 0..2 * FIRST_BOUND {
        moves.place(&drains, &of("a"), 0).await;
        drains.asking(&xs, &Target { uid: uid.to_string(), ..Target::default() }, "a", "m.2000ms").answered();
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "it can release objects");
}

#[tokio::test(start_paused = true)]
async fn drains_without_an_answer_keep_no_other_from_its_place() {
    let (moves, drains, start) = (Moves::default(), Drains::default(), Instant::now());
    let xs = GroupResource { group: String::new(), resource: "xs".into() };
    let ask = |id: &str| -> Vec<_> {
        let target = |uid: usize| Target { uid: uid.to_string(), ..Target::default() };
        (0..FIRST_BOUND).map(|uid| drains.asking(&xs, &target(uid), "a", id)).collect()
    };
    drop(ask("m.2000ms"));
    let wanted = Ground { grace: millis(2_000), ..SMALL }.wanted(&xs);
    timeout(Duration::from_secs(600), moves.place(&drains, &wanted, 0)).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    let again = ask("n.2000ms");
    assert_eq!(drains.unproven("a", FIRST_BOUND), FIRST_BOUND, "those under way count");
    again.into_iter().for_each(Asking::answered);
    assert_eq!(drains.unproven("a", FIRST_BOUND), FIRST_BOUND);
}

#[tokio::test(start_paused = true)]
async fn what_was_learned_is_kept_until_nothing_moves() {
    let (moves, drains) = (Moves::default(), Drains::default());
    let xs = GroupResource { group: String::new(), resource: "xs".into() };
    (0..2 * FIRST_BOUND).for_each(|_| moves.written(&xs, millis(3)));
    let asking = drains.asking(&xs, &Target { uid: "u".into(), ..Target::default() }, "a", "m");
    moves.begin(&drains);
    assert_eq!(moves.bound(), FIRST_BOUND + FIRST_BOUND / 2);
    asking.answered();
    drains.forget("u");
    moves.begin(&drains);
    assert_eq!(moves.bound(), FIRST_BOUND);
}

#[tokio::test(start_paused = true)]
async fn one_write_that_is_late_says_nothing_and_many_that_wait_for_one_thing_say_it_once() {
    let moves = Moves::default();
    let xs = GroupResource { group: String::new(), resource: "xs".into() };
    for write in 0..2 * FIRST_BOUND {
        moves.written(&xs, millis(if write % BLOCK < BLOCK / 2 { 3 } else { 300 }));
    }
    assert_eq!(moves.bound(), FIRST_BOUND + FIRST_BOUND / 2, "no more than half of them waited");
    for _ in 0..2 * BLOCK {
        moves.written(&xs, millis(300));
    }
    assert_eq!(moves.bound(), (FIRST_BOUND + FIRST_BOUND / 2) / 2);
    for _ in 0..BLOCK {
        moves.written(&xs, millis(300));
    }
    assert_eq!(moves.bound(), (FIRST_BOUND + FIRST_BOUND / 2) / 4, "after a round it is still too much");
}

/// Whatever else the API server does makes writes wait as well, and fewer moves would change nothing about that.
#[tokio::test(start_paused = true)]
async fn with_a_grace_25_drains_a_second_are_never_too_many() {
    let (moves, drains) = (Moves::default(), Drains::default());
    let xs = GroupResource { group: String::new(), resource: "xs".into() };
    moves.written(&xs, millis(3));
    for _ in 0..500 {
        moves.written(&xs, millis(300));
    }
    assert_eq!(moves.bound(), MIN_BOUND);
    let wanted = Ground { grace: millis(2_000), ..SMALL }.wanted(&xs);
    let start = Instant::now();
    for _ in 0..25 {
        moves.place(&drains, &wanted, 0).await;
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}
