//! Wall clocks that are wrong by an hour, and step, of shards and of the sharder.

use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use ringside_e2e::wall_clock::WallClock;
use ringside_ring::RingName;
use tokio::time::sleep;

use super::fixture::{DEADLINE, Fixture, HOUR, SHORT};

/// Longer than a shard that is taken for dead has before that.
const STEPPING: u32 = 12;
const STEP: Duration = Duration::from_secs(1);

/// What the sharder needs beside the time that it gives a shard.
const SLACK: Duration = Duration::from_secs(3);
/// What a test sees a moment late.
const MOMENT: Duration = Duration::from_millis(500);

/// By how many seconds a clock is wrong, step by step.
type Shift = fn(u32) -> i64;

/// A shard with a proxy whose clock does as the third argument says at each step: it stays one all the time.
async fn keeps(fixture: &Fixture, ring: &RingName, name: &str, shift: Shift) {
    let clock = WallClock::create(fixture.folder.path(), name).unwrap();
    clock.shift(shift(0)).unwrap();
    let url = fixture.system.control_plane().url();
    let shard = fixture.shard(ring, name, SHORT, &url, Some(&clock)).await;
    let controller = shard.controller().await;
    let begun = fixture.history.until_renewed(name, DEADLINE).await;
    let mut wrong = 0;
    for step in 0..STEPPING {
        clock.shift(shift(step)).unwrap();
        sleep(STEP).await;
        let said = fixture.history.until_renewed(name, DEADLINE).await.renewed.unwrap();
        wrong += u32::from(Timestamp::now().duration_since(said).as_secs().abs() > HOUR / 2);
    }
    assert!(wrong > STEPPING / 3, "{name}: its clock was right");
    assert_eq!(controller.cut(), None, "{name} lost its Lease");
    for seen in fixture.history.of(name, begun.at) {
        assert!(seen.is_held() && seen.state == "ready" && seen.acquired == begun.acquired, "{seen:?}");
    }
}

/// A shard that is nothing but a Lease, and falls silent: it is dead when it was silent for long enough, whatever it had
/// written.
async fn dies(fixture: &Fixture, ring: &RingName, name: &str, ahead: i64) {
    let shard = fixture.plain(ring, name, SHORT).await;
    shard.shift_clock(ahead);
    let told = |seen: &super::history::Seen| {
        let wrong = seen.renewed.map(|said| said.duration_since(Timestamp::now()).as_secs());
        wrong.is_some_and(|wrong| (wrong - ahead).abs() < HOUR / 2)
    };
    fixture.history.until("it says a wrong time", name, Instant::now(), DEADLINE, told).await;
    let last = fixture.history.until_renewed(name, DEADLINE).await;
    shard.pause();
    let taken = fixture.history.until_taken(name, last.at, DEADLINE).await;
    let last = fixture.history.of(name, last.at).into_iter().rev().find(|seen| seen.is_held() && seen.state == "ready");
    let silent = taken.at - last.unwrap().at;
    println!("{name}: taken for dead after {silent:?}");
    assert!(silent + MOMENT > 2 * SHORT && silent < 2 * SHORT + SLACK, "{name}: {silent:?}");
}

pub(crate) async fn wrong(fixture: &Fixture) {
    let ring = fixture.ring("clocks").await;
    let proxies: [(&str, Shift); 3] = [
        ("clocks-ahead", |_| HOUR),
        ("clocks-behind", |_| -HOUR),
        ("clocks-stepping", |step| [0, HOUR, -HOUR][step as usize % 3]),
    ];
    let keeping = proxies.map(|(name, shift)| keeps(fixture, &ring, name, shift));
    let dying = [("clocks-dead-ahead", HOUR), ("clocks-dead-behind", -HOUR)];
    let dying = dying.map(|(name, ahead)| dies(fixture, &ring, name, ahead));
    // The judge's clock steps by two hours meanwhile, and stays wrong.
    let stepping = async {
        for step in 0..STEPPING {
            fixture.sharder_clock.shift(if step % 2 == 0 { HOUR } else { -HOUR }).unwrap();
            sleep(STEP).await;
            fixture.until_sharder_is_wrong().await;
        }
    };
    tokio::join!(join_all(keeping), join_all(dying), stepping);
}
