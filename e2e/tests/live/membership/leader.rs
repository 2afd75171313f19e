//! The sharder's leader is killed: the next one judges by what it sees itself.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use ringside_e2e::eventually::eventually;
use ringside_ring::lease::holder;

use super::fixture::{DEADLINE, Fixture, HOUR, SHORT};

/// What the sharder needs beside the time that it gives a shard.
const SLACK: Duration = Duration::from_secs(3);
/// What a test sees a moment late.
const MOMENT: Duration = Duration::from_millis(500);

/// The replica that leads, if it is another than `before`.
async fn leader(fixture: &Fixture, before: &str) -> String {
    let leases: Api<Lease> = Api::namespaced(fixture.client(), "ringside-system");
    let leads = eventually("a replica leads", DEADLINE, || async {
        let lease = leases.get("ringside-sharder").await.map_err(|error| error.to_string())?;
        let holder = holder(lease.spec.as_ref()).unwrap_or_default().split('_').next().unwrap_or_default();
        if holder.is_empty() || holder == before { Err(format!("'{holder}'")) } else { Ok(holder.to_owned()) }
    });
    leads.await.unwrap()
}

/// A judge that went by wall clocks would take all for dead, and one that gave no time after the change whatever was silent
/// while no replica led; one that went by `renewTime` would keep some for ever, as its own clock is an hour behind.
pub(crate) async fn change() {
    let mut fixture = Fixture::start(2).await;
    let ring = fixture.ring("led").await;
    let mut shards = Vec::new();
    for (name, ahead) in [("ahead", HOUR), ("behind", -HOUR), ("silent", HOUR), ("late", -HOUR)] {
        let shard = fixture.plain(&ring, name, SHORT).await;
        shard.shift_clock(ahead);
        shards.push(shard);
    }
    fixture.until_counted(&ring, 4).await;
    let begun = Instant::now();
    for shard in &shards {
        let ready = |seen: &super::history::Seen| seen.state == "ready";
        fixture.history.until("it is ready", shard.name().as_str(), begun, DEADLINE, ready).await;
    }
    let before = leader(&fixture, "").await;
    for silent in &shards[2..] {
        silent.pause();
    }
    fixture.system.kill_sharder(&before).await.unwrap();
    let killed = Instant::now();
    fixture.sharder_clock.shift(HOUR).unwrap();
    for (shard, ahead) in shards.iter().zip([-HOUR, HOUR]) {
        shard.shift_clock(ahead);
    }
    leader(&fixture, &before).await;
    let led = Instant::now();
    fixture.until_sharder_is_wrong().await;
    println!("another one leads {:?} after the kill", led - killed);
    assert!(led - killed > 2 * SHORT, "nobody had been silent for long");

    let expired = |seen: &super::history::Seen| seen.state == "expired";
    fixture.history.until("it is late", "late", killed, DEADLINE, expired).await;
    shards[3].resume();
    let taken = fixture.history.until_taken("silent", killed, DEADLINE).await;
    let after = taken.at.saturating_duration_since(led);
    println!("a silent shard was taken for dead {after:?} after that");
    assert!(after + MOMENT > SHORT / 2 && after < SHORT / 2 + SLACK, "{after:?}");
    let ready = |seen: &super::history::Seen| seen.state == "ready";
    fixture.history.until("it is ready again", "late", led, DEADLINE, ready).await;
    for name in ["ahead", "behind", "late"] {
        let seen = fixture.history.of(name, begun);
        assert!(seen.iter().all(|seen| seen.is_held() && (seen.state == "ready" || name == "late")), "{seen:#?}");
    }
    fixture.until_counted(&ring, 3).await;
}
