//! API servers that are slow, refuse or hang, and networks that are broken, between a shard's proxy and its Lease.

use std::time::{Duration, Instant};

use futures::future::join_all;
use http::StatusCode;
use ringside_e2e::{
    eventually::eventually,
    line::{Line, Passing},
    relay::{Hindrance, Offer, Relay},
};
use ringside_ring::RingName;
use tokio::time::sleep;

use super::{
    fixture::{DEADLINE, Fixture, SHORT, USUAL},
    history::Seen,
    shard::Shard,
};

const LEASES: &str = "/leases";

/// Of a Lease of the usual duration a renewal is valid for twice as long.
const A_WHILE: Duration = Duration::from_secs(6);
/// Longer than from one renewal to the next, and than any renewal of that duration is valid for, if there were none meanwhile.
const SLOW: Duration = Duration::from_secs(4);
const SLOW_FOR: Duration = Duration::from_secs(25);

/// What a test sees a moment late, by a watch or a timer.
const MOMENT: Duration = Duration::from_millis(500);

/// Asks a shard over and over whether it is ready, and its controller whether it is served, for as long as that takes.
async fn undisturbed(fixture: &Fixture, shard: &Shard, trouble: impl Future<Output = ()>) {
    let controller = shard.controller().await;
    let is_ready = |seen: &Seen| seen.is_held() && seen.state == "ready";
    let before = fixture.history.until("it is ready", &shard.name, Instant::now(), DEADLINE, is_ready).await;
    let always_ready = async {
        loop {
            assert!(shard.is_ready().await, "{} is not ready", shard.name);
            sleep(MOMENT).await;
        }
    };
    tokio::select! {
        () = trouble => {}
        never = always_ready => never,
    }
    let after = fixture.history.until_renewed(&shard.name, DEADLINE).await;
    assert_eq!(controller.cut(), None, "{}", shard.name);
    assert_eq!(after.acquired, before.acquired, "{} had lost its Lease", shard.name);
    for seen in fixture.history.of(&shard.name, before.at) {
        assert!(is_ready(&seen), "{seen:?}");
    }
}

/// Answers that take four seconds, all the time; and none, or refusals, for a while.
pub(crate) async fn short(fixture: &Fixture) {
    let ring = fixture.ring("slow").await;
    let troubles = [
        ("late", Hindrance::Late(SLOW), SLOW_FOR),
        ("swallowed", Hindrance::Swallowed, A_WHILE),
        ("too-many", Hindrance::Refused(StatusCode::TOO_MANY_REQUESTS), A_WHILE),
        ("broken", Hindrance::Refused(StatusCode::INTERNAL_SERVER_ERROR), A_WHILE),
    ];
    let each = troubles.map(|(name, hindrance, lasts)| {
        let ring = &ring;
        async move {
            let relay = Relay::start(fixture.system.control_plane(), Offer::Both).await.unwrap();
            let shard = fixture.shard(ring, &format!("slow-{name}"), USUAL, &relay.url(), None).await;
            let trouble = async {
                relay.hinder(LEASES, hindrance);
                sleep(lasts).await;
                relay.mend();
            };
            undisturbed(fixture, &shard, trouble).await;
        }
    });
    join_all(each).await;
}

/// What lasts until the sharder has taken over.
pub(crate) async fn long(fixture: &Fixture) {
    let ring = fixture.ring("cut").await;
    let troubles = [
        ("swallowed", Hindrance::Swallowed),
        ("too-many", Hindrance::Refused(StatusCode::TOO_MANY_REQUESTS)),
        ("broken", Hindrance::Refused(StatusCode::INTERNAL_SERVER_ERROR)),
        // Each renewal is carried out, and the proxy does not hear of it in time.
        ("late", Hindrance::Late(DEADLINE)),
    ];
    let hindered = troubles.map(|(name, hindrance)| {
        let ring = &ring;
        async move {
            let relay = Relay::start(fixture.system.control_plane(), Offer::Both).await.unwrap();
            let (begin, end) = (|| relay.hinder(LEASES, hindrance), || relay.mend());
            never_both(fixture, ring, &format!("cut-{name}"), &relay.url(), (&begin, &end)).await;
        }
    });
    let parted = async {
        let line = Line::to(fixture.api_server()).await.unwrap();
        let (begin, end) = (|| line.set(Passing::Nothing), || line.set(Passing::Everything));
        never_both(fixture, &ring, "cut-parted", &format!("https://{}", line.address()), (&begin, &end)).await;
    };
    tokio::join!(join_all(hindered), parted);
}

async fn never_both(
    fixture: &Fixture,
    ring: &RingName,
    name: &str,
    url: &str,
    (begin, end): (&(dyn Fn() + Sync), &(dyn Fn() + Sync)),
) {
    let shard = fixture.shard(ring, name, SHORT, url, None).await;
    let controller = shard.controller().await;
    let renewed = fixture.history.until_renewed(name, DEADLINE).await;
    begin();
    let cut = eventually("its gate closes", DEADLINE, || async { controller.cut().ok_or("it is open".to_owned()) });
    let cut = cut.await.unwrap();
    // One that was under way at the beginning may have been accepted. The sharder may write marks on it since.
    let held: Vec<_> = fixture.history.of(name, renewed.at).into_iter().filter(Seen::is_held).collect();
    let last = held.iter().find(|seen| seen.renewed == held.last().unwrap().renewed).unwrap();
    let taken = fixture.history.until_taken(name, renewed.at, DEADLINE).await;
    assert!(!shard.is_ready().await && !shard.says_held().await, "{name}");
    let (closed_after, taken_after) = (cut - last.at.min(cut), taken.at - last.at);
    println!("{name}: closed {closed_after:?} after its last renewal, and taken over after {taken_after:?}");
    assert!(cut < taken.at, "{name}: closed {:?} after it was taken over", cut - taken.at);
    assert!(closed_after < SHORT, "{name}: as long as others think that it is ready");
    assert!(taken_after + MOMENT > 2 * SHORT, "{name}");

    end();
    let back = fixture.history.until("it has its Lease again", name, taken.at, DEADLINE, Seen::is_held).await;
    let served = eventually("it is served again", DEADLINE, || async {
        controller.served_after(cut + MOMENT).ok_or("not yet".to_owned())
    });
    let served = served.await.unwrap();
    assert!(served + MOMENT > back.at, "{name}: served {:?} before it had its Lease again", back.at - served);
    assert!(shard.says_held().await, "{name}");
}
