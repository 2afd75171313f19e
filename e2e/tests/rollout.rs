//! From one leader to shards, and back, as a rolling update does it: under load, with old and new replicas there at once. The
//! election keeps them apart, as the ring holds the real lock.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout, reason = "what was measured is part of the result")]

use std::time::Duration;

use ringside_e2e::{
    checker::{Checker, Event, Outcome, Record},
    eventually::eventually,
    system::{Settings, System},
    workload::Workload,
};

const OBJECTS: usize = 100;
const DEADLINE: Duration = Duration::from_secs(90);
/// Controllers wait for 15 s for a leader that is gone without a word, and try every two seconds or so; then they read
/// everything.
const PAUSE: Duration = Duration::from_secs(15 + 2 + 8);

/// So many reconciles take longer than a controller waits between two tries to lead, several times.
const BESIDE: usize = 200;

fn workload() -> Workload {
    Workload {
        work: Duration::from_millis(50),
        interval: Duration::from_millis(50),
        seed: 4,
        ..Workload::idle("site", OBJECTS)
    }
}

/// Waits until nothing that was changed is still to be worked on.
async fn until_worked_on(system: &System) {
    let worked = eventually("all changes are worked on", DEADLINE, || async {
        system.check().map_err(|error| error.to_string())?;
        match system.monitor().judge(Checker::pending) {
            0 => Ok(()),
            pending => Err(format!("{pending} are not")),
        }
    });
    worked.await.unwrap();
}

/// The longest time since then in which nobody worked on anything.
fn longest_pause(system: &System, since: Duration) -> Duration {
    let journal = system.monitor().journal();
    let done = journal.iter().filter(|record| matches!(record.event, Event::Ended { outcome: Outcome::Done, .. }));
    let times: Vec<_> = done.map(|record| record.at).filter(|at| *at >= since).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
}

/// Waits until instances whose names begin so have come to the end of so many reconciles since then.
async fn until_works(system: &System, name: &str, since: Duration, reconciles: usize) {
    let what = format!("{name} works");
    let works = eventually(&what, DEADLINE, || async {
        system.check().map_err(|error| error.to_string())?;
        let of = |instance: &str| instance.starts_with(name);
        let journal = system.monitor().journal();
        let done = journal.iter().filter(|record| record.at >= since).filter(
            |record| matches!(&record.event, Event::Ended { outcome: Outcome::Done, instance, .. } if of(instance)),
        );
        let done = done.count();
        if done >= reconciles { Ok(()) } else { Err(format!("{done} reconciles")) }
    });
    works.await.unwrap();
}

/// That no instance of one name was at work when one of the other was.
fn assert_one_after_another(system: &System, first: &str, then: &str, since: Duration) {
    let journal = system.monitor().journal();
    let of = |record: &Record, name: &str| match &record.event {
        Event::Started { instance, .. } | Event::Ended { instance, .. } => instance.starts_with(name),
        _ => false,
    };
    let last = journal.iter().rfind(|record| of(record, first)).unwrap().at;
    let next = journal.iter().find(|record| record.at >= since && of(record, then)).unwrap().at;
    assert!(last < next, "{then} worked from {next:?} on, and {first} until {last:?}");
}

#[tokio::test]
async fn from_one_leader_to_shards_and_back_nobody_works_beside_another() {
    let mut system = System::start(Settings::default()).await.unwrap();
    system.monitor().keep_journal();
    // The ring is there before; without shards it does nothing.
    system.start_sharding(1).await.unwrap();
    // The one that leads is replaced last.
    system.add_unsharded("old-0").await.unwrap();
    let client = system.control_plane().client();
    workload().create(&client).await.unwrap();
    until_worked_on(&system).await;
    system.add_unsharded("old-1").await.unwrap();
    let updates = workload().start_updates(&client);

    let begun = system.monitor().now();
    system.add_shard("shard-0").await.unwrap();
    system.remove_unsharded_named("old-1").await.unwrap();
    system.add_shard("shard-1").await.unwrap();
    // Long enough for whoever is about to lead.
    until_works(&system, "old-", begun, BESIDE).await;
    system.remove_unsharded_named("old-0").await.unwrap();
    for shard in ["shard-0", "shard-1"] {
        until_works(&system, shard, begun, 1).await;
    }
    system.until_balanced(DEADLINE).await.unwrap();
    let there = longest_pause(&system, begun);
    assert_one_after_another(&system, "old-", "shard-", begun);

    let begun = system.monitor().now();
    system.add_unsharded("new-0").await.unwrap();
    system.remove_shard("shard-0").await.unwrap();
    system.add_unsharded("new-1").await.unwrap();
    until_works(&system, "shard-", begun, BESIDE).await;
    system.remove_shard("shard-1").await.unwrap();
    until_works(&system, "new-", begun, 1).await;
    let back = longest_pause(&system, begun);
    assert_one_after_another(&system, "shard-", "new-", begun);
    updates.stop().await.unwrap();
    until_worked_on(&system).await;

    println!("nobody worked for {there:?} on the way to shards, and for {back:?} on the way back");
    let report = system.monitor().report(DEADLINE);
    assert!(report.overlaps.is_empty() && report.second_creates == 0, "{report:#?} {:?}", system.keep_logs());
    assert!(there < PAUSE && back < PAUSE, "{there:?}, {back:?}");
}
