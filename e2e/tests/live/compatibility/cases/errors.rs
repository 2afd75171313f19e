//! Refusals and warnings: the API server's own, as it made them, and those that a real one makes seldom.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use http::{HeaderMap, Method, StatusCode, header};
use ringside_e2e::{
    compatibility::{Outcome, interim::statuses},
    eventually::eventually,
    relay::{Part, Script},
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::compatibility::{
    client::{Answer, Ask, Endpoint, Http},
    compare::{Bodies, Extent, OF_A_WRITE, Probe, Rewritten, answers, passed_on},
    fixture::{DEADLINE, Fixture},
    raw::Raw,
    stream::PROTOBUF,
    table::{Case, case},
};

const MAPS: &str = "/api/v1/namespaces/fixed/configmaps";
const SITES: &str = "/apis/web.example.com/v1/namespaces/fixed/websites";
const JSON: &str = "application/json";

type Asks = fn(&Fixture) -> Ask;

fn map(body: &'static str) -> Ask {
    Ask::new(Method::POST, MAPS).body(JSON, body)
}

/// What the API server refuses, each time alike.
const REFUSED: [(&str, &str, Asks); 16] = [
    ("404", "no such object", |_| Ask::get(format!("{MAPS}/nobody"))),
    ("404", "no such resource", |_| Ask::get("/apis/web.example.com/v1/nothings")),
    ("404", "no such path", |_| Ask::get("/nowhere/at/all")),
    ("403", "forbidden", |_| Ask::get("/api/v1/nodes")),
    ("403", "forbidden to who is impersonated", |_| {
        Ask::get(format!("{MAPS}/own-1")).header("impersonate-user", "nobody")
    }),
    ("403", "may not impersonate", |_| {
        Ask::get("/version").header("impersonate-user", "x").header("impersonate-extra-y", "z")
    }),
    ("405", "no such verb", |_| Ask::new(Method::POST, format!("{MAPS}/own-1"))),
    ("406", "no such form", |_| Ask::get(format!("{MAPS}/own-1")).accept("text/html")),
    ("406", "protobuf of a custom resource", |_| Ask::get(format!("{SITES}/own-1")).accept(PROTOBUF)),
    ("409", "conflict with a newer state", |_| {
        let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"own-1","resourceVersion":"1"}}"#;
        Ask::new(Method::PUT, format!("{MAPS}/own-1")).body(JSON, body)
    }),
    ("409", "exists already", |_| map(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"own-1"}}"#)),
    ("410", "list of a state that is compacted", |_| {
        // Older than the API server's cache, which begins with the resource's definition.
        Ask::get(format!("{RINGS}?resourceVersion=2&resourceVersionMatch=Exact"))
    }),
    ("415", "unknown form of a body", |_| Ask::new(Method::POST, MAPS).body("text/plain", "x")),
    ("422", "not valid", |_| map(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"-"}}"#)),
    ("400", "no JSON", |_| map("{")),
    ("400", "another kind", |_| map(r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}"#)),
];

const RINGS: &str = "/apis/sharding.timebertt.dev/v1alpha1/clusterrings";

/// The same of lists of the ring: the refusal comes for the narrowed request.
const REFUSED_LISTS: [(&str, &str, Asks); 3] = [
    ("400", "continue token that is none", |_| Ask::get(format!("{MAPS}?limit=1&continue=AAAA"))),
    ("406", "list of a custom resource as protobuf", |_| Ask::get(SITES).accept(PROTOBUF)),
    ("400", "no field selector", |_| Ask::get(format!("{MAPS}?fieldSelector=spec.nothing%3D1"))),
];

/// What a server under load answers, or one that is on its way out.
const SELDOM: [(&str, StatusCode, Option<&str>); 6] = [
    ("410 Gone", StatusCode::GONE, None),
    ("429 with Retry-After", StatusCode::TOO_MANY_REQUESTS, Some("7")),
    ("503 with Retry-After", StatusCode::SERVICE_UNAVAILABLE, Some("3")),
    ("500", StatusCode::INTERNAL_SERVER_ERROR, None),
    ("504", StatusCode::GATEWAY_TIMEOUT, None),
    ("a status that nobody knows", StatusCode::IM_A_TEAPOT, None),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (status, reason, ask) in REFUSED {
        cases.push(case(status, reason, move |fixture, mark| async move {
            let (probe, ask) = (Probe::new(&fixture, &mark), ask(&fixture));
            probe.same_as(&ask, status.parse()?).await
        }));
    }
    for (status, reason, ask) in REFUSED_LISTS {
        cases.push(case(status, reason, move |fixture, mark| async move {
            let (probe, ask) = (Probe::new(&fixture, &mark), ask(&fixture));
            let rewritten = probe.narrowing(&[]);
            let (direct, (proxied, _)) = tokio::try_join!(probe.past(&ask), probe.through(&ask, rewritten))?;
            ensure!(direct.status.as_str() == status, "{}: {}", direct.status, direct.text());
            answers(&direct, &proxied, Bodies::Exact)
        }));
    }
    for (client, upstream) in Http::PAIRS {
        let pair = client.towards(upstream);
        for (behaviour, status, retry_after) in SELDOM {
            cases.push(case(behaviour, &pair, move |fixture, mark| async move {
                seldom(&Probe::by(&fixture, &mark, client, upstream), status, retry_after).await
            }));
        }
        cases.push(case("an answer that takes its time", &pair, move |fixture, mark| async move {
            slow(&Probe::by(&fixture, &mark, client, upstream)).await
        }));
        cases.push(case("an answer that breaks off", &pair, move |fixture, mark| async move {
            broken(&Probe::by(&fixture, &mark, client, upstream)).await
        }));
        cases.push(case("no answer, to what only reads", &pair, move |fixture, mark| async move {
            once_more(&Probe::by(&fixture, &mark, client, upstream)).await
        }));
        cases.push(case("no answer, to a write", &pair, move |fixture, mark| async move {
            no_answer(&Probe::by(&fixture, &mark, client, upstream)).await
        }));
        cases.push(case("trailers of an answer", &pair, move |fixture, mark| async move {
            trailers(&Probe::by(&fixture, &mark, client, upstream)).await
        }));
    }
    cases.push(case(
        "trailers of an answer",
        "HTTP/1.1, to a client that does not ask for them",
        |fixture, mark| async move { unasked(&Probe::by(&fixture, &mark, Http::One, Http::Two)).await },
    ));
    for client in Http::BOTH {
        let form = format!("103 Early Hints, {} to HTTP/1.1", client.name());
        cases.push(case("interim answer", &form, move |fixture, mark| async move {
            interim(&Probe::by(&fixture, &mark, client, Http::One)).await
        }));
    }
    cases.extend(warnings());
    cases
}

fn status_object(status: StatusCode) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "too much",
        "reason": "Seldom", "details": {"retryAfterSeconds": 7}, "code": status.as_u16(),
    })
}

/// The same for each verb that is sent on in a way of its own.
async fn seldom(probe: &Probe<'_>, status: StatusCode, retry_after: Option<&str>) -> Result<Outcome> {
    let mut script = Script::new(status).header("content-type", JSON).bytes(status_object(status).to_string());
    script =
        script.header("x-kubernetes-pf-flowschema-uid", "a-uid").header("x-kubernetes-pf-prioritylevel-uid", "b-uid");
    if let Some(seconds) = retry_after {
        script = script.header("retry-after", seconds);
    }
    probe.shard.relay.answer(probe.mark, script);
    let (plain, narrowed) = (Rewritten::default(), probe.narrowing(&[]));
    let object = format!("{MAPS}/{}1", probe.shard.owns);
    let asks = [
        (Ask::get("/version"), plain),
        (Ask::get(&object), plain),
        (Ask::get(MAPS), narrowed),
        (Ask::get(format!("{MAPS}?watch=1")), probe.narrowing(&["accept-encoding"])),
        (Ask::new(Method::PATCH, &object).body("application/merge-patch+json", "{}"), plain),
    ];
    for (ask, rewritten) in asks {
        probe.scripted(&ask, rewritten).await?;
    }
    // Whoever repeats a request does more than was asked: each arrives once.
    probe.scripted(&Ask::new(Method::DELETE, MAPS), narrowed).await
}

/// The answer waits until the request is there.
async fn slow(probe: &Probe<'_>) -> Result<Outcome> {
    let said = Arc::new(Notify::new());
    let script = Script { after: Some(said.clone()), ..Script::new(StatusCode::OK).bytes("at last") };
    probe.shard.relay.answer(probe.mark, script);
    let answering = async || {
        let arrives = eventually("the request arrives", DEADLINE, || async {
            if probe.shard.relay.has(probe.mark) { Ok(()) } else { Err("not yet".to_owned()) }
        });
        arrives.await?;
        said.notify_one();
        anyhow::Ok(())
    };
    let ask = Ask::get(format!("{MAPS}/{}1", probe.shard.owns));
    let (direct, ()) =
        tokio::try_join!(probe.shard.scripted.exchange(probe.of_relay(), &ask, probe.mark), answering())?;
    probe.shard.relay.take(probe.mark);
    let ((proxied, _), ()) = tokio::try_join!(probe.through(&ask, Rewritten::default()), answering())?;
    ensure!(direct.text() == "at last", "{}", direct.text());
    answers(&direct, &proxied, Bodies::Exact)
}

/// The client must not take half a list for a whole one.
async fn broken(probe: &Probe<'_>) -> Result<Outcome> {
    let asks = [
        (Ask::get(MAPS), probe.narrowing(&[])),
        (Ask::get("/api/v1/namespaces/fixed/secrets"), Rewritten::default()),
        // Of an object of the ring nothing is passed on before its labels were read.
        (Ask::get("/api/v1/namespaces/fixed/secrets/one"), Rewritten::default()),
    ];
    let mut outcome = None;
    for (ask, rewritten) in asks {
        let direct = half(probe, &probe.shard.scripted, probe.of_relay(), &ask).await.context("without the proxy")?;
        probe.shard.relay.take(probe.mark);
        let proxied = half(probe, &probe.shard.proxied, probe.http, &ask).await.context("through the proxy")?;
        let arrived = probe.arrived()?;
        probe.check_arrival(&ask, &arrived, rewritten)?;
        passed_on(&arrived, &proxied, Extent::Begin)?;
        outcome = Some(answers(&direct, &proxied, Bodies::Exact)?);
    }
    outcome.context("nothing was compared")
}

/// What the proxy says where the API server's connection, or the stream, ends before the answer begins.
async fn where_none_answers(probe: &Probe<'_>, ask: &Ask) -> Result<Answer> {
    let script = || Script::new(StatusCode::OK).bytes("{}").after_no_answer();
    probe.shard.relay.answer(probe.mark, script());
    let direct = probe.shard.scripted.exchange(probe.of_relay(), ask, probe.mark).await;
    ensure!(direct.is_err(), "there is an answer: {direct:?}");
    probe.shard.relay.take(probe.mark);
    probe.shard.relay.answer(probe.mark, script());
    probe.shard.proxied.exchange(probe.http, ask, probe.mark).await
}

/// The connection ends, or the stream, before the answer begins. Once more the request finds an answer.
async fn once_more(probe: &Probe<'_>) -> Result<Outcome> {
    for (ask, rewritten) in [
        (Ask::get("/version"), Rewritten::default()),
        (Ask::get("/api/v1/namespaces/fixed/secrets"), Rewritten::default()),
        (Ask::get(MAPS), probe.narrowing(&[])),
    ] {
        let proxied = where_none_answers(probe, &ask).await?;
        let arrived = probe.shard.relay.take(probe.mark);
        ensure!(arrived.len() == 2, "{} requests arrived: {arrived:#?}", arrived.len());
        for one in &arrived {
            probe.check_arrival(&ask, one, rewritten)?;
        }
        passed_on(&arrived[1], &proxied, Extent::Whole)?;
    }
    Ok(Outcome::Changed("sent once more, as Go's client does: it changes nothing"))
}

/// Nobody knows whether it was done.
async fn no_answer(probe: &Probe<'_>) -> Result<Outcome> {
    let target = format!("{MAPS}/{}1", probe.shard.owns);
    let ask = Ask::new(Method::PATCH, &target).body("application/merge-patch+json", "{}");
    let proxied = where_none_answers(probe, &ask).await?;
    // Nobody reads its body.
    let arrived = probe.arrived()?;
    ensure!((&arrived.method, &arrived.target) == (&ask.method, &target), "{arrived:#?}");
    ensure!(proxied.status == StatusCode::BAD_GATEWAY, "{}: {}", proxied.status, proxied.text());
    ensure!(!proxied.headers.contains_key(header::RETRY_AFTER), "{:?}", proxied.headers);
    Ok(Outcome::Changed(
        "answered with 502, where the API server's connection would break off: sent once, and not known to be done",
    ))
}

/// Reads an answer as far as it comes, and expects that its end is an error.
async fn half(probe: &Probe<'_>, endpoint: &Endpoint, http: Http, ask: &Ask) -> Result<Answer> {
    let read = Arc::new(Notify::new());
    let half = Script::new(StatusCode::OK).bytes("{\"items\":[").part(Part::Break(read.clone()));
    probe.shard.relay.answer(probe.mark, half);
    let mut answer = endpoint.open(http, ask, probe.mark).await?;
    let body = answer.until(|read| read.ends_with(b"[")).await?.into();
    read.notify_one();
    let end = answer.piece().await;
    ensure!(end.is_err(), "{}: it ended as if it were whole", ask.target);
    Ok(Answer { body, ..answer.without_body() })
}

/// By HTTP/1.1 they come to who says that it takes them.
async fn trailers(probe: &Probe<'_>) -> Result<Outcome> {
    let trailers = HeaderMap::from_iter([(header::ETAG, "\"x\"".parse()?)]);
    let script = Script::new(StatusCode::OK).header("trailer", "etag").bytes("body");
    probe.shard.relay.answer(probe.mark, Script { trailers: Some(trailers.clone()), ..script });
    let ask = Ask::get("/version").header("te", "trailers");
    let (proxied, _) = probe.through(&ask, Rewritten::default()).await?;
    ensure!(proxied.trailers == Some(trailers), "{:?}", proxied.trailers);
    probe.scripted(&ask, Rewritten::default()).await
}

/// Go's servers send them to whoever can read them.
async fn unasked(probe: &Probe<'_>) -> Result<Outcome> {
    let trailers = HeaderMap::from_iter([(header::ETAG, "\"x\"".parse()?)]);
    let script = Script::new(StatusCode::OK).header("trailer", "etag").bytes("body");
    probe.shard.relay.answer(probe.mark, Script { trailers: Some(trailers.clone()), ..script });
    let proxied = probe.shard.proxied.exchange(probe.http, &Ask::get("/version"), probe.mark).await?;
    let arrived = probe.arrived()?;
    probe.check_arrival(&Ask::get("/version"), &arrived, Rewritten::default())?;
    let sent = arrived.answer.and_then(|answer| answer.trailers);
    ensure!(sent == Some(trailers) && proxied.trailers.is_none(), "{sent:?} became {:?}", proxied.trailers);
    ensure!(proxied.text() == "body", "{}", proxied.text());
    Ok(Outcome::Gap("left out: the HTTP library writes them to who says `TE: trailers` (RFC 9110, section 6.5.1)"))
}

/// What comes before the answer, other than `100 Continue`, does not come through; the answer does.
async fn interim(probe: &Probe<'_>) -> Result<Outcome> {
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    let script = Script { interim: Some(hint), ..Script::new(StatusCode::OK).bytes("body") };
    probe.shard.relay.answer(probe.mark, script);
    let ask = Ask::get("/version");
    let mut direct = Raw::send(&probe.shard.scripted, &ask, probe.mark).await?;
    let sent = [direct.head().await?.status, direct.head().await?.status];
    ensure!(sent[0].contains("103") && sent[1].contains("200"), "{sent:?}");
    match probe.http {
        Http::One => {
            let first = Raw::send(&probe.shard.proxied, &ask, probe.mark).await?.head().await?;
            ensure!(first.status.contains("200"), "{}", first.status);
        }
        Http::Two => {
            let came = statuses(&probe.shard.proxied, &ask, probe.mark).await?;
            ensure!(came == [StatusCode::OK], "{came:?}");
        }
    }
    probe.shard.relay.take(probe.mark);
    probe.scripted(&ask, Rewritten::default()).await?;
    Ok(Outcome::Gap(
        "left out: the HTTP library can't write one; the API server has none of its own but `100 Continue`",
    ))
}

/// As many as strict validation may find, and more.
const WARNINGS: usize = 150;

fn warnings() -> Vec<Case> {
    let has_warning = |answer: &Answer| answer.headers.contains_key(header::WARNING);
    let few = [
        case("Warning headers", "of a deprecated API", move |fixture, mark| async move {
            let (probe, ask) = (Probe::new(&fixture, &mark), Ask::get("/api/v1/namespaces/fixed/endpoints/nobody"));
            ensure!(has_warning(&probe.past(&ask).await?), "there is no warning");
            probe.same_as(&ask, StatusCode::NOT_FOUND).await
        }),
        case("Warning headers", "of an admission policy", move |fixture, mark| async move {
            let probe = Probe::new(&fixture, &mark);
            let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"warned"},"data":{"warn":""}}"#;
            let ask = Ask::new(Method::POST, format!("{MAPS}?dryRun=All")).body(JSON, body);
            // A policy acts a second or so after it was made.
            eventually("the policy warns", DEADLINE, || async {
                let answer = probe.past(&ask).await.map_err(|error| error.to_string())?;
                has_warning(&answer).then_some(()).ok_or_else(|| answer.text())
            })
            .await?;
            probe.same_with(&ask, OF_A_WRITE).await
        }),
        case("Warning headers", "several in an answer", |fixture, mark| async move {
            let probe = Probe::new(&fixture, &mark);
            let script = Script::new(StatusCode::OK).bytes("{}");
            let script = script.header("warning", "299 - \"one\"").header("warning", "299 - \"two, too\"");
            probe.shard.relay.answer(&mark, script);
            let ask = Ask::get(MAPS);
            let (proxied, _) = probe.through(&ask, probe.narrowing(&[])).await?;
            ensure!(proxied.headers.get_all(header::WARNING).iter().count() == 2, "{:?}", proxied.headers);
            probe.scripted(&ask, probe.narrowing(&[])).await
        }),
    ];
    let many = Http::PAIRS.into_iter().map(|(http, upstream)| {
        let form = format!("{WARNINGS} in an answer, {}", http.towards(upstream));
        case("Warning headers", &form, move |fixture, mark| async move {
            let probe = Probe::by(&fixture, &mark, http, upstream);
            let warn = |script: Script, number| script.header("warning", &format!("299 - \"number {number}\""));
            probe.shard.relay.answer(&mark, (0..WARNINGS).fold(Script::new(StatusCode::OK).bytes("{}"), warn));
            let ask = Ask::get("/version");
            let (proxied, _) = probe.through(&ask, Rewritten::default()).await?;
            let came = proxied.headers.get_all(header::WARNING).iter().count();
            ensure!(came == WARNINGS, "{came} came");
            probe.scripted(&ask, Rewritten::default()).await
        })
    });
    few.into_iter().chain(many).collect()
}
