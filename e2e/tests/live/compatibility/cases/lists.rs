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
        case("list of all namespaces", "JSON", async move |probe| {
            let target =
                format!("/api/v1/configmaps?{}&fieldSelector=metadata.namespace%3Dfixed", probe.fixture.exact());
            probe.narrowed(&Ask::get(target)).await
        }),
        case("list as somebody else (impersonation)", "JSON", async move |probe| {
            probe.narrowed(&Ask::get(format!("{MAPS}?{}", probe.fixture.exact())).as_somebody()).await
        }),
        case("list of a resource that is not the ring's", "JSON", async move |probe| {
            probe.same(&Ask::get(format!("/api/v1/namespaces?{}", probe.fixture.exact()))).await
        }),
    ]);
    for (form, media_type) in representations::FORMS {
        cases.push(case("list in pages, by continue token", form, move |probe| pages(probe, media_type)));
    }
    for (form, media_type) in [("JSON", JSON), ("protobuf", PROTOBUF)] {
        cases.push(case("list compressed with gzip", form, async move |probe| {
            let ask = Ask::get(format!("{MAPS}?{}", probe.fixture.exact())).accept(media_type);
            let answer = probe.narrowed_with(&ask.gzip(), SELECTED, Bodies::Exact).await?;
            ensure!(answer.headers.get(header::CONTENT_ENCODING).is_some_and(|it| it == "gzip"), "not compressed");
            Ok(Outcome::Narrowed)
        }));
    }
    cases.push(case("streaming list compressed with gzip", "JSON", async move |probe| {
        steady(|| uncompressed(&probe)).await
    }));
    // Rows with all of their objects, and with nothing of them.
    for include in ["None", "Object"] {
        let form = format!("Table, includeObject={include}");
        cases.push(case("list as it was at a moment", &form, async move |probe| {
            let target = format!("{MAPS}?includeObject={include}&{}", probe.fixture.exact());
            probe.narrowed(&Ask::get(target).accept(TABLE)).await
        }));
    }
    for (form, media_type, format) in stream::FORMS {
        for (resource, path) in [("a built-in resource", MAPS), ("a custom resource", SITES)] {
            // Custom resources have no protobuf of their own.
            if path == SITES && media_type == PROTOBUF {
                continue;
            }
            let behaviour = format!("streaming list (`sendInitialEvents`) of {resource}, and its bookmark");
            cases.push(case(&behaviour, form, move |probe| streaming(probe, path, media_type, format)));
        }
    }
    cases.extend(by_pair("list in pages, by continue token", |probe| pages(probe, JSON)));
    let behaviour = "streaming list (`sendInitialEvents`) of a built-in resource, and its bookmark";
    cases.extend(by_pair(behaviour, |probe| streaming(probe, MAPS, PROTOBUF, Format::Lengths)));
    cases
}

/// Of the shard's three objects two are on the first page. A token says where the next one begins, and of which
/// version: both ways give the same.
async fn pages(probe: Probe, media_type: &str) -> Result<Outcome> {
    let media_type = &representations::of_lists(media_type);
    let first = format!("{MAPS}?{}&limit=2", probe.fixture.exact());
    probe.narrowed(&Ask::get(&first).accept(media_type)).await?;
    let page = probe.proxied(&Ask::get(&first)).await?;
    let page: Value = serde_json::from_slice(&page.body)?;
    ensure!(page["items"].as_array().is_some_and(|items| items.len() == 2), "{}", page["items"]);
    let token = page["metadata"]["continue"].as_str().context("a continue token")?;
    probe.narrowed(&Ask::get(format!("{MAPS}?limit=2&continue={token}")).accept(media_type)).await
}

const INITIAL: &str = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

/// The API server would compress it.
async fn uncompressed(probe: &Probe) -> Result<Outcome> {
    let ask = Ask::get(format!("{MAPS}?{INITIAL}&timeoutSeconds=30")).gzip();
    let direct = probe.shard.direct.open(probe.http, &ask, &probe.mark).await?;
    ensure!(direct.head.headers.contains_key(header::CONTENT_ENCODING), "{:?}", direct.head.headers);
    let mut proxied = probe.shard.proxied.open(probe.http, &ask, &probe.mark).await?;
    ensure!(!proxied.head.headers.contains_key(header::CONTENT_ENCODING), "{:?}", proxied.head.headers);
    let events = stream::read(&mut proxied, Format::Lines, Event::is_end_of_list).await?;
    stream::arrived(probe, &ask, &proxied, &events)?;
    // The same as to who can't decompress.
    let by_hand = Ask::get(query::narrowed(&ask.target, &probe.shard.selector));
    let mut plain = probe.shard.direct.open(probe.http, &by_hand, &probe.mark).await?;
    let direct = stream::read(&mut plain, Format::Lines, Event::is_end_of_list).await?;
    answers(&plain.without_body(), &proxied.without_body(), Bodies::Exact)?;
    stream::alike(&direct, &events, Event::is_end_of_list).map_err(Moment)?;
    Ok(Outcome::Changed("not compressed: the proxy reads the events as they pass"))
}

/// Each event is that of the list without the proxy; the bookmark at its end says how new the state is, at that moment.
async fn streaming(probe: Probe, path: &str, media_type: &str, format: Format) -> Result<Outcome> {
    let ask = Ask::get(format!("{path}?{INITIAL}&timeoutSeconds=30")).accept(media_type);
    steady(async || {
        let (direct, proxied) = stream::both(&probe, &ask, format, Event::is_end_of_list).await?;
        Ok(stream::alike(&direct, &proxied, Event::is_end_of_list).map_err(Moment)?)
    })
    .await
}
