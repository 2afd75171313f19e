//! HTTP itself: both versions on both sides, and what may stand in a request beside its meaning.

use std::{convert::Infallible, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::{SinkExt as _, StreamExt as _, channel::mpsc};
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use ringside_e2e::{
    compatibility::Outcome,
    relay::{Part, Script},
};
use tokio::time::{Instant, timeout};

use super::{
    controlled::CONFIG_MAPS,
    refusals::{CONTROLLED, LEASES},
};
use crate::compatibility::{
    changes,
    client::{Answer, Ask, Http},
    compare::{Bodies, Extent, OF_A_WRITE, Probe, Rewritten, answers, passed_on},
    objects::{FIXED, map},
    table::{Case, case},
};

const MAPS: &str = "/api/v1/namespaces/fixed/configmaps";
/// So much later than without the proxy is at once, on a loaded machine; the watch goes on for 30 s.
const AT_ONCE: Duration = Duration::from_secs(3);

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (client, upstream) in Http::PAIRS {
        let pair = client.towards(upstream);
        cases.push(case("get", &pair, move |fixture, mark| async move {
            let probe = Probe::by(&fixture, &mark, client, upstream);
            let ask = Ask::get(format!("/api/v1/namespaces/{FIXED}/configmaps/free-0"));
            let (_, arrived) = probe.through(&ask, Rewritten::default()).await?;
            ensure!(arrived.version == upstream.version(), "it arrived by {:?}", arrived.version);
            probe.same(&ask).await
        }));
        cases.push(case("list", &pair, move |fixture, mark| async move {
            let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", fixture.end);
            let ask = Ask::get(format!("/api/v1/namespaces/{FIXED}/configmaps?{exact}"));
            Probe::by(&fixture, &mark, client, upstream).narrowed(&ask).await
        }));
        cases.push(case("watch", &pair, move |fixture, mark| async move {
            let from = format!("watch=1&resourceVersion={}&timeoutSeconds=1", fixture.begin);
            let ask = Ask::get(format!("/api/v1/namespaces/{FIXED}/configmaps?{from}"));
            Probe::by(&fixture, &mark, client, upstream).narrowed_watch(&ask).await
        }));
        cases.push(case("write", &pair, move |fixture, mark| async move {
            let object = serde_json::to_string(&map("written", [].into(), 100_000))?;
            let ask = Ask::new(Method::POST, format!("/api/v1/namespaces/{FIXED}/configmaps?dryRun=All"));
            let ask = ask.body("application/json", object);
            Probe::by(&fixture, &mark, client, upstream).same_with(&ask, OF_A_WRITE).await
        }));
        cases.push(case("request body sent in pieces, of unknown length", &pair, move |fixture, mark| async move {
            in_pieces(&Probe::by(&fixture, &mark, client, upstream)).await
        }));
        cases.push(case("request body still sent while the answer comes", &pair, move |fixture, mark| async move {
            let probe = Probe::by(&fixture, &mark, client, upstream);
            echo(&probe, &Ask::new(Method::POST, "/api/v1/namespaces/fixed/secrets")).await
        }));
        cases.push(case(
            "request body still sent while the answer comes, of the ring",
            &pair,
            move |fixture, mark| async move {
                let probe = Probe::by(&fixture, &mark, client, upstream);
                echo(&probe, &Ask::new(Method::POST, MAPS)).await?;
                echo(&probe, &Ask::new(Method::PUT, format!("{MAPS}/{}1", probe.shard.owns))).await?;
                echo(&probe, &Ask::new(Method::PATCH, format!("{MAPS}/free-1"))).await
            },
        ));
        for (what, collection) in [
            ("a controlled resource", CONTROLLED),
            ("a Lease in the shard's namespace", LEASES),
            ("a ConfigMap in the shard's namespace", CONFIG_MAPS),
        ] {
            let behaviour = format!("request body still sent while the answer comes, of {what}");
            cases.push(case(&behaviour, &pair, move |fixture, mark| async move {
                collected(&Probe::by(&fixture, &mark, client, upstream), collection).await
            }));
        }
        cases.push(case("head of an idle watch, at once", &pair, move |fixture, mark| async move {
            idle(&Probe::by(&fixture, &mark, client, upstream), &fixture.end).await
        }));
    }
    cases
}

async fn in_pieces(probe: &Probe<'_>) -> Result<Outcome> {
    let object = Bytes::from(serde_json::to_vec(&map("in-pieces", [].into(), 50_000))?);
    let mut ask = Ask::new(Method::POST, format!("/api/v1/namespaces/{FIXED}/configmaps?dryRun=All"))
        .header("content-type", "application/json")
        .unsized_body();
    let body = || {
        let pieces: Vec<_> = object.chunks(9_000).map(Bytes::copy_from_slice).collect();
        StreamBody::new(futures::stream::iter(pieces).map(|piece| Ok::<_, Infallible>(Frame::data(piece))))
    };
    let direct = probe.shard.direct.open_with(probe.http, &ask, probe.mark, body()).await?.collect().await?;
    let proxied = probe.shard.proxied.open_with(probe.http, &ask, probe.mark, body()).await?.collect().await?;
    let arrived = probe.arrived()?;
    ensure!(!arrived.headers.contains_key(header::CONTENT_LENGTH), "it arrived with a length");
    // HTTP/2 has no `Transfer-Encoding`: the client's, over HTTP/1.1, was about its own connection.
    let chunked = HeaderMap::from_iter([(header::TRANSFER_ENCODING, "chunked".parse()?)]);
    if probe.http == Http::One {
        changes::note(changes::SENT, &changes::REQUEST, &chunked, &arrived.headers);
    }
    ask.body = object;
    probe.check_arrival(&ask, &arrived, Rewritten::default())?;
    passed_on(&arrived, &proxied, Extent::Whole)?;
    ensure!(direct.status == StatusCode::CREATED, "{}", direct.text());
    answers(&direct, &proxied, OF_A_WRITE)
}

/// Each piece comes back before the next one is sent.
async fn echo(probe: &Probe<'_>, ask: &Ask) -> Result<Outcome> {
    probe.shard.relay.answer(probe.mark, Script::new(StatusCode::OK).part(Part::Echo));
    let ask = ask.clone().unsized_body();
    let mut came = Vec::new();
    for (endpoint, http) in [(&probe.shard.scripted, probe.of_relay()), (&probe.shard.proxied, probe.http)] {
        probe.shard.relay.take(probe.mark);
        let (mut pieces, body) = mpsc::unbounded::<Bytes>();
        pieces.start_send(Bytes::from_static(b"first"))?;
        let body = StreamBody::new(body.map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
        let mut answer = endpoint.open_with(http, &ask, probe.mark, body).await?;
        answer.until(|read| read == b"first").await?;
        pieces.start_send(Bytes::from_static(b"second"))?;
        answer.until(|read| read == b"second").await?;
        pieces.close_channel();
        let answered = answer.without_body();
        came.push(Answer { body: answer.collect().await?.body, ..answered });
    }
    let ask = Ask { body: "firstsecond".into(), ..ask };
    probe.check_arrival(&ask, &probe.arrived()?, Rewritten::default())?;
    ensure!(came[1].body.is_empty(), "more came back than was sent");
    answers(&came[0], &came[1], Bodies::Exact)
}

/// Nothing arrives before all is there.
async fn collected(probe: &Probe<'_>, collection: &str) -> Result<Outcome> {
    probe.shard.relay.answer(probe.mark, Script::new(StatusCode::OK).part(Part::Echo));
    let ask = Ask::new(Method::POST, collection).unsized_body().header("content-type", "application/json");
    let (mut pieces, body) = mpsc::channel::<Bytes>(0);
    let body = StreamBody::new(body.map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
    let answered = probe.shard.proxied.open_with(probe.http, &ask, probe.mark, body);
    let sending = async {
        // It is on its way when this returns, and what is streamed has arrived when another connection was made and answered.
        pieces.send(Bytes::from_static(b"{\"metadata\":")).await?;
        let (other, version) = (format!("{}-other", probe.mark), Ask::get("/version"));
        probe.shard.proxied.exchange(probe.http, &version, &other).await?;
        ensure!(!probe.shard.relay.has(probe.mark), "it arrived before all of it was there");
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
    probe.check_arrival(&sent, &arrived, Rewritten::default())?;
    Ok(Outcome::Changed(
        "sent on when all of it is there, 3 MiB at most: the proxy reads who controls it, or who leads",
    ))
}

/// A watch in a namespace without objects, from now on: nothing comes but the head, for 30 s.
async fn idle(probe: &Probe<'_>, from: &str) -> Result<Outcome> {
    let watch = format!("watch=1&resourceVersion={from}&timeoutSeconds=30");
    let ask = Ask::get(format!("/api/v1/namespaces/nowhere/configmaps?{watch}"));
    let begun = Instant::now();
    let direct = probe.shard.direct.open(probe.http, &ask, probe.mark).await?;
    let at_once = begun.elapsed() + AT_ONCE;
    let proxied = timeout(at_once, probe.shard.proxied.open(probe.http, &ask, probe.mark)).await;
    let proxied = proxied.with_context(|| format!("no head within {at_once:?}, while nothing happened"))??;
    ensure!(direct.head.status == StatusCode::OK, "without the proxy {}", direct.head.status);
    let outcome = answers(&direct.without_body(), &proxied.without_body(), Bodies::Exact)?;
    let arrived = probe.arrived()?;
    let rewritten = probe.narrowing(&["accept-encoding"]);
    probe.check_arrival(&ask, &arrived, rewritten)?;
    Ok(outcome)
}
