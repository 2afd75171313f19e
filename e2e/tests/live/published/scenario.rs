//! From one unsharded leader to three shards, a fourth that joins and leaves, one that is killed, and deletions.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ringside_e2e::system::{Settings, System};
use tokio::{sync::Mutex, task::JoinHandle, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{
    cert_manager::CERT_MANAGER,
    controller::Controller,
    draft,
    external_secrets::EXTERNAL_SECRETS,
    objects::{Objects, name},
};

/// How many objects are created at once, first for one leader and then for three shards.
const OBJECTS: usize = 40;

/// Created before, so that nothing that is done once is measured.
const FIRST: usize = 3;

/// The time between two changes while shards come and go.
const CHANGES: Duration = Duration::from_secs(1);

/// Enough for a machine that runs other tests beside; what is promised is asserted from what was measured.
const DEADLINE: Duration = Duration::from_secs(120);

/// The leader of before sharding.
pub(super) const SOLO: &str = "solo-0";

/// A system, its objects, and to which change each was changed.
struct World {
    of: &'static Controller,
    system: System,
    objects: Objects,
    changes: Arc<Mutex<Vec<usize>>>,
}

/// How long so many objects took.
#[derive(Clone, Copy, Debug)]
struct Took(usize, Duration);

impl Took {
    /// How many times as quick another one is.
    fn times(self, other: Self) -> f64 {
        self.1.as_secs_f64() / f64::from(u32::try_from(self.0).unwrap()) * f64::from(u32::try_from(other.0).unwrap())
            / other.1.as_secs_f64()
    }
}

pub(super) async fn cert_manager_goes_to_shards() {
    goes_to_shards(&CERT_MANAGER).await;
}

pub(super) async fn external_secrets_goes_to_shards() {
    goes_to_shards(&EXTERNAL_SECRETS).await;
}

async fn goes_to_shards(of: &'static Controller) {
    let mut world = World::start(of).await;
    world.system.add_unsharded(SOLO).await.unwrap();
    world.create("the start of one leader", FIRST).await;
    let one = [world.create("creation, one leader", OBJECTS).await, world.change_all("a change, one leader").await];
    draft::is_the_ring_of(&world.system, of.deployment).await;
    world.roll_out().await;
    let three =
        [world.create("creation, three shards", OBJECTS).await, world.change_all("a change, three shards").await];
    world.come_and_go().await;
    let last = world.change_all("a last change").await;
    let changes = world.changes.lock().await.clone();
    world.objects.delete(changes.len() / 3, DEADLINE).await;

    let [create, change] = [one[0].times(three[0]), one[1].times(three[1])];
    println!(
        "creates {create:.2} times as quick, changes {change:.2} times: {one:?}, {three:?}; a last change of each: {last:?}"
    );
    world.judge(&changes).await;
}

impl World {
    async fn start(of: &'static Controller) -> Self {
        let settings = Settings {
            operator: of.operator,
            lease_duration: Duration::from_secs(15),
            drain_grace: Duration::from_secs(2),
            ..Settings::default()
        };
        let mut system = System::start(settings).await.unwrap();
        system.start_sharding(2).await.unwrap();
        let objects = Objects::of(system.control_plane().client(), of).await;
        Self { of, system, objects, changes: Arc::default() }
    }

    /// Waits until all objects are done with.
    async fn until_final(&self, what: &str) {
        let changes = self.changes.lock().await.clone();
        self.objects.until_final(what, &changes, DEADLINE).await;
    }

    async fn create(&self, what: &str, count: usize) -> Took {
        let begin = Instant::now();
        let there = {
            let mut changes = self.changes.lock().await;
            let there = changes.len();
            changes.resize(there + count, 0);
            there
        };
        self.objects.create(there..there + count).await;
        self.until_final(what).await;
        Took(count, begin.elapsed())
    }

    async fn change_all(&self, what: &str) -> Took {
        let begin = Instant::now();
        let changes = {
            let mut changes = self.changes.lock().await;
            changes.iter_mut().for_each(|change| *change += 1);
            changes.clone()
        };
        self.objects.change_all(&changes).await;
        self.until_final(what).await;
        Took(changes.len(), begin.elapsed())
    }

    /// Three shards take over from the leader, while objects change: after its end, where it knows no election.
    async fn roll_out(&mut self) {
        if !self.of.operator.elects() {
            self.system.remove_unsharded().await.unwrap();
        }
        for shard in ["shard-0", "shard-1", "shard-2"] {
            self.system.add_shard(shard).await.unwrap();
        }
        let churn = Churn::start(self);
        self.system.remove_unsharded().await.unwrap();
        self.system.until_balanced(DEADLINE).await.unwrap();
        churn.stop().await;
        self.until_final("the rollout").await;
    }

    /// A shard joins, leaves, another joins, one is killed; the last three while objects change.
    async fn come_and_go(&mut self) {
        self.system.add_shard("shard-3").await.unwrap();
        self.system.until_balanced(DEADLINE).await.unwrap();
        let churn = Churn::start(self);
        self.system.remove_shard("shard-3").await.unwrap();
        self.system.until_balanced(DEADLINE).await.unwrap();
        self.system.add_shard("shard-4").await.unwrap();
        self.system.until_balanced(DEADLINE).await.unwrap();
        self.system.kill_shard("shard-1").await.unwrap();
        self.system.until_balanced(DEADLINE).await.unwrap();
        churn.stop().await;
        self.until_final("all of it").await;
    }

    /// No shard wrote to what was another's, in the ring or beside it, and nothing was made more often than changes ask for.
    async fn judge(&self, changes: &[usize]) {
        let writes = self.system.judge_writes().await.unwrap();
        let outside = self.system.judge_outside(&[SOLO]).await.unwrap();
        println!(
            "{} writes of replicas in the ring, {} of shards beside it, {} moves that were acknowledged",
            writes.by_shards,
            outside.by_shards,
            writes.handovers.len()
        );
        for (what, found) in writes.faults() {
            let found: Vec<_> = found.iter().filter(|fault| !(self.of.is_its_own)(fault)).collect();
            assert!(found.is_empty(), "{what}: {found:#?}");
        }
        assert!(writes.by_shards > changes.len() && outside.by_shards > changes.len(), "{outside:#?}");
        assert!(outside.foreign.is_empty() && outside.twice.is_empty(), "{outside:#?}");
        assert_eq!(outside.made.len(), changes.len() + self.of.made_beside);
        let (mut asked, mut again) = (0, 0);
        for (index, change) in changes.iter().enumerate() {
            let made = &outside.made[&format!("default/{}", name(index))];
            let versions = change + 1;
            assert!(made.contains_key("secrets"), "{index}: {made:?}");
            asked += versions;
            again += (self.of.again)(made, versions);
        }
        println!("{again} of {asked} versions were worked on once more, by the replica that had the object");
        let most = self.of.may_again.map_or(0, |one_in| asked / one_in);
        assert!(again <= most, "{again} of {asked}: {outside:#?}");
    }
}

/// One change after the other, until it is stopped.
struct Churn {
    stop: CancellationToken,
    changing: JoinHandle<()>,
}

impl Churn {
    fn start(world: &World) -> Self {
        let stop = CancellationToken::new();
        let (stopped, objects, changes) = (stop.clone(), world.objects.clone(), Arc::clone(&world.changes));
        let changing = tokio::spawn(async move {
            let mut tick = tokio::time::interval(CHANGES);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for number in 0_usize.. {
                tokio::select! {
                    () = stopped.cancelled() => return,
                    _ = tick.tick() => {}
                }
                let mut changes = changes.lock().await;
                // Each in turn, none beside the one before.
                let index = number * 7 % changes.len();
                changes[index] += 1;
                objects.change(index, changes[index]).await;
            }
        });
        Self { stop, changing }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.changing.await.unwrap();
    }
}
