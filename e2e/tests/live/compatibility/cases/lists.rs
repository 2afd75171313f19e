//! Lists: whole, in pages, compressed, from the cache, streamed as a watch.

use super::*;

/// The version of a list is that of the moment, where it is not asked for.
const OF_THE_MOMENT: Bodies = Bodies::But(&["metadata.resourceVersion"]);

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (behaviour, query) in [
        ("list of the latest state", ""),
        ("list of any state (resourceVersion 0)", "?resourceVersion=0"),
        ("list of any state, in pages of 500 (as client-go begins)", "?limit=500&resourceVersion=0"),
    ] {
        cases.push(case(behaviour, "JSON", async move |probe| {
            let ask = Ask::get(format!("{MAPS}{query}"));
            probe.shows_its_own(&probe.narrowed_with(&ask, SELECTED, OF_THE_MOMENT).await?.body)
        }));
    }
    cases.extend([
        case("list of all namespaces", "JSON", async |probe| {
            let all = "/api/v1/configmaps?fieldSelector=metadata.namespace%3Dfixed";
            probe.narrowed(&exact(&probe.fixture, all), SELECTED).await
        }),
        case("list as somebody else (impersonation)", "JSON", async |probe| {
            probe.narrowed(&exact(&probe.fixture, MAPS).as_somebody(), SELECTED).await
        }),
        case("list of a resource that is not the ring's", "JSON", async |probe| {
            probe.same(&exact(&probe.fixture, "/api/v1/namespaces")).await
        }),
        case("list compressed with gzip", "JSON", async |probe| {
            let ask = exact(&probe.fixture, MAPS).gzip();
            let answer = probe.narrowed_with(&ask, SELECTED, Bodies::Exact).await?;
            ensure!(answer.headers.get(header::CONTENT_ENCODING).is_some_and(|it| it == "gzip"), "not compressed");
            Ok(Outcome::Narrowed)
        }),
        case("streaming list compressed with gzip", "JSON", async |probe| steady(|_| uncompressed(&probe)).await)
            .asks_for(Ability::CompressedWatches),
    ]);
    cases.extend(by_form("list in pages, by continue token", representations::FORMS, pages));
    let streaming_list = "streaming list (`sendInitialEvents`), and its bookmark";
    let forms = stream::FORMS.map(|(form, media_type, format)| (form, (MAPS, media_type, format)));
    let of_custom = [("of a custom resource", (SITES, JSON, Format::Lines))];
    let streaming = by_form(streaming_list, forms.into_iter().chain(of_custom), streaming);
    cases.extend(streaming.map(|case| case.asks_for(Ability::StreamingLists)));
    cases
}

/// Of the shard's three objects two are on the first page. A token says where the next one begins, and of which
/// version: both ways give the same.
async fn pages(probe: Probe, form: &'static str) -> Result<Outcome> {
    let form = &representations::of_lists(form);
    let first = exact(&probe.fixture, &format!("{MAPS}?limit=2"));
    probe.narrowed(&first.clone().accept(form), SELECTED).await?;
    let page: Value = serde_json::from_slice(&probe.proxied(&first).await?.body)?;
    ensure!(page["items"].as_array().is_some_and(|items| items.len() == 2), "{}", page["items"]);
    let token = page["metadata"]["continue"].as_str().context("a continue token")?;
    probe.narrowed(&Ask::get(format!("{MAPS}?limit=2&continue={token}")).accept(form), SELECTED).await
}

/// Goes on behind its bookmark.
pub(super) fn streamed(path: &str) -> Ask {
    let initial = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    Ask::get(format!("{path}?{initial}&{GOES_ON}"))
}

/// The API server would compress it.
async fn uncompressed(probe: &Probe) -> Result<Outcome> {
    let ask = streamed(MAPS).gzip();
    let direct = probe.shard.direct.open(probe.http, &ask, &probe.mark).await?;
    ensure!(direct.head.headers.contains_key(header::CONTENT_ENCODING), "{:?}", direct.head.headers);
    let mut proxied = probe.shard.proxied.open(probe.http, &ask, &probe.mark).await?;
    let events = stream::read(&mut proxied, Format::Lines, stream::last(Event::is_end_of_list)).await?;
    stream::arrived(probe, &ask, &proxied, &events)?;
    // The same as to who can't decompress.
    let mut plain = probe.shard.direct.open(probe.http, &probe.by_hand(&streamed(MAPS)), &probe.mark).await?;
    let direct = stream::read(&mut plain, Format::Lines, stream::last(Event::is_end_of_list)).await?;
    answers(&plain.without_body(), &proxied.without_body(), Bodies::Exact)?;
    stream::alike(&direct, &events, Event::is_end_of_list).map_err(Moment)?;
    Ok(Outcome::Changed("not compressed: the proxy reads the events as they pass"))
}

type Streamed = (&'static str, &'static str, Format);

/// Each event is that of the list without the proxy; the bookmark at its end says how new the state is, at that moment.
async fn streaming(probe: Probe, (path, form, format): Streamed) -> Result<Outcome> {
    let ask = streamed(path).accept(form);
    steady(async |_| {
        let (direct, proxied) = stream::both(&probe, &ask, format, stream::last(Event::is_end_of_list)).await?;
        Ok(stream::alike(&direct, &proxied, Event::is_end_of_list).map_err(Moment)?)
    })
    .await
}
