//! Refusals and warnings: the API server's own, as it made them, and those that a real one makes seldom.

use ringside_e2e::{compatibility::interim::statuses, relay::Part};
use tokio::sync::Notify;

use super::*;

type Asks = fn() -> Ask;

fn map(body: &'static str) -> Ask {
    Ask::new(Method::POST, MAPS).body(JSON, body)
}

/// What the API server refuses, each time alike.
const REFUSED: [(&str, &str, Asks); 16] = [
    ("404", "no such object", || Ask::get(format!("{MAPS}/nobody"))),
    ("404", "no such resource", || Ask::get("/apis/web.example.com/v1/nothings")),
    ("404", "no such path", || Ask::get("/nowhere/at/all")),
    ("403", "forbidden", || Ask::get("/api/v1/nodes")),
    ("403", "forbidden to who is impersonated", || {
        Ask::get(format!("{MAPS}/own-1")).header("impersonate-user", "nobody")
    }),
    ("403", "may not impersonate", || {
        Ask::get("/version").header("impersonate-user", "x").header("impersonate-extra-y", "z")
    }),
    ("405", "no such verb", || Ask::new(Method::POST, format!("{MAPS}/own-1"))),
    ("406", "no such form", || Ask::get(format!("{MAPS}/own-1")).accept("text/html")),
    ("406", "protobuf of a custom resource", || Ask::get(format!("{SITES}/own-1")).accept(PROTOBUF)),
    ("409", "conflict with a newer state", || {
        let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"own-1","resourceVersion":"1"}}"#;
        Ask::new(Method::PUT, format!("{MAPS}/own-1")).body(JSON, body)
    }),
    ("409", "exists already", || map(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"own-1"}}"#)),
    ("410", "list of a state that is compacted", || {
        // Older than the API server's cache, which begins with the resource's definition.
        Ask::get(format!("{RINGS}?resourceVersion=2&resourceVersionMatch=Exact"))
    }),
    ("415", "unknown form of a body", || Ask::new(Method::POST, MAPS).body("text/plain", "x")),
    ("422", "not valid", || map(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"-"}}"#)),
    ("400", "no JSON", || map("{")),
    ("400", "another kind", || map(r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}"#)),
];

const RINGS: &str = "/apis/sharding.timebertt.dev/v1alpha1/clusterrings";

/// The same of lists of the ring: the refusal comes for the narrowed request.
const REFUSED_LISTS: [(&str, &str, Asks); 3] = [
    ("400", "continue token that is none", || Ask::get(format!("{MAPS}?limit=1&continue=AAAA"))),
    ("406", "list of a custom resource as protobuf", || Ask::get(SITES).accept(PROTOBUF)),
    ("400", "no field selector", || Ask::get(format!("{MAPS}?fieldSelector=spec.nothing%3D1"))),
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
        cases.push(case(status, reason, async move |probe| probe.same_as(&ask(), status.parse()?).await));
    }
    for (status, reason, ask) in REFUSED_LISTS {
        cases.push(case(status, reason, async move |probe| {
            let ask = ask();
            let (direct, (proxied, _)) = tokio::try_join!(probe.past(&ask), probe.through(&ask, SELECTED))?;
            ensure!(direct.status.as_str() == status, "{}: {}", direct.status, direct.text());
            answers(&direct, &proxied, Bodies::Exact)
        }));
    }
    for (behaviour, status, retry_after) in SELDOM {
        cases.extend(by_pair(behaviour, move |probe| seldom(probe, status, retry_after)));
    }
    cases.extend(by_pair("an answer that takes its time", slow));
    cases.extend(by_pair("an answer that breaks off", broken));
    cases.extend(by_pair("no answer, to what only reads", once_more));
    cases.extend(by_pair("no answer, to a write", no_answer));
    cases.extend(by_pair("trailers of an answer", trailers));
    let unasked_for = "HTTP/1.1, to a client that does not ask for them";
    cases.push(case("trailers of an answer", unasked_for, unasked).by_http1());
    for client in Http::BOTH {
        let form = format!("103 Early Hints, {} to HTTP/1.1", client.name());
        cases.push(case("interim answer", &form, interim).by((client, Http::One)));
    }
    cases.extend(warnings());
    cases
}

/// The same for each verb that is sent on in a way of its own.
async fn seldom(probe: Probe, status: StatusCode, retry_after: Option<&str>) -> Result<Outcome> {
    let said = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "too much",
        "reason": "Seldom", "details": {"retryAfterSeconds": 7}, "code": status.as_u16(),
    });
    let headers = [("x-kubernetes-pf-flowschema-uid", "a-uid"), ("x-kubernetes-pf-prioritylevel-uid", "b-uid")];
    let headers = headers.into_iter().chain(retry_after.map(|seconds| ("retry-after", seconds)));
    let script = Script::new(status).json(&said);
    probe.script(headers.fold(script, |script, (name, value)| script.header(name, value)));
    let object = format!("{MAPS}/{}1", probe.shard.owns);
    for (ask, rewritten) in [
        (Ask::get("/version"), AS_SENT),
        (Ask::get(&object), AS_SENT),
        (Ask::get(MAPS), SELECTED),
        (Ask::get(format!("{MAPS}?watch=1")), WATCHED),
        (Ask::new(Method::PATCH, &object).body(MERGE, "{}"), AS_SENT),
        // A repeated request would do more than was asked: each arrives once.
        (Ask::new(Method::DELETE, MAPS), SELECTED),
    ] {
        probe.scripted(&ask, rewritten).await?;
    }
    Ok(Outcome::Same)
}

/// The answer waits until the request is there.
async fn slow(probe: Probe) -> Result<Outcome> {
    let said = Arc::new(Notify::new());
    let script = Script { after: Some(said.clone()), ..Script::new(StatusCode::OK).bytes("at last") };
    probe.script(script);
    let answering = async || {
        let arrives = eventually("the request arrives", DEADLINE, || async {
            if probe.shard.relay.has(&probe.mark) { Ok(()) } else { Err("not yet".to_owned()) }
        });
        arrives.await?;
        said.notify_one();
        anyhow::Ok(())
    };
    let ask = Ask::get(format!("{MAPS}/{}1", probe.shard.owns));
    let (direct, ()) = tokio::try_join!(probe.past_by_script(&ask), answering())?;
    let ((proxied, _), ()) = tokio::try_join!(probe.through(&ask, AS_SENT), answering())?;
    ensure!(direct.text() == "at last", "{}", direct.text());
    answers(&direct, &proxied, Bodies::Exact)
}

/// The client must not take half a list for a whole one.
async fn broken(probe: Probe) -> Result<Outcome> {
    // Of an object of the ring nothing is passed on before its labels were read.
    let one = format!("{SECRETS}/one");
    for (ask, rewritten) in [(Ask::get(MAPS), SELECTED), (Ask::get(SECRETS), AS_SENT), (Ask::get(one), AS_SENT)] {
        let direct = half(&probe, &probe.shard.scripted, probe.of_relay(), &ask).await.context("without the proxy")?;
        probe.take();
        let proxied = half(&probe, &probe.shard.proxied, probe.http, &ask).await.context("through the proxy")?;
        let arrived = probe.arrived_as(&ask, rewritten)?;
        passed_on(&arrived, &proxied, Extent::Begin)?;
        answers(&direct, &proxied, Bodies::Exact)?;
    }
    Ok(Outcome::Same)
}

/// What the proxy says where the API server's connection, or the stream, ends before the answer begins.
async fn where_none_answers(probe: &Probe, ask: &Ask) -> Result<Answer> {
    let script = || Script::new(StatusCode::OK).bytes("{}").after_no_answer();
    probe.script(script());
    let direct = probe.past_by_script(ask).await;
    ensure!(direct.is_err(), "there is an answer: {direct:?}");
    probe.script(script());
    probe.proxied(ask).await
}

/// The connection ends, or the stream, before the answer begins. Once more the request finds an answer.
async fn once_more(probe: Probe) -> Result<Outcome> {
    for (ask, rewritten) in [(Ask::get("/version"), AS_SENT), (Ask::get(SECRETS), AS_SENT), (Ask::get(MAPS), SELECTED)]
    {
        let proxied = where_none_answers(&probe, &ask).await?;
        let arrived = probe.take();
        ensure!(arrived.len() == 2, "{} requests arrived: {arrived:#?}", arrived.len());
        for one in &arrived {
            probe.check_arrival(&ask, one, rewritten)?;
        }
        passed_on(&arrived[1], &proxied, Extent::Whole)?;
    }
    Ok(Outcome::Changed("sent once more, as Go's client does: it changes nothing"))
}

/// Nobody knows whether it was done.
async fn no_answer(probe: Probe) -> Result<Outcome> {
    let target = format!("{MAPS}/{}1", probe.shard.owns);
    let ask = Ask::new(Method::PATCH, &target).body(MERGE, "{}");
    let proxied = where_none_answers(&probe, &ask).await?;
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
async fn half(probe: &Probe, endpoint: &Endpoint, http: Http, ask: &Ask) -> Result<Answer> {
    let read = Arc::new(Notify::new());
    let half = Script::new(StatusCode::OK).bytes("{\"items\":[").part(Part::Break(read.clone()));
    probe.script(half);
    let mut answer = endpoint.open(http, ask, &probe.mark).await?;
    let body = answer.until(|read| read.ends_with(b"[")).await?.into();
    read.notify_one();
    let end = answer.piece().await;
    ensure!(end.is_err(), "{}: it ended as if it were whole", ask.target);
    Ok(Answer { body, ..answer.without_body() })
}

/// Has the API server send trailers, which are these.
fn with_trailers(probe: &Probe) -> Result<HeaderMap> {
    let trailers = HeaderMap::from_iter([(header::ETAG, "\"x\"".parse()?)]);
    let script = Script::new(StatusCode::OK).header("trailer", "etag").bytes("body");
    probe.script(Script { trailers: Some(trailers.clone()), ..script });
    Ok(trailers)
}

/// By HTTP/1.1 they come to who says that it takes them.
async fn trailers(probe: Probe) -> Result<Outcome> {
    let (trailers, ask) = (with_trailers(&probe)?, Ask::get("/version").header("te", "trailers"));
    let (proxied, _) = probe.through(&ask, AS_SENT).await?;
    ensure!(proxied.trailers == Some(trailers), "{:?}", proxied.trailers);
    probe.scripted(&ask, AS_SENT).await
}

/// Go's servers send them to whoever can read them.
async fn unasked(probe: Probe) -> Result<Outcome> {
    let (trailers, ask) = (with_trailers(&probe)?, Ask::get("/version"));
    let proxied = probe.proxied(&ask).await?;
    let sent = probe.arrived_as(&ask, AS_SENT)?.answer.and_then(|answer| answer.trailers);
    ensure!(sent == Some(trailers) && proxied.trailers.is_none(), "{sent:?} became {:?}", proxied.trailers);
    ensure!(proxied.text() == "body", "{}", proxied.text());
    Ok(Outcome::Gap("left out: the HTTP library writes them to who says `TE: trailers` (RFC 9110, section 6.5.1)"))
}

/// What comes before the answer, other than `100 Continue`, does not come through; the answer does.
async fn interim(probe: Probe) -> Result<Outcome> {
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    let script = Script { interim: Some(hint), ..Script::new(StatusCode::OK).bytes("body") };
    probe.script(script);
    let ask = Ask::get("/version");
    let mut direct = Raw::send(&probe.shard.scripted, &ask, &probe.mark).await?;
    let sent = [direct.head().await?.status, direct.head().await?.status];
    ensure!(sent[0].contains("103") && sent[1].contains("200"), "{sent:?}");
    match probe.http {
        Http::One => {
            let first = Raw::send(&probe.shard.proxied, &ask, &probe.mark).await?.head().await?;
            ensure!(first.status.contains("200"), "{}", first.status);
        }
        Http::Two => {
            let came = statuses(&probe.shard.proxied, &ask, &probe.mark).await?;
            ensure!(came == [StatusCode::OK], "{came:?}");
        }
    }
    probe.take();
    probe.scripted(&ask, AS_SENT).await?;
    Ok(Outcome::Gap(
        "left out: the HTTP library can't write one; the API server has none of its own but `100 Continue`",
    ))
}

/// As many as strict validation may find, and more.
const WARNINGS: usize = 150;

fn warnings() -> Vec<Case> {
    let has_warning = |answer: &Answer| answer.headers.contains_key(header::WARNING);
    let few = [
        case("Warning headers", "of a deprecated API", async move |probe| {
            let ask = Ask::get("/api/v1/namespaces/fixed/endpoints/nobody");
            ensure!(has_warning(&probe.past(&ask).await?), "there is no warning");
            probe.same_as(&ask, StatusCode::NOT_FOUND).await
        }),
        case("Warning headers", "of an admission policy", async move |probe| {
            let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"warned"},"data":{"warn":""}}"#;
            let ask = Ask::new(Method::POST, format!("{MAPS}?dryRun=All")).body(JSON, body);
            // A policy acts a second or so after it was made.
            eventually("the policy warns", DEADLINE, || async {
                let answer = probe.past(&ask).await.map_err(|error| error.to_string())?;
                has_warning(&answer).then_some(()).ok_or_else(|| answer.text())
            })
            .await?;
            probe.same_with(&ask, OF_A_WRITE, Expected::Done).await
        }),
        case("Warning headers", "several in an answer", |probe| {
            let texts = ["299 - \"one\"", "299 - \"two, too\""].map(str::to_owned);
            warned(probe, texts.into(), Ask::get(MAPS), SELECTED)
        }),
    ];
    let many = Http::PAIRS.into_iter().map(|pair| {
        let form = format!("{WARNINGS} in an answer, {}", pair.0.towards(pair.1));
        let texts = || (0..WARNINGS).map(|number| format!("299 - \"number {number}\"")).collect();
        case("Warning headers", &form, move |probe| warned(probe, texts(), Ask::get("/version"), AS_SENT)).by(pair)
    });
    few.into_iter().chain(many).collect()
}

/// All of them come.
async fn warned(probe: Probe, texts: Vec<String>, ask: Ask, rewritten: Rewritten) -> Result<Outcome> {
    let script = Script::new(StatusCode::OK).bytes("{}");
    probe.script(texts.iter().fold(script, |script, text| script.header("warning", text)));
    let (proxied, _) = probe.through(&ask, rewritten).await?;
    let came = proxied.headers.get_all(header::WARNING).iter().count();
    ensure!(came == texts.len(), "{came} came");
    probe.scripted(&ask, rewritten).await
}
