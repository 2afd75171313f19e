//! Large objects and large lists: refused where the API server refuses them, and never kept by the proxy.

use std::io;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::Mutex;

use super::*;
use crate::compatibility::stream::{alike, both};

/// Together 40 MB, each near the 1 MiB that a ConfigMap may have.
const OBJECTS: usize = 40;
const LENGTH: usize = 1_000_000;
/// What a list may cost the proxy at most, however long it is: its buffers toward both sides. 2.2 MB were
/// measured.
const MEMORY: u64 = 10_000_000;

/// The list, and a proxy for nothing else, so that its memory tells what the list costs.
struct Huge {
    ask: Ask,
    body: Bytes,
    shard: Arc<Shard>,
    /// Held by who reads and looks at the memory.
    turn: Mutex<()>,
}

/// Made by the first case that needs it.
static HUGE: OnceCell<Huge> = OnceCell::const_new();

pub(crate) fn cases() -> Vec<Case> {
    let sizes = [
        ("3.5 MB, more than a request may have", (3_500_000, StatusCode::PAYLOAD_TOO_LARGE)),
        ("1 MB", (1_000_000, StatusCode::CREATED)),
        ("1.5 MB, more than a ConfigMap may have", (1_500_000, StatusCode::UNPROCESSABLE_ENTITY)),
    ];
    let written = by_form("write of a large object", sizes, async |probe, (length, status)| {
        let object = serde_json::to_string(&map("large", [].into(), length))?;
        let ask = Ask::new(Method::POST, format!("{MAPS}?dryRun=All")).body(JSON, object);
        probe.same_with(&ask, OF_A_WRITE, Expected::Status(status)).await
    });
    let accepted = case("write and watch of a large object", "1.5 MB", accepted);
    let listed = by_form("list of 40 MB, in constant memory", [("HTTP/2", ()), ("HTTP/1.1", ())], listed);
    let listed = listed.zip([Http::Two, Http::One]).map(|(case, http)| case.by((http, Http::Two)));
    written.chain([accepted]).chain(listed).collect()
}

async fn listed(probe: Probe, (): ()) -> Result<Outcome> {
    let huge = HUGE.get_or_try_init(|| create(&probe.fixture)).await?;
    let probe = probe.of(&huge.shard);
    let _turn = huge.turn.lock().await;
    for pace in [Pace::Fast, Pace::Stalled] {
        read(&probe, huge, pace).await?;
    }
    Ok(Outcome::Narrowed)
}

/// A Website of the shard with 1.5 MB of content.
fn large_site(name: &str, probe: &Probe) -> Result<Value> {
    let mut large = serde_json::to_value(site(name, probe.shard.labels()))?;
    large["spec"]["content"] = "x".repeat(1_500_000).into();
    Ok(large)
}

/// An object as large as etcd takes it is written through the proxy, and passes it as the event of a watch.
async fn accepted(probe: Probe) -> Result<Outcome> {
    let namespace = format!("accepted-{}", probe.mark);
    probe.fixture.namespace(&namespace).await?;
    let collection = Kind::Website.collection(&namespace);
    let name = format!("{}large", probe.shard.owns);
    let ask = Ask::new(Method::POST, &collection).body(JSON, large_site(&name, &probe)?.to_string());
    let direct = probe.past(&ask).await?;
    probe.fixture.admin(&Ask::new(Method::DELETE, format!("{collection}/{name}"))).await?;
    let (proxied, _) = probe.through(&ask, AS_SENT).await?;
    ensure!(proxied.status == StatusCode::CREATED, "{}", proxied.status);
    answers(&direct, &proxied, OF_A_WRITE)?;
    // Made, deleted and made again: each event holds all of it.
    let ask = format!("{collection}?watch=1&resourceVersion={}&{GOES_ON}", probe.fixture.end);
    let third = |events: &[Event]| events.len() == 3;
    let (direct, proxied) = both(&probe, &Ask::get(ask), Format::Lines, third).await?;
    alike(&direct, &proxied, |_| false)
}

/// Starts the proxy, creates the objects, and reads the list past it.
async fn create(fixture: &Fixture) -> Result<Huge> {
    let shard = fixture.alone("large", Offer::Both, &json!([{"group": "", "resource": "configmaps"}])).await?;
    shard.serves(&["/api/v1/configmaps"]).await?;
    fixture.namespace("huge").await?;
    let collection = &Kind::ConfigMap.collection("huge");
    let versions: Vec<u64> = stream::iter(0..OBJECTS)
        .map(|index| {
            let object = json!(map(&format!("own-{index}"), shard.labels(), LENGTH));
            async move { anyhow::Ok(fixture.anew(collection, &object).await?.parse::<u64>()?) }
        })
        .buffer_unordered(4)
        .try_collect()
        .await?;
    let last = versions.into_iter().max().context("a version")?;
    let ask = Ask::get(format!("{collection}?resourceVersion={last}&resourceVersionMatch=Exact"));
    let by_hand = Ask { target: query::narrowed(&ask.target, &shard.selector), ..ask.clone() };
    let body = shard.direct.exchange(Http::Two, &by_hand, "huge").await?.body;
    ensure!(body.len() > OBJECTS * LENGTH, "{} bytes", body.len());
    Ok(Huge { ask, body, shard, turn: Mutex::default() })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// As fast as it can.
    Fast,
    /// A little, then nothing for as long as the proxy's memory grows, then the rest.
    Stalled,
}

/// Reads the list through the proxy, compares it as it comes, and looks at the proxy's memory meanwhile. The head is
/// compared with that of the same list without the proxy, which is not read again.
async fn read(probe: &Probe, huge: &Huge, pace: Pace) -> Result<()> {
    let Huge { ask, body: expected, .. } = huge;
    let direct = probe.shard.direct.open(probe.http, &probe.by_hand(ask), &probe.mark).await?.without_body();
    let memory = || probe.shard.process.own_resident_bytes();
    let before = memory()?;
    let mut most = before;
    let mut answer = probe.shard.proxied.open(probe.http, ask, &probe.mark).await?;
    answers(&direct, &answer.without_body(), Bodies::Exact)?;
    let (mut at, mut looked_at) = (0, 0);
    while let Some(piece) = answer.piece().await? {
        ensure!(expected.get(at..at + piece.len()) == Some(&piece[..]), "the body differs behind byte {at}");
        if pace == Pace::Stalled && at == 0 {
            most = most.max(steady(&memory).await?);
        }
        at += piece.len();
        if at - looked_at > LENGTH {
            (most, looked_at) = (most.max(memory()?), at);
        }
    }
    ensure!(at == expected.len(), "{at} of {} bytes came", expected.len());
    let cost = most.saturating_sub(before);
    ensure!(cost < MEMORY, "{pace:?}: the proxy took {cost} bytes more");
    let arrived = probe.arrived_as(ask, SELECTED)?;
    ensure!(arrived.version == probe.shard.upstream.version(), "it arrived by {:?}", arrived.version);
    passed_on(&arrived, &Answer { body: expected.clone(), ..answer.without_body() }, Extent::Whole)
}

/// The memory, once it does not grow any more.
async fn steady(memory: impl Fn() -> io::Result<u64>) -> Result<u64> {
    const ALIKE: usize = 10;
    let (mut last, mut alike) = (0, 0);
    let steady = eventually("the proxy takes no more memory", DEADLINE, || {
        let now = memory().unwrap_or_default();
        alike = if now == last { alike + 1 } else { 0 };
        last = now;
        let seen = if alike >= ALIKE { Ok(now) } else { Err(format!("{now} bytes")) };
        async { seen }
    });
    Ok(steady.await?)
}
