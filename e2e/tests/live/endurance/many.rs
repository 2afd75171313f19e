//! Hundreds of watches, and readers that don't read.

use std::time::{Duration, Instant};

use futures::{StreamExt, future::join_all, stream};
use ringside_e2e::{compatibility::client::Open, eventually::eventually, proxy::Proxy};
use tokio::time::timeout;

use super::{
    clients::{Client, NAMES, STREAMING_LIST, Watch, objects, unread, whole},
    fixture::{DEADLINE, Fixture},
    report,
};

const WATCHES: usize = 500;
/// The proxy lets a connection have 256 streams.
const CONNECTIONS: usize = 2;
/// More are answered 429 by the API server's own fairness, with the usual flow schemas.
const OPENED_AT_ONCE: usize = 20;
/// What a watch may cost the proxy, all in all. Most of it is hyper's and the allocator's: a stream on each side.
const A_WATCH: u64 = 24 << 10;

/// Objects of which one is more than a reader's windows and the proxy's buffers hold.
const LARGE_OBJECTS: usize = 24;
const LARGE: usize = 900 << 10;
/// What one reader that never reads may hold: its window at the API server's side, and what waits for the client.
const A_STUCK_READER: u64 = 1 << 20;
const STUCK_READERS: u64 = 8;
/// How long others may take meanwhile: so many times what they took before, and what a busy machine adds to milliseconds.
const SLOWER: u32 = 3;
const ADDED: Duration = Duration::from_millis(100);
/// What is done before, and then beside the stuck readers.
const ROUNDS: usize = 40;

pub(crate) async fn five_hundred_watches_see_an_event(fixture: &Fixture) {
    let proxy = fixture.proxy("many").await;
    let clients = join_all((0..CONNECTIONS).map(|_| Client::new(&proxy))).await;
    clients[0].text("/version").await;
    let before = proxy.process.own_resident_bytes().unwrap();
    let mut watches: Vec<_> = stream::iter(0..WATCHES)
        .map(|number| clients[number % CONNECTIONS].watch("application/json"))
        .buffer_unordered(OPENED_AT_ONCE)
        .collect()
        .await;
    fixture.create("many", "seen-by-all", 0).await;
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

pub(crate) async fn readers_that_never_read_delay_nobody(fixture: &Fixture) {
    let proxy = fixture.proxy("stuck").await;
    for index in 0..LARGE_OBJECTS {
        fixture.create("stuck", &format!("large-{index}"), LARGE).await;
    }
    let client = Client::new(&proxy).await;
    let mut watch = client.watch(NAMES).await;
    let (undisturbed, _) = rounds(fixture, &proxy, &client, &mut watch, "before").await;
    let before = proxy.process.own_resident_bytes().unwrap();
    let (mut stuck, mut stuck_by_http1): (Vec<Open>, Vec<_>) = (Vec::new(), Vec::new());
    for _ in 0..STUCK_READERS / 4 {
        for query in ["limit=500", STREAMING_LIST] {
            stuck.push(client.get(&objects(query), "application/json").await);
            stuck_by_http1.push(unread(&proxy, query).await);
        }
    }
    let (beside, highest) = rounds(fixture, &proxy, &client, &mut watch, "beside").await;
    let held = highest.saturating_sub(before);
    report(&format!(
        "{STUCK_READERS} readers that never read: {} KiB for all of them; a round trip took {undisturbed:?} before, and \
         {beside:?} beside them",
        held >> 10
    ));
    assert!(beside < undisturbed * SLOWER + ADDED, "{beside:?} instead of {undisturbed:?}");
    // A list of one large object, which passes while it is measured, is among it.
    assert!(held < A_STUCK_READER * STUCK_READERS + LARGE as u64, "{held} bytes");
    // They were stuck indeed, and go on when they are read.
    let rest = whole(stuck.remove(0)).await.body;
    assert!(rest.len() > LARGE * LARGE_OBJECTS && rest.trim_ascii_end().ends_with(b"}"), "{} bytes", rest.len());
    let rest = timeout(DEADLINE, stuck_by_http1.remove(0).rest()).await.expect("it goes on").unwrap();
    assert!(rest.starts_with(b"HTTP/1.1 200") && rest.len() > LARGE * LARGE_OBJECTS, "{} bytes", rest.len());
}

/// Reads a large object and waits for the event of a new one, many times: what that usually takes, and the most memory that
/// the proxy had.
async fn rounds(fixture: &Fixture, proxy: &Proxy, client: &Client, watch: &mut Watch, names: &str) -> (Duration, u64) {
    let (mut took, mut highest) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        let start = Instant::now();
        client.text("/api/v1/namespaces/default/configmaps/large-0?pretty=false").await;
        let name = format!("{names}-{round}");
        fixture.create("stuck", &name, 0).await;
        watch.until(&name, DEADLINE).await;
        took.push(start.elapsed());
        highest = highest.max(proxy.process.own_resident_bytes().unwrap());
    }
    // Of cases that run at once each has its bursts: they don't count.
    took.sort_unstable();
    (took[ROUNDS / 2], highest)
}
