//! Large objects and large lists: refused where the API server refuses them, and never kept by the proxy.

use std::io;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::Mutex;

use super::*;
use crate::compatibility::stream::{alike, both_until};

const HUGE_MAPS: &str = "/api/v1/namespaces/huge/configmaps";
/// Together 100 MB, each near the 1 MiB that a ConfigMap may have.
const OBJECTS: usize = 100;
const LENGTH: usize = 1_000_000;
/// What a list may cost the proxy at most, however long it is: its buffers toward both sides. 2.2 MB were
/// measured.
const MEMORY: u64 = 10_000_000;

/// The list, and proxies for nothing else, so that their memory tells what it costs. Each is in a ring of its own: so all
/// objects can belong to both, and the API server need not hold them twice.
struct Huge {
    ask: Ask,
    body: Bytes,
    by_http2: Arc<Shard>,
    by_http1: Arc<Shard>,
    /// Held by who reads and looks at the memory.
    turn: Mutex<()>,
}

/// Made by the first case that needs it.
static HUGE: OnceCell<Huge> = OnceCell::const_new();

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (form, length, status) in [
        ("1 MB", 1_000_000, StatusCode::CREATED),
        ("1.5 MB, more than a ConfigMap may have", 1_500_000, StatusCode::UNPROCESSABLE_ENTITY),
        ("3.5 MB, more than a request may have", 3_500_000, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        for (client, upstream) in Http::PAIRS {
            let form = format!("{form}, {}", client.towards(upstream));
            let written = case("write of a large object", &form, async move |probe| {
                let object = serde_json::to_string(&map("large", [].into(), length))?;
                let ask = Ask::new(Method::POST, format!("{MAPS}?dryRun=All")).body(JSON, object);
                probe.same_with(&ask, OF_A_WRITE, Expected::Status(status)).await
            });
            cases.push(written.by((client, upstream)));
        }
    }
    for (client, upstream) in Http::PAIRS {
        let form = format!("1.5 MB, accepted, {}", client.towards(upstream));
        cases.push(case("write and watch of a large object", &form, accepted).by((client, upstream)));
    }
    cases.push(case("read of a large object", "1.5 MB", async move |probe| {
        let target = "/apis/web.example.com/v1/namespaces/large/websites";
        probe.fixture.namespace("large").await?;
        probe.fixture.anew(target, &large_site("large", &probe)?).await?;
        probe.same(&Ask::get(format!("{target}/large"))).await
    }));
    cases.extend(by_pair("list of 100 MB, in constant memory", async |probe| {
        let huge = HUGE.get_or_try_init(|| create(&probe.fixture)).await?;
        let one = probe.shard.upstream == Http::One;
        let probe = probe.of(if one { &huge.by_http1 } else { &huge.by_http2 });
        let _turn = huge.turn.lock().await;
        for pace in [Pace::Fast, Pace::Stalled] {
            read(&probe, huge, pace).await?;
        }
        Ok(Outcome::Narrowed)
    }));
    cases
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
    let collection = format!("/apis/web.example.com/v1/namespaces/{namespace}/websites");
    let name = format!("{}large", probe.shard.owns);
    let ask = Ask::new(Method::POST, &collection).body(JSON, large_site(&name, &probe)?.to_string());
    let direct = probe.past(&ask).await?;
    probe.fixture.admin(&Ask::new(Method::DELETE, format!("{collection}/{name}"))).await?;
    let (proxied, _) = probe.through(&ask, AS_SENT).await?;
    ensure!(proxied.status == StatusCode::CREATED, "{}", proxied.status);
    answers(&direct, &proxied, OF_A_WRITE)?;
    // Made, deleted and made again: each event holds all of it.
    let ask = format!("{collection}?watch=1&resourceVersion={}&timeoutSeconds=60", probe.fixture.end);
    let third = |events: &[Event]| events.len() == 3;
    let (direct, proxied) = both_until(&probe, &Ask::get(ask), Format::Lines, third).await?;
    alike(&direct, &proxied, |_| false)
}

/// Starts the proxies, creates the objects, and reads the list without a proxy.
async fn create(fixture: &Fixture) -> Result<Huge> {
    let resources = json!([{"group": "", "resource": "configmaps"}]);
    let alone = async |ring, offer| {
        let shard = fixture.alone(ring, offer, &resources).await?;
        shard.serves(&["/api/v1/configmaps"]).await.map(|()| shard)
    };
    let (by_http2, by_http1) =
        tokio::try_join!(alone("large-by-http2", Offer::Both), alone("large-by-http1", Offer::Http1),)?;
    fixture.namespace("huge").await?;
    let labels: BTreeMap<_, _> = by_http2.labels().into_iter().chain(by_http1.labels()).collect();
    let versions: Vec<u64> = stream::iter(0..OBJECTS)
        .map(|index| {
            let object = map(&format!("own-{index}"), labels.clone(), LENGTH);
            async move { anyhow::Ok(fixture.anew(HUGE_MAPS, &json!(object)).await?.parse::<u64>()?) }
        })
        .buffer_unordered(4)
        .try_collect()
        .await?;
    let last = versions.into_iter().max().context("a version")?;
    let ask = Ask::get(format!("{HUGE_MAPS}?resourceVersion={last}&resourceVersionMatch=Exact"));
    let by_hand = Ask { target: query::narrowed(&ask.target, &by_http2.selector), ..ask.clone() };
    let body = by_http2.direct.exchange(Http::Two, &by_hand, "huge").await?.body;
    ensure!(body.len() > OBJECTS * LENGTH, "{} bytes", body.len());
    Ok(Huge { ask, body, by_http2, by_http1, turn: Mutex::default() })
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
