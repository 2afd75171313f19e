//! CBOR, of the usual API server and of one that speaks it; and that one has no streaming lists.

use ringside_e2e::control_plane::AnotherApiServer;

use super::*;

const CBOR: &str = "application/cbor";
/// As client-go sends it where it prefers CBOR.
const PREFERRED: &str = "application/cbor, application/json;q=0.9";
/// An empty map behind the mark of CBOR (RFC 8949, section 3.4.6).
const EMPTY: &[u8] = b"\xd9\xd9\xf7\xa0";

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

/// Why its cases are of the second tier.
const ANOTHER: &str = "another API server; no API server speaks CBOR by default";

pub(crate) fn cases() -> Vec<Case> {
    let foreign = "list of a resource that is not the ring's";
    let mut cases: Vec<_> = by_form("CBOR among others", [("list", MAPS), (foreign, SECRETS)], among_others).collect();
    cases.push(case("CBOR alone", "list", async |probe| {
        // What the API server says to whom it has nothing for.
        let direct = probe.past(&by_hand(&probe, MAPS, CBOR)).await?.with(StatusCode::NOT_ACCEPTABLE)?;
        let (proxied, arrived) = probe.through(&Ask::get(MAPS).accept(CBOR), rewritten(MAPS)).await?;
        ensure!(arrived.headers["accept"] == "application/x-nothing", "{:?}", arrived.headers["accept"]);
        answers(&direct, &proxied, Bodies::Exact)
    }));
    let writes = [("create", MAPS), ("create of a resource that is not the ring's", SECRETS)];
    cases.extend(by_form("CBOR in a request", writes, async |probe, target| {
        let ask = Ask::new(Method::POST, target).body(CBOR, EMPTY);
        refused_alike(&probe.past(&ask).await?, &probe.unforwarded(&ask).await?)
    }));
    let of_a_server_that_speaks_it = [
        case("CBOR among others, of an API server that speaks it", "list", async |probe| {
            let target = exact(&probe.fixture, MAPS).target.replace("Exact", "NotOlderThan");
            spoken(&probe, &target, Bodies::But(&["metadata.resourceVersion"])).await
        }),
        case("CBOR alone, of an API server that speaks it", "list", async |probe| {
            is_cbor(&other(&probe).await?.exchange(Http::Two, &Ask::get(MAPS).accept(CBOR), &probe.mark).await?)?;
            let (proxied, _) = probe.through(&Ask::get(MAPS).accept(CBOR), rewritten(MAPS)).await?;
            ensure!(reason(&proxied.with(StatusCode::NOT_ACCEPTABLE)?)? == "NotAcceptable", "another reason");
            Ok(Outcome::Changed("refused with 406, as by an API server that does not speak CBOR"))
        }),
        case("CBOR in a request, to an API server that speaks it", "create", async |probe| {
            let (server, ask) = (other(&probe).await?, Ask::new(Method::POST, MAPS).body(CBOR, EMPTY));
            let direct = server.exchange(probe.http, &ask, &probe.mark).await?;
            ensure!(direct.status != StatusCode::UNSUPPORTED_MEDIA_TYPE, "it does not speak CBOR: {}", direct.text());
            let proxied = probe.unforwarded(&ask).await?.with(StatusCode::UNSUPPORTED_MEDIA_TYPE)?;
            ensure!(reason(&proxied)? == "UnsupportedMediaType", "{}", proxied.text());
            Ok(Outcome::Changed(
                "refused with 415, as by an API server that does not speak CBOR: client-go goes on in JSON then",
            ))
        }),
        case("watch from nothing", "of an API server without streaming lists", without_streaming_lists),
    ];
    cases.extend(of_a_server_that_speaks_it.map(|case| case.costs(ANOTHER)));
    cases
}

/// What a request becomes where CBOR is accepted.
fn rewritten(target: &str) -> Rewritten {
    let selects = !target.starts_with(SECRETS);
    let headers: &[&str] = if target.contains("watch=1") { &["accept", "accept-encoding"] } else { &["accept"] };
    Rewritten { selects, headers, ..AS_SENT }
}

/// In the words of who asks for itself.
fn by_hand(probe: &Probe, target: &str, accept: &str) -> Ask {
    let ask = Ask::get(target).accept(accept);
    if rewritten(target).selects { probe.by_hand(&ask) } else { ask }
}

async fn among_others(probe: Probe, resource: &'static str) -> Result<Outcome> {
    let target = &exact(&probe.fixture, resource).target;
    let direct = probe.past(&by_hand(&probe, target, PREFERRED)).await?.with(StatusCode::OK)?;
    next_form(&probe, &direct, target, Bodies::Exact).await?;
    Ok(if rewritten(target).selects { Outcome::Narrowed } else { Outcome::Same })
}

/// Asks for CBOR or JSON through the proxy, and expects this.
async fn next_form(probe: &Probe, direct: &Answer, target: &str, bodies: Bodies) -> Result<()> {
    let (proxied, arrived) = probe.through(&Ask::get(target).accept(PREFERRED), rewritten(target)).await?;
    ensure!(arrived.headers["accept"] == "application/json;q=0.9", "{:?}", arrived.headers["accept"]);
    Ok(answers(direct, &proxied, bodies).map(drop).map_err(Moment)?)
}

fn is_cbor(answer: &Answer) -> Result<()> {
    let content_type = answer.headers.get("content-type").context("a content type")?;
    ensure!(content_type.as_bytes().starts_with(b"application/cbor"), "{content_type:?}");
    Ok(())
}

/// Without the proxy it is CBOR; through it, what is given to who asks for the next form.
async fn spoken(probe: &Probe, target: &str, bodies: Bodies) -> Result<Outcome> {
    let server = other(probe).await?;
    let (as_cbor, as_json) = (by_hand(probe, target, PREFERRED), by_hand(probe, target, "application/json;q=0.9"));
    let (as_cbor, direct) = tokio::try_join!(
        server.exchange(Http::Two, &as_cbor, &probe.mark),
        server.exchange(Http::Two, &as_json, &probe.mark),
    )?;
    is_cbor(&as_cbor)?;
    ensure!(contains(&direct.body, b"own-") && direct.headers["content-type"] == JSON, "{}", direct.text());
    next_form(probe, &direct, target, bodies).await?;
    Ok(Outcome::Changed("answered in the next form that is accepted: the proxy does not read CBOR"))
}

/// A list of the present, and a watch from there, in place of the streaming list that is refused.
async fn without_streaming_lists(probe: Probe) -> Result<Outcome> {
    let server = other(&probe).await?;
    let ask = Ask::get(format!("{MAPS}?watch=1&timeoutSeconds=1"));
    server.exchange(Http::Two, &ask, &probe.mark).await?.with(StatusCode::OK)?;
    probe.take();
    let proxied = probe.proxied(&ask).await?.with(StatusCode::OK)?;
    ensure!(contains(&proxied.body, b"own-") && !contains(&proxied.body, b"other-"), "{}", proxied.text());
    ensure!(!contains(&proxied.body, b"BOOKMARK"), "its client asked for none: {}", proxied.text());
    let mut arrived = probe.take();
    // Other cases move objects meanwhile, and the proxy asks about each by its name.
    arrived.retain(|it| !it.target.contains("fieldSelector=metadata.name"));
    ensure!(arrived.len() == 3, "{arrived:#?}");
    Ok(Outcome::Changed(
        "begins with a list of the present, as a streaming list would: an old state shows what was moved away",
    ))
}
