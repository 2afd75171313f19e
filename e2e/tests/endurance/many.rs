//! Hundreds of watches, and readers that don't read.

use std::time::{Duration, Instant};

use futures::{StreamExt, future::join_all, stream};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::body::Incoming;
use ringside_e2e::eventually::eventually;
use tokio::time::timeout;

use super::{
    ground::{DEADLINE, Ground},
    http2::{Http2, STREAMING_LIST, objects},
    report,
};

const WATCHES: usize = 500;
/// More are answered 429 by the API server's own fairness, with the usual flow schemas.
const OPENED_AT_ONCE: usize = 20;
/// What a watch may cost the proxy, all in all. Most of it is hyper's and the allocator's: a stream on each side.
const A_WATCH: u64 = 24 << 10;

/// Objects of which one is more than a reader's windows and the proxy's buffers hold.
const LARGE_OBJECTS: usize = 24;
const LARGE: usize = 900 << 10;
/// What one reader that never reads may hold: its window at the API server's side, and what waits for the client.
const A_STUCK_READER: u64 = 1 << 20;
const STUCK_READERS: u64 = 6;
/// For others meanwhile. Without other load it is milliseconds.
const PROMPT: Duration = Duration::from_secs(5);

pub(crate) async fn five_hundred_watches_see_an_event(ground: &Ground) {
    let proxy = ground.proxy("many").await;
    let client = Http2::new(&proxy);
    client.text("/version").await;
    let before = proxy.process.own_resident_bytes().unwrap();
    let mut watches: Vec<_> =
        stream::iter(0..WATCHES).map(|_| client.watch()).buffer_unordered(OPENED_AT_ONCE).collect().await;
    ground.create("many", "seen-by-all", 0).await;
    join_all(watches.iter_mut().map(|watch| watch.until("seen-by-all", DEADLINE))).await;
    // The opening of watches needs memory that the allocator gives back in its own time.
    let bound = before + A_WATCH * WATCHES as u64;
    let settled = eventually("a small footprint", DEADLINE, || async {
        let now = proxy.process.own_resident_bytes().unwrap();
        if now <= bound { Ok(now) } else { Err(format!("{now} bytes, {} a watch", (now - before) / WATCHES as u64)) }
    });
    let now = settled.await.unwrap();
    report(&format!(
        "{WATCHES} watches: {} KiB before, {} KiB with them, {} bytes a watch",
        before >> 10,
        now >> 10,
        now.saturating_sub(before) / WATCHES as u64
    ));
}

pub(crate) async fn readers_that_never_read_delay_nobody(ground: &Ground) {
    let proxy = ground.proxy("stuck").await;
    for index in 0..LARGE_OBJECTS {
        ground.create("stuck", &format!("large-{index}"), LARGE).await;
    }
    let client = Http2::new(&proxy);
    let mut watch = client.watch_names().await;
    let before = proxy.process.own_resident_bytes().unwrap();
    let mut stuck: Vec<Incoming> = Vec::new();
    for _ in 0..STUCK_READERS / 2 {
        stuck.push(client.get(&objects("limit=500")).await.into_body());
        stuck.push(client.get(&objects(STREAMING_LIST)).await.into_body());
    }
    let mut slowest = Duration::ZERO;
    let mut held = 0;
    for round in 0..40 {
        let start = Instant::now();
        client.text("/api/v1/namespaces/default/configmaps/large-0?pretty=false").await;
        let name = format!("between-{round}");
        ground.create("stuck", &name, 0).await;
        watch.until(&name, DEADLINE).await;
        slowest = slowest.max(start.elapsed());
        held = held.max(proxy.process.own_resident_bytes().unwrap().saturating_sub(before));
    }
    report(&format!(
        "{STUCK_READERS} readers that never read: {} KiB for all of them; the slowest round trip beside them took {slowest:?}",
        held >> 10
    ));
    assert!(slowest < PROMPT, "{slowest:?}");
    // A list of one large object, which passes while it is measured, is among it.
    assert!(held < A_STUCK_READER * STUCK_READERS + LARGE as u64, "{held} bytes");
    // They were stuck indeed, and go on when they are read.
    for body in stuck.iter_mut().take(1) {
        let rest = timeout(DEADLINE, body.collect()).await.expect("it goes on").unwrap().to_bytes();
        assert!(whole(&rest), "{} bytes", rest.len());
    }
}

fn whole(list: &Bytes) -> bool {
    list.len() > LARGE * LARGE_OBJECTS && list.trim_ascii_end().ends_with(b"}")
}
