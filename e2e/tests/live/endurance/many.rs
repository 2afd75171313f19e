//! Hundreds of watches, and readers that don't read.

use futures::{StreamExt, future::join_all, stream};
use ringside_e2e::{compatibility::client::Open, eventually::eventually};
use tokio::time::timeout;

use super::{
    clients::{Client, NAMES, STREAMING_LIST, objects, unread, whole},
    fixture::{DEADLINE, PATIENCE, create},
    report,
};
use crate::proxies::Proxies;

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
/// What is done beside the stuck readers.
const ROUNDS: usize = 20;

pub(crate) async fn five_hundred_watches_see_an_event(fixture: &Proxies) {
    let proxy = fixture.proxy("many", &[]).await;
    let clients = join_all((0..CONNECTIONS).map(|_| Client::new(&proxy))).await;
    clients[0].text("/version").await;
    let before = proxy.process.own_resident_bytes().unwrap();
    let mut watches: Vec<_> = stream::iter(0..WATCHES)
        .map(|number| clients[number % CONNECTIONS].watch("application/json"))
        .buffer_unordered(OPENED_AT_ONCE)
        .collect()
        .await;
    create(fixture, "many", "seen-by-all", 0).await;
    join_all(watches.iter_mut().map(|watch| watch.until("seen-by-all"))).await;
    // The opening of watches needs memory that the allocator gives back in its own time.
    let settled = eventually("a small footprint", DEADLINE, || async {
        let each = proxy.process.own_resident_bytes().unwrap().saturating_sub(before) / WATCHES as u64;
        if each <= A_WATCH { Ok(each) } else { Err(format!("{each} bytes a watch")) }
    });
    report(&format!("{WATCHES} watches: {} bytes a watch", settled.await.unwrap()));
}

/// What others do goes on, while those are stuck that read nothing, and hold little. They go on when they are read.
pub(crate) async fn readers_that_never_read_delay_no_other(fixture: &Proxies) {
    let proxy = fixture.proxy("stuck", &[]).await;
    for index in 0..LARGE_OBJECTS {
        create(fixture, "stuck", &format!("large-{index}"), LARGE).await;
    }
    let client = Client::new(&proxy).await;
    let mut watch = client.watch(NAMES).await;
    let large = format!("/api/v1/namespaces/{}/configmaps/large-0", crate::proxies::NAMESPACE);
    client.text(&large).await;
    let before = proxy.process.own_resident_bytes().unwrap();
    let (mut stuck, mut stuck_by_http1): (Vec<Open>, Vec<_>) = (Vec::new(), Vec::new());
    for _ in 0..STUCK_READERS / 4 {
        for query in ["limit=500", STREAMING_LIST] {
            stuck.push(client.get(&objects(query), "application/json").await);
            stuck_by_http1.push(unread(&proxy, query).await);
        }
    }
    let mut highest = 0;
    for round in 0..ROUNDS {
        client.text(&large).await;
        let name = format!("beside-{round}");
        create(fixture, "stuck", &name, 0).await;
        watch.until(&name).await;
        highest = highest.max(proxy.process.own_resident_bytes().unwrap());
    }
    let held = highest.saturating_sub(before);
    report(&format!("{STUCK_READERS} readers that never read: {} KiB for all of them", held >> 10));
    // A list of one large object, which passes while it is measured, is among it.
    assert!(held < A_STUCK_READER * STUCK_READERS + LARGE as u64, "{held} bytes");
    let rest = whole(stuck.remove(0)).await.body;
    assert!(rest.len() > LARGE * LARGE_OBJECTS && rest.trim_ascii_end().ends_with(b"}"), "{} bytes", rest.len());
    let rest = timeout(PATIENCE, stuck_by_http1.remove(0).rest()).await.expect("it goes on").unwrap();
    assert!(rest.starts_with(b"HTTP/1.1 200") && rest.len() > LARGE * LARGE_OBJECTS, "{} bytes", rest.len());
}
