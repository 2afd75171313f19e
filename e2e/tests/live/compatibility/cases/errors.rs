//! Refusals and warnings: the API server's own, as it made them, and those that a real one makes seldom.

use ringside_e2e::relay::Part;
use tokio::sync::Notify;

use super::*;

type Asks = fn() -> Ask;

fn map(body: &'static str) -> Ask {
    Ask::new(Method::POST, MAPS).body(JSON, body)
}

/// What the API server refuses, each time alike.
const REFUSED: [(&str, &str, Asks); 14] = [
    ("404", "no such object", || Ask::get(format!("{MAPS}/nobody"))),
    ("404", "no such path", || Ask::get("/nowhere/at/all")),
    ("403", "forbidden", || Ask::get("/api/v1/nodes")),
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
    ("400", "continue token that is none", || Ask::get(format!("{MAPS}?limit=1&continue=AAAA"))),
    ("406", "list of a custom resource as protobuf", || Ask::get(SITES).accept(PROTOBUF)),
];

const RINGS: &str = "/apis/sharding.timebertt.dev/v1alpha1/clusterrings";

/// What a server under load answers, or one that is on its way out.
const SELDOM: [(&str, (StatusCode, &str)); 5] = [
    ("429 with Retry-After", (StatusCode::TOO_MANY_REQUESTS, "7")),
    ("503 with Retry-After", (StatusCode::SERVICE_UNAVAILABLE, "3")),
    ("410", (StatusCode::GONE, "")),
    ("500", (StatusCode::INTERNAL_SERVER_ERROR, "")),
    ("a status that nobody knows", (StatusCode::IM_A_TEAPOT, "")),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (status, reason, ask) in REFUSED {
        cases.push(case(status, reason, async move |probe| {
            let (ask, expected) = (ask(), Expected::Status(status.parse()?));
            let is_list = ask.method == Method::GET && ask.target.starts_with(MAPS) && ask.target.contains('?');
            let rewritten = if is_list || ask.target == SITES { SELECTED } else { AS_SENT };
            // The refusal is that of the request as it was asked for.
            let (direct, (proxied, _)) = tokio::try_join!(probe.past(&ask), probe.through(&ask, rewritten))?;
            expected.check(&direct)?;
            answers(&direct, &proxied, Bodies::Exact)
        }));
    }
    cases.extend(by_form("an answer that API servers seldom give", SELDOM, seldom));
    cases.extend(by_pair("an answer that breaks off", broken));
    cases.extend(by_pair("no answer, to what only reads", once_more));
    cases.extend(by_pair("no answer, to a write", no_answer));
    cases.extend(by_pair("trailers of an answer", trailers));
    let deprecated = case("Warning headers", "of a deprecated API", async |probe| {
        let ask = Ask::get("/api/v1/namespaces/fixed/endpoints/nobody");
        ensure!(has_warning(&probe.past(&ask).await?), "there is no warning");
        probe.same_as(&ask, StatusCode::NOT_FOUND).await
    });
    cases.push(deprecated.asks_for(Ability::DeprecatedEndpoints));
    cases.push(case("Warning headers", "of an admission policy", warned));
    cases.extend(by_pair("150 Warning headers", many_warnings));
    cases
}

/// The same for each verb that is sent on in a way of its own.
async fn seldom(probe: Probe, (status, retry_after): (StatusCode, &'static str)) -> Result<Outcome> {
    let said = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "too much",
        "reason": "Seldom", "details": {"retryAfterSeconds": 7}, "code": status.as_u16(),
    });
    let headers = [("x-kubernetes-pf-flowschema-uid", "a-uid"), ("retry-after", retry_after)];
    let headers = headers.into_iter().filter(|(_, value)| !value.is_empty());
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

/// It is unknown whether it was done.
async fn no_answer(probe: Probe) -> Result<Outcome> {
    let target = format!("{MAPS}/{}1", probe.shard.owns);
    let ask = Ask::new(Method::PATCH, &target).body(MERGE, "{}");
    let proxied = where_none_answers(&probe, &ask).await?;
    // No server reads its body.
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

/// By HTTP/1.1 they come to who says that it takes them.
async fn trailers(probe: Probe) -> Result<Outcome> {
    let trailers = HeaderMap::from_iter([(header::ETAG, "\"x\"".parse()?)]);
    let script = Script::new(StatusCode::OK).header("trailer", "etag").bytes("body");
    probe.script(Script { trailers: Some(trailers.clone()), ..script });
    let ask = Ask::get("/version").header("te", "trailers");
    let (proxied, _) = probe.through(&ask, AS_SENT).await?;
    ensure!(proxied.trailers == Some(trailers), "{:?}", proxied.trailers);
    probe.scripted(&ask, AS_SENT).await
}

fn has_warning(answer: &Answer) -> bool {
    answer.headers.contains_key(header::WARNING)
}

async fn warned(probe: Probe) -> Result<Outcome> {
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"warned"},"data":{"warn":""}}"#;
    let ask = Ask::new(Method::POST, format!("{MAPS}?dryRun=All")).body(JSON, body);
    // A policy acts a second or so after it was made.
    eventually("the policy warns", DEADLINE, || async {
        let answer = probe.past(&ask).await.map_err(|error| error.to_string())?;
        has_warning(&answer).then_some(()).ok_or_else(|| answer.text())
    })
    .await?;
    probe.same_with(&ask, OF_A_WRITE, Expected::Done).await
}

/// As many as strict validation may find, and more. All of them come.
async fn many_warnings(probe: Probe) -> Result<Outcome> {
    let texts = (0..150).map(|number| format!("299 - \"number {number}\""));
    let script = Script::new(StatusCode::OK).bytes("{}");
    probe.script(texts.fold(script, |script, text| script.header("warning", &text)));
    probe.scripted(&Ask::get(MAPS), SELECTED).await
}
