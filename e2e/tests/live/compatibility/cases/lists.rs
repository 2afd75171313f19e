//! Lists: whole, in pages, compressed, from the cache, streamed as a watch.

use anyhow::{Context as _, Result, ensure};
use http::header;
use ringside_e2e::compatibility::Outcome;
use serde_json::Value;

use super::representations;
use crate::compatibility::{
    client::{Ask, Http},
    compare::{Bodies, Moment, Probe, answers, steady},
    fixture::Fixture,
    query,
    stream::{self, Format, JSON, PROTOBUF, TABLE},
    table::{Case, case},
};

const MAPS: &str = "/api/v1/namespaces/fixed/configmaps";
const SITES: &str = "/apis/web.example.com/v1/namespaces/fixed/websites";

/// The version of a list is that of the moment, where it is not asked for.
const OF_THE_MOMENT: Bodies = Bodies::But(&["metadata.resourceVersion"]);

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (behaviour, query) in [
        ("list of the latest state", ""),
        ("list of any state (resourceVersion 0)", "?resourceVersion=0"),
        ("list of any state, in pages of 500 (as client-go begins)", "?limit=500&resourceVersion=0"),
    ] {
        cases.push(case(behaviour, "JSON", move |fixture, mark| async move {
            let (probe, ask) = (Probe::new(&fixture, &mark), Ask::get(format!("{MAPS}{query}")));
            probe.shows_its_own(&probe.narrowed_with(&ask, OF_THE_MOMENT, &[]).await?.body)
        }));
    }
    cases.extend([
        case("list of all namespaces", "JSON", |fixture, mark| async move {
            let of_fixed = "fieldSelector=metadata.namespace%3Dfixed";
            let ask = Ask::get(format!("/api/v1/configmaps?{}&{of_fixed}", exact(&fixture)));
            Probe::new(&fixture, &mark).narrowed(&ask).await
        }),
        case("list as somebody else (impersonation)", "JSON", |fixture, mark| async move {
            let ask = Ask::get(format!("{MAPS}?{}", exact(&fixture))).header("impersonate-user", "somebody");
            Probe::new(&fixture, &mark).narrowed(&ask.header("impersonate-group", "system:masters")).await
        }),
        case("list of a resource that is not the ring's", "JSON", |fixture, mark| async move {
            let ask = Ask::get(format!("/api/v1/namespaces?{}", exact(&fixture)));
            Probe::new(&fixture, &mark).same(&ask).await
        }),
    ]);
    for (form, media_type) in representations::FORMS {
        cases.push(case("list in pages, by continue token", form, move |fixture, mark| async move {
            pages(&fixture, &Probe::new(&fixture, &mark), &representations::of_lists(media_type)).await
        }));
    }
    for (form, media_type) in [("JSON", JSON), ("protobuf", PROTOBUF)] {
        cases.push(case("list compressed with gzip", form, move |fixture, mark| async move {
            let ask = Ask::get(format!("{MAPS}?{}", exact(&fixture))).accept(media_type);
            let ask = ask.header("accept-encoding", "gzip");
            let answer = Probe::new(&fixture, &mark).narrowed_with(&ask, Bodies::Exact, &[]).await?;
            ensure!(answer.headers.get(header::CONTENT_ENCODING).is_some_and(|it| it == "gzip"), "not compressed");
            Ok(Outcome::Narrowed)
        }));
    }
    cases.push(case("streaming list compressed with gzip", "JSON", |fixture, mark| async move {
        let probe = Probe::new(&fixture, &mark);
        steady(|| uncompressed(&probe)).await
    }));
    cases.extend(tables());
    for (form, media_type, format) in stream::FORMS {
        for (resource, path) in [("a built-in resource", MAPS), ("a custom resource", SITES)] {
            // Custom resources have no protobuf of their own.
            if path == SITES && media_type == PROTOBUF {
                continue;
            }
            let behaviour = format!("streaming list (`sendInitialEvents`) of {resource}, and its bookmark");
            cases.push(case(&behaviour, form, move |fixture, mark| async move {
                let probe = Probe::new(&fixture, &mark);
                steady(|| streaming(&probe, path, media_type, format)).await
            }));
        }
    }
    cases.extend(by_version());
    cases
}

/// By each version of HTTP on both sides.
fn by_version() -> Vec<Case> {
    let mut cases = Vec::new();
    for (client, upstream) in Http::PAIRS {
        let pair = client.towards(upstream);
        cases.push(case("list in pages, by continue token", &pair, move |fixture, mark| async move {
            pages(&fixture, &Probe::by(&fixture, &mark, client, upstream), JSON).await
        }));
        let behaviour = "streaming list (`sendInitialEvents`) of a built-in resource, and its bookmark";
        cases.push(case(behaviour, &pair, move |fixture, mark| async move {
            let probe = Probe::by(&fixture, &mark, client, upstream);
            steady(|| streaming(&probe, MAPS, PROTOBUF, Format::Lengths)).await
        }));
    }
    cases
}

/// Rows with all of their objects, and with nothing of them.
fn tables() -> impl Iterator<Item = Case> {
    ["None", "Object"].into_iter().map(|include| {
        let form = format!("Table, includeObject={include}");
        case("list as it was at a moment", &form, move |fixture, mark| async move {
            let ask = Ask::get(format!("{MAPS}?includeObject={include}&{}", exact(&fixture))).accept(TABLE);
            let probe = Probe::new(&fixture, &mark);
            probe.narrowed(&ask).await
        })
    })
}

fn exact(fixture: &Fixture) -> String {
    format!("resourceVersion={}&resourceVersionMatch=Exact", fixture.end)
}

/// Of the shard's three objects two are on the first page. A token says where the next one begins, and of which
/// version: both ways give the same.
async fn pages(fixture: &Fixture, probe: &Probe<'_>, media_type: &str) -> Result<Outcome> {
    let first = format!("{MAPS}?{}&limit=2", exact(fixture));
    probe.narrowed(&Ask::get(&first).accept(media_type)).await?;
    let page = probe.shard.proxied.exchange(probe.http, &Ask::get(&first), probe.mark).await?;
    let page: Value = serde_json::from_slice(&page.body)?;
    ensure!(page["items"].as_array().is_some_and(|items| items.len() == 2), "{}", page["items"]);
    let token = page["metadata"]["continue"].as_str().context("a continue token")?;
    probe.narrowed(&Ask::get(format!("{MAPS}?limit=2&continue={token}")).accept(media_type)).await
}

const INITIAL: &str = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

/// The API server would compress it.
async fn uncompressed(probe: &Probe<'_>) -> Result<Outcome> {
    let ask = Ask::get(format!("{MAPS}?{INITIAL}&timeoutSeconds=30")).header("accept-encoding", "gzip");
    let direct = probe.shard.direct.open(probe.http, &ask, probe.mark).await?;
    ensure!(direct.head.headers.contains_key(header::CONTENT_ENCODING), "{:?}", direct.head.headers);
    let mut proxied = probe.shard.proxied.open(probe.http, &ask, probe.mark).await?;
    ensure!(!proxied.head.headers.contains_key(header::CONTENT_ENCODING), "{:?}", proxied.head.headers);
    let events = stream::read(&mut proxied, Format::Lines, stream::Event::is_end_of_list).await?;
    stream::arrived(probe, &ask, &proxied, &events)?;
    // The same as to who can't decompress.
    let by_hand = Ask::get(query::narrowed(&ask.target, &probe.shard.selector));
    let mut plain = probe.shard.direct.open(probe.http, &by_hand, probe.mark).await?;
    let direct = stream::read(&mut plain, Format::Lines, stream::Event::is_end_of_list).await?;
    answers(&plain.without_body(), &proxied.without_body(), Bodies::Exact)?;
    stream::alike(&direct, &events, stream::Event::is_end_of_list).map_err(Moment)?;
    Ok(Outcome::Changed("not compressed: the proxy reads the events as they pass"))
}

/// Each event is that of the list without the proxy; the bookmark at its end says how new the state is, at that moment.
async fn streaming(probe: &Probe<'_>, path: &str, media_type: &str, format: Format) -> Result<Outcome> {
    let ask = Ask::get(format!("{path}?{INITIAL}&timeoutSeconds=30")).accept(media_type);
    let (direct, proxied) = stream::both(probe, &ask, format, stream::Event::is_end_of_list).await?;
    let other = |event: &stream::Event| event.is_end_of_list();
    Ok(stream::alike(&direct, &proxied, other).map_err(Moment)?)
}
