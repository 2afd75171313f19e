//! HTTP itself: both versions on both sides, and what may stand in a request beside its meaning.

use std::convert::Infallible;

use futures::{SinkExt as _, StreamExt as _, channel::mpsc};
use http_body_util::StreamBody;
use hyper::body::Frame;
use ringside_e2e::relay::Part;

use super::*;

pub(crate) fn cases() -> Vec<Case> {
    let gets = by_pair("get", async |probe| {
        let ask = Ask::get(format!("{MAPS}/free-0"));
        let (_, arrived) = probe.through(&ask, AS_SENT).await?;
        // What reads one object does.
        ensure!(arrived.version == Version::HTTP_11, "it arrived by {:?}", arrived.version);
        probe.same(&ask).await
    });
    let lists = by_pair("list", async |probe| probe.narrowed(&exact(&probe.fixture, MAPS), SELECTED).await);
    let watches = by_pair("watch", async |probe| probe.narrowed(&since_begin(&probe.fixture, MAPS), WATCHED).await);
    let writes = by_pair("write", async |probe| {
        let object = serde_json::to_string(&map("written", [].into(), 100_000))?;
        let ask = Ask::new(Method::POST, format!("{MAPS}?dryRun=All")).body(JSON, object);
        let (_, arrived) = probe.through(&ask, AS_SENT).await?;
        ensure!(arrived.version == probe.shard.upstream.version(), "it arrived by {:?}", arrived.version);
        probe.same_with(&ask, OF_A_WRITE, Expected::Done).await
    });
    let mut cases: Vec<_> = gets.chain(lists).chain(watches).chain(writes).map(Case::by_http1_throughout_too).collect();
    let still_sent = "request body of unknown length, still sent while the answer comes";
    cases.extend(by_pair(still_sent, async |probe| {
        let own = format!("{MAPS}/{}1", probe.shard.owns);
        for (method, target) in
            [(Method::POST, SECRETS), (Method::POST, MAPS), (Method::PUT, &own), (Method::PATCH, &own)]
        {
            echo(&probe, &Ask::new(method, target)).await?;
        }
        Ok(Outcome::Same)
    }));
    let read_first = [
        ("a controlled resource", CONTROLLED),
        ("a Lease in the shard's namespace", LEASES),
        ("a ConfigMap in the shard's namespace", CONFIG_MAPS),
    ];
    cases.extend(by_form(&format!("{still_sent}, of what the proxy reads before"), read_first, collected));
    cases.extend(by_pair("head of an idle watch, at once", idle));
    cases
}

/// Each piece comes back before the next one is sent.
async fn echo(probe: &Probe, ask: &Ask) -> Result<Outcome> {
    probe.script(Script::new(StatusCode::OK).part(Part::Echo));
    let ask = ask.clone().unsized_body();
    let mut came = Vec::new();
    for (endpoint, http) in [(&probe.shard.scripted, probe.of_relay()), (&probe.shard.proxied, probe.http)] {
        probe.take();
        let (mut pieces, body) = mpsc::unbounded::<Bytes>();
        pieces.start_send(Bytes::from_static(b"first"))?;
        let body = StreamBody::new(body.map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
        let mut answer = endpoint.open_with(http, &ask, &probe.mark, body).await?;
        answer.until(|read| read == b"first").await?;
        pieces.start_send(Bytes::from_static(b"second"))?;
        answer.until(|read| read == b"second").await?;
        pieces.close_channel();
        let answered = answer.without_body();
        came.push(Answer { body: answer.collect().await?.body, ..answered });
    }
    let ask = Ask { body: "firstsecond".into(), ..ask };
    let arrived = probe.arrived_as(&ask, AS_SENT)?;
    // HTTP/2 has no `Transfer-Encoding`: the client's, over HTTP/1.1, was about its own connection.
    if probe.http == Http::One {
        let chunked = HeaderMap::from_iter([(header::TRANSFER_ENCODING, "chunked".parse()?)]);
        changes::note(changes::SENT, &changes::REQUEST, &chunked, &arrived.headers);
    }
    ensure!(came[1].body.is_empty(), "more came back than was sent");
    answers(&came[0], &came[1], Bodies::Exact)
}

/// Nothing arrives before all is there.
async fn collected(probe: Probe, collection: &'static str) -> Result<Outcome> {
    probe.script(Script::new(StatusCode::OK).part(Part::Echo));
    let ask = Ask::new(Method::POST, collection).unsized_body().header("content-type", JSON);
    let (mut pieces, body) = mpsc::channel::<Bytes>(0);
    let body = StreamBody::new(body.map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
    let answered = probe.shard.proxied.open_with(probe.http, &ask, &probe.mark, body);
    let sending = async {
        // It is on its way when this returns, and what is streamed has arrived when another connection was made and answered.
        pieces.send(Bytes::from_static(b"{\"metadata\":")).await?;
        let (other, version) = (format!("{}-other", probe.mark), Ask::get("/version"));
        probe.shard.proxied.exchange(probe.http, &version, &other).await?;
        ensure!(!probe.shard.relay.has(&probe.mark), "it arrived before all of it was there");
        pieces.send(Bytes::from_static(b"{}}")).await?;
        pieces.close_channel();
        Ok(())
    };
    let (answer, ()) = tokio::try_join!(answered, sending)?;
    let answer = answer.collect().await?;
    ensure!(answer.text() == "{\"metadata\":{}}", "{}", answer.text());
    let arrived = probe.arrived()?;
    passed_on(&arrived, &answer, Extent::Whole)?;
    // What was collected has a length.
    let sent = Ask { body: answer.body, sized: true, ..ask };
    probe.check_arrival(&sent, &arrived, AS_SENT)?;
    Ok(Outcome::Changed(
        "sent on when all of it is there, 3 MiB at most: the proxy reads who controls it, or who leads",
    ))
}

/// A watch in a namespace without objects, from now on: nothing comes but the head, for as long as it goes on.
async fn idle(probe: Probe) -> Result<Outcome> {
    let watch = format!("watch=1&resourceVersion={}&{GOES_ON}", probe.fixture.end);
    let ask = Ask::get(format!("/api/v1/namespaces/nowhere/configmaps?{watch}"));
    let direct = probe.shard.direct.open(probe.http, &ask, &probe.mark).await?;
    let proxied = probe.shard.proxied.open(probe.http, &ask, &probe.mark).await?;
    ensure!(direct.head.status == StatusCode::OK, "without the proxy {}", direct.head.status);
    probe.arrived_as(&ask, WATCHED)?;
    answers(&direct.without_body(), &proxied.without_body(), Bodies::Exact)
}
