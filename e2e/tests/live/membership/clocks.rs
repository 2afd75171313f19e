//! Wall clocks that are wrong by an hour, and step, of shards and of the sharder.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use ringside_e2e::wall_clock::WallClock;
use ringside_ring::RingName;

use super::{
    fixture::{Fixture, HOUR},
    history::Seen,
};

/// How long the Lease of a shard lasts that dies.
const BRIEF: Duration = Duration::from_secs(10);

/// By how many seconds the clocks of shards with proxies are wrong, one step after the other.
const CLOCKS: [(&str, [i64; 2]); 3] =
    [("clocks-ahead", [HOUR; 2]), ("clocks-behind", [-HOUR; 2]), ("clocks-stepping", [HOUR, -HOUR])];

/// A shard that is nothing but a Lease, and falls silent: it is dead some time after that, and not before, whatever it had
/// written.
async fn dies(fixture: &Fixture, ring: &RingName, (name, ahead): (&str, i64)) {
    let begun = Timestamp::now();
    let shard = fixture.plain(ring, name, BRIEF).await;
    shard.shift_clock(ahead);
    fixture.history.until("its clock is wrong", name, begun, |seen| seen.is_by_wrong_clock() && seen.is_ready()).await;
    let last = fixture.history.until_renewed(name).await;
    shard.pause();
    let taken = fixture.history.until_taken(name, begun).await;
    let seen = fixture.history.of(name, last.at);
    let states: Vec<_> = seen.iter().take_while(|seen| seen.at < taken.at).map(|seen| &*seen.state).collect();
    assert!(states.starts_with(&["ready"]) && states.contains(&"expired"), "{name} was taken after {states:?}");
}

/// Shards that renew keep their Leases, and those that do not are dead, while the judge's clock steps by two hours.
pub(crate) async fn wrong(fixture: &Fixture) {
    let ring = fixture.ring("clocks").await;
    let mut shards = Vec::new();
    for (name, wrong) in CLOCKS {
        let clock = WallClock::create(fixture.folder.path(), name).unwrap();
        clock.shift(wrong[0]).unwrap();
        let shard = fixture.shard(&ring, name, &fixture.url(), Some(&clock)).await;
        let controller = shard.controller().await;
        let ready = fixture.history.until("it is ready", name, Timestamp::MIN, Seen::is_ready).await;
        shards.push((name, wrong, clock, controller, ready, shard));
    }
    let stepping = async {
        for step in (0..2).cycle() {
            fixture.sharder_clock.shift([HOUR, -HOUR][step]).unwrap();
            for (_, wrong, clock, ..) in &shards {
                clock.shift(wrong[step]).unwrap();
            }
            join_all(CLOCKS.map(|(name, _)| fixture.history.until_renewed(name))).await;
            fixture.until_sharder_is_wrong().await;
        }
    };
    let dying = [("clocks-dead-ahead", HOUR), ("clocks-dead-behind", -HOUR)];
    tokio::select! {
        _ = join_all(dying.map(|dying| dies(fixture, &ring, dying))) => {}
        () = stepping => {}
    }
    for (name, _, _, controller, ready, _) in &shards {
        let seen = fixture.history.of(name, ready.at);
        assert!(seen.iter().filter(|seen| seen.is_by_wrong_clock()).count() > 2, "{name}: its clock was right");
        assert_eq!(controller.cut(), None, "{name} lost its Lease");
        let kept = seen.iter().all(|seen| seen.is_ready() && seen.acquired == ready.acquired);
        assert!(kept, "{seen:#?}");
    }
}
