//! Watches by all their paths, and how they end.

use std::time::Duration;

use super::*;
use changes::part::{BOOKMARKS_AGAIN, INITIAL_AGAIN, WATCH_AGAIN};

/// Each ends by itself after a second.
const BY_PATH: [(&str, &str); 6] = [
    ("watch of all namespaces", "/api/v1/configmaps?fieldSelector=metadata.namespace%3Dfixed"),
    ("legacy watch path", "/api/v1/watch/namespaces/fixed/configmaps"),
    ("legacy watch path of all namespaces", "/api/v1/watch/configmaps?fieldSelector=metadata.namespace%3Dfixed"),
    (
        "watch of one object (`metadata.name`)",
        "/api/v1/namespaces/fixed/configmaps?fieldSelector=metadata.name%3Down-1",
    ),
    ("legacy watch path of one object", "/api/v1/watch/namespaces/fixed/configmaps/own-1"),
    ("watch with selectors of the client's own", "/api/v1/namespaces/fixed/configmaps?labelSelector=tier%3Dback"),
];

type Form = (&'static str, Format);

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (behaviour, path) in BY_PATH {
        cases.push(case(behaviour, "JSON", async move |probe| {
            let Ask { target, .. } = since_begin(&probe.fixture, path);
            let target = if path.contains("/watch/") { target.replace("watch=1&", "") } else { target };
            probe.narrowed(&Ask::get(target), WATCHED).await
        }));
    }
    let forms = stream::FORMS.map(|(form, media_type, format)| (form, (media_type, format)));
    cases.extend([
        case("watch as somebody else (impersonation)", "JSON", async |probe| {
            probe.narrowed(&since_begin(&probe.fixture, MAPS).as_somebody(), WATCHED).await
        }),
        case("watch with parameters given twice, of which the first counts", "JSON", async |probe| {
            let initial = "sendInitialEvents=false&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
            let bookmarks = "allowWatchBookmarks=false&allowWatchBookmarks=true";
            let Ask { target, .. } = since_begin(&probe.fixture, MAPS);
            let left_out = &[
                ("watch=0", WATCH_AGAIN),
                ("sendInitialEvents=true", INITIAL_AGAIN),
                ("allowWatchBookmarks=true", BOOKMARKS_AGAIN),
            ];
            let ask = Ask::get(format!("{target}&watch=0&{initial}&{bookmarks}"));
            probe.narrowed(&ask, Rewritten { left_out, ..WATCHED }).await
        })
        .asks_for(Ability::StreamingLists),
        case("watch of a resource that is not the ring's", "JSON", async |probe| {
            probe.same(&since_begin(&probe.fixture, "/api/v1/namespaces")).await
        }),
    ]);
    for (behaviour, from) in [("watch from nothing", ""), ("watch from 0", "&resourceVersion=0")] {
        let from_nothing = by_form(behaviour, forms, move |probe, (media_type, format): Form| async move {
            let ask = Ask::get(format!("{STILL}?watch=1{from}&timeoutSeconds=1")).accept(media_type);
            steady(|times| from_nothing(&probe, lasting(&ask, times), format)).await
        });
        cases.extend(from_nothing.map(|case| case.asks_for(Ability::StreamingLists)));
    }
    cases.extend(by_form("watch that the API server ends with 410 Gone", forms, gone));
    cases.extend(by_form("bookmarks of a watch", forms, bookmarks));
    let event = by_form("event of an idle watch, at once", forms, event);
    cases.extend(event.map(|case| case.asks_for(Ability::StreamingLists)));
    cases
}

/// It is asked as a streaming list, so that no old state is shown; what the client sees of it is what it asked for: the
/// objects, and no bookmark behind them.
async fn from_nothing(probe: &Probe, ask: Ask, format: Format) -> Result<Outcome> {
    let by_hand = probe.by_hand(&ask);
    let (direct, proxied) = tokio::try_join!(probe.past(&by_hand), probe.proxied(&ask))?;
    let arrived = probe.arrived_as(&ask, WATCHED)?;
    let sent = arrived.answer.context("no answer")?.body;
    let events = stream::events(format, &sent)?;
    let sent = stream::without_bookmarks(&events);
    ensure!(sent == proxied.body, "{}", difference("what came", &sent, &proxied.body));
    answers(&direct, &proxied, Bodies::Exact).map_err(Moment)?;
    Ok(probe.shows_its_own(&proxied.body).map_err(Moment)?)
}

/// What the API server says of a watch from a state that it does not have any more, it may say of one that went on: by
/// script, because it seldom does.
async fn gone(probe: Probe, (media_type, _): Form) -> Result<Outcome> {
    // Custom resources have no protobuf of their own, but their metadata has, and so has what is said of their end.
    let (path, said_in) = if media_type == PROTOBUF { (MAPS, METADATA_PROTOBUF) } else { (SITES, media_type) };
    let real =
        probe.past(&Ask::get(format!("{SITES}?watch=1&resourceVersion=2&timeoutSeconds=1")).accept(said_in)).await?;
    ensure!(real.status.is_success() && contains(&real.body, b"ERROR"), "{}: {}", real.status, real.text());
    let content_type = real.headers.get("content-type").context("a content type")?.to_str()?;
    probe.script(Script::new(real.status).header("content-type", content_type).bytes(real.body));
    let ask = since_begin(&probe.fixture, path).accept(media_type);
    probe.scripted(&ask, WATCHED).await
}

/// What happens later is shown when it happens, and not when a buffer is full. Of another shard's object nothing is.
async fn event(probe: Probe, (media_type, format): Form) -> Result<Outcome> {
    let namespace = format!("events-{}", probe.mark);
    probe.fixture.namespace(&namespace).await?;
    let collection = Kind::ConfigMap.collection(&namespace);
    // Without objects, the bookmark that ends the initial events says that both watch.
    let ask = lists::streamed(&collection).accept(media_type);
    let by_hand = probe.by_hand(&ask);
    let mut both = [
        probe.shard.direct.open(probe.http, &by_hand, &probe.mark).await?,
        probe.shard.proxied.open(probe.http, &ask, &probe.mark).await?,
    ];
    answers(&both[0].without_body(), &both[1].without_body(), Bodies::Exact)?;
    let mut initial = Vec::new();
    for open in &mut both {
        initial = stream::read(open, format, stream::last(Event::is_end_of_list)).await?;
    }
    for (name, shard) in [("other-late", &probe.fixture.plain), ("own-late", &probe.fixture.main)] {
        probe.fixture.anew(&collection, &json!(map(name, shard.labels(), 1))).await?;
    }
    let mut seen = Vec::new();
    for open in &mut both {
        seen.push(stream::read(open, format, stream::last(|event| event.shows("own-late"))).await?);
    }
    // A bookmark may come between, once a minute, of each moment's own version.
    let [direct, proxied] =
        [0, 1].map(|side| seen[side].iter().filter(|event| !event.is_bookmark()).collect::<Vec<_>>());
    ensure!(direct == proxied && direct.len() == 1, "{} events became {}", direct.len(), proxied.len());
    initial.append(&mut seen[1]);
    stream::arrived(&probe, &ask, &both[1], &initial)?;
    Ok(Outcome::Narrowed)
}

/// A watch that is about to end says how far it came, where something happened since its last event: here, that an
/// object is written in another namespace. When, and so of which version, is up to the moment.
async fn bookmarks(probe: Probe, (media_type, format): Form) -> Result<Outcome> {
    let namespace = format!("bookmarks-{}", probe.mark);
    probe.fixture.namespace(&namespace).await?;
    let elsewhere = Kind::ConfigMap.collection(&namespace);
    let writing = async {
        loop {
            probe.fixture.anew(&elsewhere, &json!({"metadata": {"name": "written"}})).await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let from = format!("watch=1&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds=4", probe.fixture.begin);
    let ask = Ask::get(format!("{MAPS}?{from}")).accept(media_type);
    let comparing = steady(async |_| {
        let (direct, proxied) = stream::both(&probe, &ask, format, stream::last(Event::is_bookmark)).await?;
        Ok(stream::alike(&direct, &proxied, Event::is_bookmark).map_err(Moment)?)
    });
    tokio::select! { compared = comparing => compared, failed = writing => failed }
}
