//! Watches by all their paths, and how they end.

use super::*;

/// Long on a loaded machine, and well before the watch ends.
const SOON: Duration = Duration::from_secs(20);

type Asks = fn(&Fixture) -> Ask;

/// Each ends by itself after a second.
const BY_PATH: [(&str, Asks); 8] = [
    ("watch of all namespaces", |fixture| {
        since_begin(fixture, "/api/v1/configmaps?fieldSelector=metadata.namespace%3Dfixed&watch=true")
    }),
    ("legacy watch path", |fixture| since_begin(fixture, "/api/v1/watch/namespaces/fixed/configmaps?")),
    ("legacy watch path of all namespaces", |fixture| {
        since_begin(fixture, "/api/v1/watch/configmaps?fieldSelector=metadata.namespace%3Dfixed")
    }),
    ("watch of one object (`metadata.name`)", |fixture| {
        since_begin(fixture, &format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Down-1"))
    }),
    ("legacy watch path of one object", |fixture| {
        since_begin(fixture, "/api/v1/watch/namespaces/fixed/configmaps/own-1?")
    }),
    ("watch with selectors of the client's own", |fixture| {
        since_begin(fixture, &format!("{MAPS}?watch=1&labelSelector=tier%3Dback"))
    }),
    ("watch as somebody else (impersonation)", |fixture| {
        since_begin(fixture, &format!("{MAPS}?watch=1")).as_somebody()
    }),
    ("watch with parameters given twice, of which the first counts", |fixture| {
        let initial = "sendInitialEvents=false&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let bookmarks = "allowWatchBookmarks=false&allowWatchBookmarks=true";
        since_begin(fixture, &format!("{MAPS}?watch=1&watch=0&{initial}&{bookmarks}"))
    }),
];

fn since_begin(fixture: &Fixture, path: &str) -> Ask {
    Ask::get(format!("{path}&resourceVersion={}&timeoutSeconds=1", fixture.begin).replace("?&", "?"))
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (behaviour, ask) in BY_PATH {
        for (form, media_type, _) in stream::FORMS {
            cases.push(case(behaviour, form, async move |probe| {
                probe.narrowed_watch(&ask(&probe.fixture).accept(media_type)).await
            }));
        }
    }
    for (behaviour, from) in [("watch from nothing", ""), ("watch from 0", "&resourceVersion=0")] {
        for (form, media_type, format) in stream::FORMS {
            cases.push(case(behaviour, form, async move |probe| {
                let ask = Ask::get(format!("{STILL}?watch=1{from}&timeoutSeconds=2")).accept(media_type);
                steady(|| from_nothing(&probe, &ask, format)).await
            }));
        }
    }
    cases.push(case("watch of one object of another shard", "JSON", foreign));
    cases.push(case("watch of a resource that is not the ring's", "JSON", async move |probe| {
        probe.same(&since_begin(&probe.fixture, "/api/v1/namespaces?watch=1")).await
    }));
    for (form, media_type, _) in stream::FORMS {
        let behaviour = "watch that the API server ends with 410 Gone";
        cases.push(case(behaviour, form, move |probe| gone(probe, media_type)));
    }
    for (form, media_type, format) in stream::FORMS {
        cases.push(case("bookmarks of a watch", form, move |probe| bookmarks(probe, media_type, format)));
        cases.push(case("event of an idle watch, at once", form, move |probe| event(probe, media_type, format)));
    }
    cases.extend(by_pair("bookmarks of a watch", |probe| bookmarks(probe, PROTOBUF, Format::Lengths)));
    cases.extend(by_pair("watch with selectors of the client's own", async |probe| {
        let ask = since_begin(&probe.fixture, &format!("{MAPS}?watch=1&labelSelector=tier%3Dback"));
        probe.narrowed_watch(&ask.accept(TABLE)).await
    }));
    cases
}

/// It is asked as a streaming list, so that no old state is shown; what the client sees of it is what it asked for: the
/// objects, and no bookmark behind them.
async fn from_nothing(probe: &Probe, ask: &Ask, format: Format) -> Result<Outcome> {
    let by_hand = probe.by_hand(ask);
    let (direct, proxied) = tokio::try_join!(probe.past(&by_hand), probe.proxied(ask))?;
    let arrived = probe.arrived_as(ask, WATCHED)?;
    let sent = arrived.answer.context("no answer")?.body;
    let events = stream::events(format, &sent)?;
    ensure!(events.iter().any(Event::is_end_of_list), "it is no streaming list");
    let sent = stream::without_bookmarks(&events);
    ensure!(sent == proxied.body, "{}", difference("what came", &sent, &proxied.body));
    answers(&direct, &proxied, Bodies::Exact).map_err(Moment)?;
    probe.shows_its_own(&proxied.body)
}

/// What the API server says of a watch from a state that it does not have any more, it may say of one that went on: by
/// script, because it seldom does.
async fn gone(probe: Probe, media_type: &str) -> Result<Outcome> {
    // Custom resources have no protobuf of their own, but their metadata has, and so has what is said of their end.
    let (path, said_in) = if media_type == PROTOBUF { (MAPS, METADATA_PROTOBUF) } else { (SITES, media_type) };
    let real =
        probe.past(&Ask::get(format!("{SITES}?watch=1&resourceVersion=2&timeoutSeconds=1")).accept(said_in)).await?;
    ensure!(real.status.is_success() && contains(&real.body, b"ERROR"), "{}: {}", real.status, real.text());
    let content_type = real.headers.get("content-type").context("a content type")?.to_str()?;
    probe.script(Script::new(real.status).header("content-type", content_type).bytes(real.body));
    let ask = since_begin(&probe.fixture, &format!("{path}?watch=1")).accept(media_type);
    probe.scripted(&ask, WATCHED).await
}

/// Nothing is shown of it, and nothing else differs: the intersection is empty.
async fn foreign(probe: Probe) -> Result<Outcome> {
    let ask = since_begin(&probe.fixture, &format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Dother-1"));
    let all = probe.past(&ask).await?;
    ensure!(all.text().contains("other-1"), "there is nothing to see");
    let answer = probe.narrowed_with(&ask, WATCHED, Bodies::Exact).await?;
    ensure!(answer.body.is_empty(), "{}", answer.text());
    Ok(Outcome::Narrowed)
}

/// What happens later is shown when it happens, and not when a buffer is full. Of another shard's object nothing is.
async fn event(probe: Probe, media_type: &str, format: Format) -> Result<Outcome> {
    let namespace = format!("events-{}", probe.mark);
    probe.fixture.namespace(&namespace).await?;
    let late = |name: &str, labels| match format {
        // Custom resources have no protobuf of their own.
        Format::Lengths => json!(map(name, labels, 1)),
        Format::Lines => json!(site(name, labels)),
    };
    let collection = match format {
        Format::Lengths => format!("/api/v1/namespaces/{namespace}/configmaps"),
        Format::Lines => format!("/apis/web.example.com/v1/namespaces/{namespace}/websites"),
    };
    // Without objects, the bookmark that ends the initial events says that both watch.
    let initial = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let ask = Ask::get(format!("{collection}?{initial}&timeoutSeconds=60")).accept(media_type);
    let by_hand = probe.by_hand(&ask);
    let mut both = [
        probe.shard.direct.open(probe.http, &by_hand, &probe.mark).await?,
        probe.shard.proxied.open(probe.http, &ask, &probe.mark).await?,
    ];
    answers(&both[0].without_body(), &both[1].without_body(), Bodies::Exact)?;
    let mut initial = Vec::new();
    for open in &mut both {
        initial = stream::read(open, format, Event::is_end_of_list).await?;
    }
    probe.fixture.anew(&collection, &late("other-late", probe.fixture.plain.labels())).await?;
    probe.fixture.anew(&collection, &late("own-late", probe.fixture.main.labels())).await?;
    let mut seen = Vec::new();
    for open in &mut both {
        let shown = stream::read(open, format, |event| event.shows("own-late"));
        seen.push(timeout(SOON, shown).await.context("no event came while the watch went on")??);
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
async fn bookmarks(probe: Probe, media_type: &str, format: Format) -> Result<Outcome> {
    let namespace = format!("bookmarks-{}", probe.mark);
    probe.fixture.namespace(&namespace).await?;
    let elsewhere = format!("/api/v1/namespaces/{namespace}/configmaps");
    let writing = async {
        loop {
            probe.fixture.anew(&elsewhere, &json!({"metadata": {"name": "written"}})).await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let from = format!("watch=1&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds=4", probe.fixture.begin);
    let ask = Ask::get(format!("{MAPS}?{from}")).accept(media_type);
    let comparing = steady(async || {
        let (direct, proxied) = stream::both(&probe, &ask, format, Event::is_bookmark).await?;
        Ok(stream::alike(&direct, &proxied, Event::is_bookmark).map_err(Moment)?)
    });
    tokio::select! { compared = comparing => compared, failed = writing => failed }
}
