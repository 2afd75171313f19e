//! CBOR, of the usual API server and of one that speaks it; and that one has no streaming lists.

use anyhow::{Context as _, Result, ensure};
use http::{Method, StatusCode};
use ringside_e2e::{compatibility::Outcome, control_plane::AnotherApiServer, eventually::eventually, relay::Script};
use tokio::sync::OnceCell;

use super::refusals::{OWN_WORDS, reason};
use crate::compatibility::{
    client::{Answer, Ask, Endpoint, Http},
    compare::{Bodies, Moment, Probe, Rewritten, answers, contains, own_answer, steady},
    fixture::{DEADLINE, Fixture},
    objects::site,
    query,
    stream::Format,
    table::{Case, case},
};

const MAPS: &str = "/api/v1/namespaces/fixed/configmaps";
const SITES: &str = "/apis/web.example.com/v1/namespaces/fixed/websites";
const SECRETS: &str = "/api/v1/namespaces/fixed/secrets";
const CBOR: &str = "application/cbor";
const APPLY: &str = "application/apply-patch+cbor";
/// As client-go sends it where it prefers CBOR.
const PREFERRED: &str = "application/cbor, application/json;q=0.9";
/// An empty map behind the mark of CBOR (RFC 8949, section 3.4.6).
const EMPTY: &[u8] = b"\xd9\xd9\xf7\xa0";
/// `{"type": "ADDED", "object": {}}`, of a watch.
const EVENT: &[u8] = b"\xd9\xd9\xf7\xa2\x64type\x65ADDED\x66object\xa0";

/// Started by the first case that needs it.
static OTHER: OnceCell<AnotherApiServer> = OnceCell::const_new();

/// It answers to a case from now on, whatever way is taken; and this is how it is reached past the proxy.
async fn other(fixture: &Fixture, mark: &str) -> Result<Endpoint> {
    let gates = ["--feature-gates=CBORServingAndStorage=true,WatchList=false"];
    let server = OTHER.get_or_try_init(|| fixture.control_plane.start_api_server_with(&gates)).await?;
    fixture.main.relay.send_on(mark, &fixture.control_plane, server)?;
    let address = server.url().trim_start_matches("https://").parse()?;
    let endpoint = Endpoint::new(address, &fixture.control_plane.ca_path(), fixture.main.direct.token())?;
    // It answers before it has read what there is of a custom resource.
    eventually("the other API server has read all", DEADLINE, || async {
        let listed = endpoint.exchange(Http::Two, &Ask::get(SITES), mark).await.map_err(|error| error.to_string())?;
        if listed.status == StatusCode::OK { Ok(()) } else { Err(listed.text()) }
    })
    .await?;
    Ok(endpoint)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (form, resource) in [("list", MAPS), ("list of a resource that is not the ring's", SECRETS)] {
        cases.push(case("CBOR among others", form, move |fixture, mark| async move {
            let target = format!("{resource}?resourceVersion={}&resourceVersionMatch=Exact", fixture.end);
            among_others(&fixture, &mark, &target).await
        }));
    }
    for (form, target) in ALONE {
        cases.push(case("CBOR alone", form, move |fixture, mark| async move {
            alone(&fixture, &Probe::new(&fixture, &mark), target, true).await
        }));
    }
    cases.push(case("CBOR alone", "what negotiates nothing", |fixture, mark| async move {
        alone(&fixture, &Probe::new(&fixture, &mark), "/livez", false).await
    }));
    for (form, method, target, content_type) in WRITES {
        cases.push(case("CBOR in a request", form, move |fixture, mark| async move {
            let ask = Ask::new(method, target).body(content_type, EMPTY);
            refused(&Probe::new(&fixture, &mark), None, &ask).await
        }));
    }
    cases.push(case("CBOR that nobody asked for", "watch", |fixture, mark| async move {
        unasked(&Probe::new(&fixture, &mark)).await
    }));
    cases.extend(of_a_server_that_speaks_it());
    cases.push(case("watch from nothing", "of an API server without streaming lists", |fixture, mark| async move {
        without_streaming_lists(&fixture, &Probe::new(&fixture, &mark)).await
    }));
    cases
}

const ALONE: [(&str, &str); 5] = [
    ("list", MAPS),
    ("get", "/api/v1/namespaces/fixed/configmaps/own-1"),
    ("watch", "/api/v1/namespaces/fixed/configmaps?watch=1&timeoutSeconds=1&resourceVersion="),
    ("list of a resource that is not the ring's", SECRETS),
    ("watch of a resource that is not the ring's", "/api/v1/namespaces/fixed/secrets?watch=1&timeoutSeconds=1"),
];

const WRITES: [(&str, Method, &str, &str); 5] = [
    ("create", Method::POST, MAPS, CBOR),
    ("create of a resource that is not the ring's", Method::POST, SECRETS, CBOR),
    ("update of a resource that is not the ring's", Method::PUT, "/api/v1/namespaces/fixed/secrets/nobody", CBOR),
    ("server-side apply", Method::PATCH, "/api/v1/namespaces/fixed/configmaps/own-1?fieldManager=me", APPLY),
    (
        "server-side apply of a resource that is not the ring's",
        Method::PATCH,
        "/api/v1/namespaces/fixed/secrets/nobody?fieldManager=me",
        APPLY,
    ),
];

/// What a request to a resource of the ring becomes; of any other it is the same.
fn rewritten<'a>(probe: &'a Probe<'a>, target: &str, headers: &'a [&'a str]) -> Rewritten<'a> {
    let selects = target.split('?').next() == Some(MAPS);
    if selects { probe.narrowing(headers) } else { Rewritten { headers, ..Rewritten::default() } }
}

/// In the words of who asks for itself.
fn by_hand(probe: &Probe<'_>, target: &str, accept: &str) -> Ask {
    let narrowed = rewritten(probe, target, &[]).selector.is_some();
    let target = if narrowed { query::narrowed(target, &probe.shard.selector) } else { target.to_owned() };
    Ask::get(target).accept(accept)
}

async fn among_others(fixture: &Fixture, mark: &str, target: &str) -> Result<Outcome> {
    let probe = Probe::new(fixture, mark);
    let direct = probe.past(&by_hand(&probe, target, PREFERRED)).await?;
    let rewritten = rewritten(&probe, target, &["accept"]);
    let (proxied, arrived) = probe.through(&Ask::get(target).accept(PREFERRED), rewritten).await?;
    ensure!(arrived.headers["accept"] == "application/json;q=0.9", "{:?}", arrived.headers["accept"]);
    ensure!(direct.status == StatusCode::OK, "{}", direct.text());
    answers(&direct, &proxied, Bodies::Exact)?;
    Ok(if rewritten.selector.is_some() { Outcome::Narrowed } else { Outcome::Same })
}

/// What the API server says to whom it has nothing for.
async fn alone(fixture: &Fixture, probe: &Probe<'_>, target: &str, negotiates: bool) -> Result<Outcome> {
    let target = if target.ends_with('=') { format!("{target}{}", fixture.begin) } else { target.to_owned() };
    let direct = probe.past(&by_hand(probe, &target, CBOR)).await?;
    let headers: &[&str] =
        if target.contains(&format!("{MAPS}?watch")) { &["accept", "accept-encoding"] } else { &["accept"] };
    let (proxied, arrived) = probe.through(&Ask::get(&target).accept(CBOR), rewritten(probe, &target, headers)).await?;
    ensure!(arrived.headers["accept"] == "application/x-nothing", "{:?}", arrived.headers["accept"]);
    let status = if negotiates { StatusCode::NOT_ACCEPTABLE } else { StatusCode::OK };
    ensure!(direct.status == status, "{}: {}", direct.status, direct.text());
    answers(&direct, &proxied, Bodies::Exact)
}

/// It does not arrive, whoever would take it.
async fn refused(probe: &Probe<'_>, server: Option<&Endpoint>, ask: &Ask) -> Result<Outcome> {
    let direct = server.unwrap_or(&probe.shard.direct).exchange(probe.http, ask, probe.mark).await?;
    let proxied = probe.shard.proxied.exchange(probe.http, ask, probe.mark).await?;
    let arrived = probe.shard.relay.take(probe.mark);
    ensure!(arrived.is_empty(), "it arrived at the API server: {arrived:#?}");
    ensure!(proxied.status == StatusCode::UNSUPPORTED_MEDIA_TYPE, "{}: {}", proxied.status, proxied.text());
    ensure!(reason(&proxied)? == "UnsupportedMediaType", "{}", proxied.text());
    if server.is_none() {
        ensure!(direct.status == proxied.status, "{}: {}", direct.status, direct.text());
        own_answer(&direct, &proxied)?;
        return Ok(Outcome::Changed(OWN_WORDS));
    }
    ensure!(direct.status != proxied.status, "it does not speak CBOR: {}", direct.text());
    Ok(Outcome::Changed(
        "refused with 415, as by an API server that does not speak CBOR: client-go goes on in JSON then",
    ))
}

/// What is not read can't be passed on: whose the objects are is not known, nor when they are another's.
async fn unasked(probe: &Probe<'_>) -> Result<Outcome> {
    let script = Script::new(StatusCode::OK).header("content-type", "application/cbor-seq");
    probe.shard.relay.answer(probe.mark, script.bytes(EVENT));
    let ask = Ask::get(format!("{MAPS}?watch=1&resourceVersion=1"));
    let direct = probe.shard.scripted.exchange(probe.of_relay(), &ask, probe.mark).await?;
    ensure!(direct.status == StatusCode::OK && direct.body == EVENT, "{}: {}", direct.status, direct.text());
    is_cbor(&direct)?;
    probe.shard.relay.take(probe.mark);
    let proxied = probe.shard.proxied.exchange(probe.http, &ask, probe.mark).await?;
    probe.check_arrival(&ask, &probe.arrived()?, probe.narrowing(&["accept-encoding"]))?;
    ensure!(proxied.status == StatusCode::BAD_GATEWAY, "{}: {}", proxied.status, proxied.text());
    ensure!(reason(&proxied)? == "InternalError", "{}", proxied.text());
    Ok(Outcome::Changed("refused with 502: the proxy does not read CBOR, and asked for none"))
}

fn of_a_server_that_speaks_it() -> Vec<Case> {
    let mut cases = Vec::new();
    for (what, collection) in [
        ("", "/api/v1/{}/configmaps"),
        (" of a custom resource", "/apis/web.example.com/v1/{}/websites"),
        (" of a resource that is not the ring's", "/api/v1/{}/secrets"),
    ] {
        let (listed, watched) = (format!("list{what}"), format!("watch{what}"));
        cases.push(case(
            "CBOR among others, of an API server that speaks it",
            &listed,
            move |fixture, mark| async move {
                let probe = Probe::new(&fixture, &mark);
                let target = format!(
                    "{}?resourceVersion={}&resourceVersionMatch=NotOlderThan",
                    at(collection, "fixed"),
                    fixture.end
                );
                let (server, rewritten) = (other(&fixture, &mark).await?, among(&probe, collection, &["accept"]));
                // The version of a list is that of the moment.
                spoken(&probe, &server, &target, rewritten, Bodies::But(&["metadata.resourceVersion"])).await
            },
        ));
        cases.push(case(
            "CBOR among others, of an API server that speaks it",
            &watched,
            move |fixture, mark| async move {
                let (probe, server) = (Probe::new(&fixture, &mark), other(&fixture, &mark).await?);
                let target = something_new(&fixture, &mark, collection).await?;
                let headers: &[&str] =
                    if collection.ends_with("secrets") { &["accept"] } else { &["accept", "accept-encoding"] };
                let rewritten = among(&probe, collection, headers);
                steady(|| spoken(&probe, &server, &target, rewritten, Bodies::Exact)).await
            },
        ));
    }
    for (form, target) in [("list", MAPS), ("list of a resource that is not the ring's", SECRETS)] {
        cases.push(case("CBOR alone, of an API server that speaks it", form, move |fixture, mark| async move {
            let (probe, server) = (Probe::new(&fixture, &mark), other(&fixture, &mark).await?);
            let direct = server.exchange(Http::Two, &Ask::get(target).accept(CBOR), &mark).await?;
            is_cbor(&direct)?;
            let (proxied, _) =
                probe.through(&Ask::get(target).accept(CBOR), rewritten(&probe, target, &["accept"])).await?;
            ensure!(proxied.status == StatusCode::NOT_ACCEPTABLE, "{}", proxied.text());
            ensure!(reason(&proxied)? == "NotAcceptable", "{}", proxied.text());
            Ok(Outcome::Changed("refused with 406, as by an API server that does not speak CBOR"))
        }));
    }
    for (form, method, target, content_type) in WRITES {
        cases.push(case("CBOR in a request, to an API server that speaks it", form, move |fixture, mark| async move {
            let server = other(&fixture, &mark).await?;
            let ask = Ask::new(method, target).body(content_type, EMPTY);
            refused(&Probe::new(&fixture, &mark), Some(&server), &ask).await
        }));
    }
    cases
}

fn is_cbor(answer: &Answer) -> Result<()> {
    let content_type = answer.headers.get("content-type").context("a content type")?;
    ensure!(content_type.as_bytes().starts_with(b"application/cbor"), "{content_type:?}");
    Ok(())
}

/// The path of a collection in a namespace.
fn at(collection: &str, namespace: &str) -> String {
    collection.replace("{}", &format!("namespaces/{namespace}"))
}

/// What a request for a collection becomes.
fn among<'a>(probe: &'a Probe<'a>, collection: &str, headers: &'a [&'a str]) -> Rewritten<'a> {
    if collection.ends_with("secrets") {
        Rewritten { headers, ..Rewritten::default() }
    } else {
        probe.narrowing(headers)
    }
}

/// A watch from just before an object was made: the cache of a server that was just started goes back no further.
async fn something_new(fixture: &Fixture, mark: &str, collection: &str) -> Result<String> {
    let namespace = format!("new-{mark}");
    fixture.namespace(&namespace).await?;
    let collection = at(collection, &namespace);
    let before = fixture.admin(&Ask::get(&collection)).await?;
    let version = before["metadata"]["resourceVersion"].as_str().context("a resourceVersion")?;
    let object = serde_json::json!({"metadata": {"name": "own-new", "labels": fixture.main.labels()}});
    let object = match collection.rsplit('/').next() {
        Some("websites") => serde_json::json!(site("own-new", fixture.main.labels())),
        _ => object,
    };
    fixture.anew(&collection, &object).await?;
    Ok(format!("{collection}?watch=1&resourceVersion={version}&timeoutSeconds=1"))
}

/// Without the proxy it is CBOR; through it, what is given to who asks for the next form.
async fn spoken(
    probe: &Probe<'_>,
    server: &Endpoint,
    target: &str,
    rewritten: Rewritten<'_>,
    bodies: Bodies,
) -> Result<Outcome> {
    let narrowed = rewritten.selector.map_or_else(|| target.to_owned(), |selector| query::narrowed(target, selector));
    let asked = |accept: &str| Ask::get(&narrowed).accept(accept);
    let (as_cbor, as_json) = (asked(PREFERRED), asked("application/json;q=0.9"));
    let (as_cbor, direct) = tokio::try_join!(
        server.exchange(Http::Two, &as_cbor, probe.mark),
        server.exchange(Http::Two, &as_json, probe.mark),
    )?;
    is_cbor(&as_cbor)?;
    let (proxied, arrived) = probe.through(&Ask::get(target).accept(PREFERRED), rewritten).await?;
    ensure!(arrived.headers["accept"] == "application/json;q=0.9", "{:?}", arrived.headers["accept"]);
    answers(&direct, &proxied, bodies).map_err(Moment)?;
    ensure!(contains(&proxied.body, b"own-") || rewritten.selector.is_none(), "{}", proxied.text());
    ensure!(proxied.headers["content-type"] == "application/json", "{:?}", proxied.headers);
    Ok(Outcome::Changed("answered in the next form that is accepted: the proxy does not read CBOR"))
}

/// What the API server says of the streaming list that is asked for instead is what the client gets.
async fn without_streaming_lists(fixture: &Fixture, probe: &Probe<'_>) -> Result<Outcome> {
    let server = other(fixture, probe.mark).await?;
    let ask = Ask::get(format!("{MAPS}?watch=1&timeoutSeconds=1"));
    let direct = server.exchange(Http::Two, &ask, probe.mark).await?;
    ensure!(direct.status == StatusCode::OK && Format::Lines.first(&direct.body).is_some(), "{}", direct.text());
    let (proxied, _) = probe.through(&ask, probe.narrowing(&["accept-encoding"])).await?;
    ensure!(proxied.status == StatusCode::UNPROCESSABLE_ENTITY, "{}: {}", proxied.status, proxied.text());
    Ok(Outcome::Gap(
        "refused with 422: only a streaming list says how old its state may be, and an old one shows what was moved away",
    ))
}
