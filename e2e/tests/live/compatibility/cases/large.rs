//! Large objects and large lists: refused where the API server refuses them, and never kept by the proxy.

use std::io;

use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::*;
use crate::compatibility::stream::{alike, both};

/// Together 40 MB, each near the 1 MiB that a ConfigMap may have.
const OBJECTS: usize = 40;
const LENGTH: usize = 1_000_000;
/// What a list may cost the proxy at most, however long it is: its buffers toward both sides. 2.2 MB were
/// measured.
const MEMORY: u64 = 10_000_000;

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
    let listed = [Http::Two, Http::One].map(|http| {
        let case = case("list of 40 MB, in constant memory", http.name(), listed).by((http, Http::Two));
        if http == Http::Two { case } else { case.variant() }
    });
    written.chain([accepted]).chain(listed).collect()
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
    probe.through(&ask, AS_SENT).await?.0.with(StatusCode::CREATED)?;
    let ask = Ask::get(format!("{collection}?watch=1&resourceVersion={}&{GOES_ON}", probe.fixture.end));
    let (direct, proxied) = both(&probe, &ask, Format::Lines, |events| !events.is_empty()).await?;
    alike(&direct, &proxied, |_| false)
}

/// Makes the list, and starts a proxy for nothing else, so that its memory tells what the list costs. Reads a little, then
/// nothing for as long as that memory grows, then the rest, which is compared as it comes.
async fn listed(probe: Probe) -> Result<Outcome> {
    let (fixture, name) = (&probe.fixture, &format!("large-{}", probe.mark));
    let shard = fixture.alone(name, Offer::Both, &json!([{"group": "", "resource": "configmaps"}])).await?;
    shard.serves(&["/api/v1/configmaps"]).await?;
    fixture.namespace(name).await?;
    let collection = &Kind::ConfigMap.collection(name);
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
    let probe = probe.clone().of(&shard);
    let direct = probe.past(&probe.by_hand(&ask)).await?;
    ensure!(direct.body.len() > OBJECTS * LENGTH, "{} bytes", direct.body.len());

    let memory = || shard.process.own_resident_bytes();
    let before = memory()?;
    let mut answer = probe.shard.proxied.open(probe.http, &ask, &probe.mark).await?;
    let (mut at, mut looked_at, mut most) = (0, 0, before);
    while let Some(piece) = answer.piece().await? {
        ensure!(direct.body.get(at..at + piece.len()) == Some(&piece[..]), "the body differs behind byte {at}");
        if at == 0 {
            most = steady(memory).await?;
        }
        at += piece.len();
        if at - looked_at > LENGTH {
            (most, looked_at) = (most.max(memory()?), at);
        }
    }
    let cost = most.saturating_sub(before);
    ensure!(cost < MEMORY, "the proxy took {cost} bytes more");
    let proxied = Answer { body: direct.body.slice(..at), ..answer.without_body() };
    passed_on(&probe.arrived_as(&ask, SELECTED)?, &proxied, Extent::Whole)?;
    answers(&direct, &proxied, Bodies::Exact).map(|_| Outcome::Narrowed)
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
