//! kopf's timers and daemons, which go on until kopf is told that their object is deleted.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use ringside_e2e::{
    checker::Event,
    eventually::eventually,
    system::{Settings, System},
    toolchain::Operator,
    workload::Workload,
};

use super::{DEADLINE, FORGOTTEN, assert_clean};

const OBJECTS: usize = 20;

/// How often a timer and a daemon are to be seen at work, five seconds apart: long enough for those of a former replica.
const BEATS: usize = 3;

const OLD: &str = "shard-0";
const NEW: &str = "shard-1";

/// What the operator of a shard says, a line each, also after it has ended.
struct Log(PathBuf);

impl Log {
    fn of(system: &System, shard: &str) -> Self {
        Self(system.shards().find(|one| one.name() == shard).unwrap().operator().log().to_owned())
    }

    fn count(&self, line: &str) -> usize {
        fs::read_to_string(&self.0).unwrap().lines().filter(|one| *one == line).count()
    }

    /// The beats of a timer and of a daemon.
    fn beats(&self, name: &str) -> [usize; 2] {
        ["timer", "daemon"].map(|what| self.count(&format!("{what} {name}")))
    }

    /// Waits until both have beaten so often, about each of these objects, since then.
    async fn until_beaten(&self, before: &BTreeMap<String, [usize; 2]>) {
        eventually("timers and daemons are at work", DEADLINE, || async {
            let is_late = |(name, before): &(&String, &[usize; 2])| {
                self.beats(name).iter().zip(*before).any(|(now, before)| now - before < BEATS)
            };
            let late: Vec<_> = before.iter().filter(is_late).map(|(name, _)| name).collect();
            if late.is_empty() { Ok(()) } else { Err(format!("not those of {late:?}")) }
        })
        .await
        .unwrap();
    }

    fn all_beats<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> BTreeMap<String, [usize; 2]> {
        names.into_iter().map(|name| (name.clone(), self.beats(name))).collect()
    }
}

/// Uid and name of the objects that are a shard's by now, with how many records there were before it was seen to have them.
fn moved_to(system: &System, shard: &str) -> BTreeMap<String, (String, usize)> {
    let mut moved = BTreeMap::new();
    for (index, record) in system.monitor().journal().into_iter().enumerate() {
        if let Event::Seen { uid, name, shard: owner, .. } = record.event {
            let name = name.rsplit('/').next().unwrap().to_owned();
            if owner.as_deref() == Some(shard) {
                moved.entry(uid).or_insert((name, index));
            } else {
                moved.remove(&uid);
            }
        }
    }
    moved
}

pub(crate) async fn ends_timers_and_daemons_of_what_left() {
    let settings =
        Settings { operator: Operator::Python, lease_duration: Duration::from_secs(30), ..Settings::default() };
    let mut system = System::start(settings).await.unwrap();
    system.start_sharding(1).await.unwrap();
    let workload = Workload::idle("site", OBJECTS);
    let names: Vec<_> = (0..OBJECTS).map(|index| workload.name(index)).collect();
    system.add_shard(OLD).await.unwrap();
    system.share_out(&workload, DEADLINE).await.unwrap();
    let old = Log::of(&system, OLD);
    old.until_beaten(&names.iter().map(|name| (name.clone(), [0, 0])).collect()).await;
    let stays = system.shards().next().unwrap().instance().to_owned();

    system.add_shard(NEW).await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    let moved = moved_to(&system, NEW);
    let left: Vec<_> = moved.values().map(|(name, _)| name.clone()).collect();
    assert!(left.len() > 2 && left.len() < OBJECTS, "{left:?}");
    let new = Log::of(&system, NEW);
    new.until_beaten(&new.all_beats(&left)).await;
    let later = system.monitor().journal();
    for (uid, (name, since)) in &moved {
        let by_old = later[*since..].iter().filter(|record| {
            matches!(&record.event, Event::Started { uid: of, instance, .. } if of == uid && *instance == stays)
        });
        assert_eq!(by_old.count(), 0, "{OLD} works on {name}, which left it");
        let told = ["saw DELETED", "deleted"].map(|what| old.count(&format!("{what} {name}")));
        assert_eq!(told, [1, 0], "{OLD} hears that {name} is gone, and tears nothing down");
        let daemons = ["begins", "ends"].map(|what| old.count(&format!("daemon {name} {what}")));
        assert_eq!(daemons, [1, 1], "the daemon of {name} in {OLD}");
    }
    // Handlers go on, in both.
    system.until_all_worked_on(&workload, DEADLINE).await.unwrap();

    // What comes back has timers and daemons again, one of each.
    let before = old.all_beats(&left);
    system.remove_shard(NEW).await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    old.until_beaten(&before).await;
    for name in &left {
        let daemons = ["begins", "ends"].map(|what| old.count(&format!("daemon {name} {what}")));
        assert_eq!(daemons, [2, 1], "the daemons of {name} in {OLD}");
    }
    let report = system.report(FORGOTTEN).await.unwrap();
    assert_clean(&report);
    let writes = system.judge_writes().await.unwrap();
    assert!(writes.is_clean() && writes.handovers.len() == left.len(), "{writes:#?}");

    // What is deleted indeed is torn down.
    workload.delete(&system.control_plane().client()).await.unwrap();
    for name in &names {
        assert_eq!((old.count(&format!("deleted {name}")), new.count(&format!("deleted {name}"))), (1, 0), "{name}");
    }
}
