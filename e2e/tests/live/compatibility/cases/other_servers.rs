//! CBOR, of the usual API server and of one that speaks it; and that one has no streaming lists.

use ringside_e2e::control_plane::AnotherApiServer;

use super::*;

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
async fn other(probe: &Probe) -> Result<Endpoint> {
    let (fixture, mark) = (&probe.fixture, &probe.mark);
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
        cases.push(case("CBOR among others", form, move |probe| among_others(probe, resource)));
    }
    for (form, target) in ALONE {
        cases.push(case("CBOR alone", form, move |probe| alone(probe, target, true)));
    }
    cases.push(case("CBOR alone", "what negotiates nothing", |probe| alone(probe, "/livez", false)));
    for (form, method, target, content_type) in WRITES {
        let ask = Ask::new(method, target).body(content_type, EMPTY);
        cases.push(case("CBOR in a request", form, async move |probe| refused(&probe, None, &ask).await));
    }
    cases.push(case("CBOR that nobody asked for", "watch", unasked));
    cases.extend(of_a_server_that_speaks_it());
    cases.push(case("watch from nothing", "of an API server without streaming lists", without_streaming_lists));
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
fn rewritten(target: &str) -> Rewritten {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let selects = path.ends_with("/configmaps") || path.ends_with("/websites");
    let headers: &[&str] =
        if selects && query.contains("watch=1") { &["accept", "accept-encoding"] } else { &["accept"] };
    Rewritten { selects, headers }
}

/// In the words of who asks for itself.
fn by_hand(probe: &Probe, target: &str, accept: &str) -> Ask {
    let ask = Ask::get(target).accept(accept);
    if rewritten(target).selects { probe.by_hand(&ask) } else { ask }
}

async fn among_others(probe: Probe, resource: &str) -> Result<Outcome> {
    let target = &format!("{resource}?{}", probe.fixture.exact());
    let direct = probe.past(&by_hand(&probe, target, PREFERRED)).await?;
    let rewritten = rewritten(target);
    let (proxied, arrived) = probe.through(&Ask::get(target).accept(PREFERRED), rewritten).await?;
    ensure!(arrived.headers["accept"] == "application/json;q=0.9", "{:?}", arrived.headers["accept"]);
    ensure!(direct.status == StatusCode::OK, "{}", direct.text());
    answers(&direct, &proxied, Bodies::Exact)?;
    Ok(if rewritten.selects { Outcome::Narrowed } else { Outcome::Same })
}

/// What the API server says to whom it has nothing for.
async fn alone(probe: Probe, target: &str, negotiates: bool) -> Result<Outcome> {
    let target = if target.ends_with('=') { format!("{target}{}", probe.fixture.begin) } else { target.to_owned() };
    let direct = probe.past(&by_hand(&probe, &target, CBOR)).await?;
    let (proxied, arrived) = probe.through(&Ask::get(&target).accept(CBOR), rewritten(&target)).await?;
    ensure!(arrived.headers["accept"] == "application/x-nothing", "{:?}", arrived.headers["accept"]);
    let status = if negotiates { StatusCode::NOT_ACCEPTABLE } else { StatusCode::OK };
    ensure!(direct.status == status, "{}: {}", direct.status, direct.text());
    answers(&direct, &proxied, Bodies::Exact)
}

/// It does not arrive, whoever would take it.
async fn refused(probe: &Probe, server: Option<&Endpoint>, ask: &Ask) -> Result<Outcome> {
    let direct = server.unwrap_or(&probe.shard.direct).exchange(probe.http, ask, &probe.mark).await?;
    let proxied = probe.unforwarded(ask).await?.with(StatusCode::UNSUPPORTED_MEDIA_TYPE)?;
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
async fn unasked(probe: Probe) -> Result<Outcome> {
    let script = Script::new(StatusCode::OK).header("content-type", "application/cbor-seq");
    probe.script(script.bytes(EVENT));
    let ask = Ask::get(format!("{MAPS}?watch=1&resourceVersion=1"));
    let direct = probe.past_by_script(&ask).await?;
    ensure!(direct.status == StatusCode::OK && direct.body == EVENT, "{}: {}", direct.status, direct.text());
    is_cbor(&direct)?;
    let proxied = probe.proxied(&ask).await?;
    probe.arrived_as(&ask, WATCHED)?;
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
        cases.push(case("CBOR among others, of an API server that speaks it", &listed, async move |probe| {
            let target =
                format!("{}?{}", at(collection, "fixed"), probe.fixture.exact().replace("Exact", "NotOlderThan"));
            // The version of a list is that of the moment.
            spoken(&probe, &other(&probe).await?, &target, Bodies::But(&["metadata.resourceVersion"])).await
        }));
        cases.push(case("CBOR among others, of an API server that speaks it", &watched, async move |probe| {
            let (server, target) = (other(&probe).await?, something_new(&probe, collection).await?);
            steady(|| spoken(&probe, &server, &target, Bodies::Exact)).await
        }));
    }
    for (form, target) in [("list", MAPS), ("list of a resource that is not the ring's", SECRETS)] {
        cases.push(case("CBOR alone, of an API server that speaks it", form, async move |probe| {
            let server = other(&probe).await?;
            let direct = server.exchange(Http::Two, &Ask::get(target).accept(CBOR), &probe.mark).await?;
            is_cbor(&direct)?;
            let (proxied, _) = probe.through(&Ask::get(target).accept(CBOR), rewritten(target)).await?;
            ensure!(proxied.status == StatusCode::NOT_ACCEPTABLE, "{}", proxied.text());
            ensure!(reason(&proxied)? == "NotAcceptable", "{}", proxied.text());
            Ok(Outcome::Changed("refused with 406, as by an API server that does not speak CBOR"))
        }));
    }
    for (form, method, target, content_type) in WRITES {
        cases.push(case("CBOR in a request, to an API server that speaks it", form, async move |probe| {
            let server = other(&probe).await?;
            let ask = Ask::new(method, target).body(content_type, EMPTY);
            refused(&probe, Some(&server), &ask).await
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

/// A watch from just before an object was made: the cache of a server that was just started goes back no further.
async fn something_new(probe: &Probe, collection: &str) -> Result<String> {
    let (fixture, namespace) = (&probe.fixture, format!("new-{}", probe.mark));
    fixture.namespace(&namespace).await?;
    let collection = at(collection, &namespace);
    let before = fixture.admin(&Ask::get(&collection)).await?;
    let version = before["metadata"]["resourceVersion"].as_str().context("a resourceVersion")?;
    let object = json!({"metadata": {"name": "own-new", "labels": fixture.main.labels()}});
    let object = match collection.rsplit('/').next() {
        Some("websites") => json!(site("own-new", fixture.main.labels())),
        _ => object,
    };
    fixture.anew(&collection, &object).await?;
    Ok(format!("{collection}?watch=1&resourceVersion={version}&timeoutSeconds=1"))
}

/// Without the proxy it is CBOR; through it, what is given to who asks for the next form.
async fn spoken(probe: &Probe, server: &Endpoint, target: &str, bodies: Bodies) -> Result<Outcome> {
    let rewritten = rewritten(target);
    let (as_cbor, as_json) = (by_hand(probe, target, PREFERRED), by_hand(probe, target, "application/json;q=0.9"));
    let (as_cbor, direct) = tokio::try_join!(
        server.exchange(Http::Two, &as_cbor, &probe.mark),
        server.exchange(Http::Two, &as_json, &probe.mark),
    )?;
    is_cbor(&as_cbor)?;
    let (proxied, arrived) = probe.through(&Ask::get(target).accept(PREFERRED), rewritten).await?;
    ensure!(arrived.headers["accept"] == "application/json;q=0.9", "{:?}", arrived.headers["accept"]);
    answers(&direct, &proxied, bodies).map_err(Moment)?;
    ensure!(contains(&proxied.body, b"own-") || !rewritten.selects, "{}", proxied.text());
    ensure!(proxied.headers["content-type"] == JSON, "{:?}", proxied.headers);
    Ok(Outcome::Changed("answered in the next form that is accepted: the proxy does not read CBOR"))
}

/// What the API server says of the streaming list that is asked for instead is what the client gets.
async fn without_streaming_lists(probe: Probe) -> Result<Outcome> {
    let server = other(&probe).await?;
    let ask = Ask::get(format!("{MAPS}?watch=1&timeoutSeconds=1"));
    let direct = server.exchange(Http::Two, &ask, &probe.mark).await?;
    ensure!(direct.status == StatusCode::OK && Format::Lines.first(&direct.body).is_some(), "{}", direct.text());
    let (proxied, _) = probe.through(&ask, WATCHED).await?;
    ensure!(proxied.status == StatusCode::UNPROCESSABLE_ENTITY, "{}: {}", proxied.status, proxied.text());
    Ok(Outcome::Gap(
        "refused with 422: only a streaming list says how old its state may be, and an old one shows what was moved away",
    ))
}
