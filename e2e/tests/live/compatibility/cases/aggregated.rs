//! A group of an aggregated API server: what arrives there through API server and proxy is what arrives through the API
//! server alone.

use ringside_e2e::relay::Part;

use super::*;
use crate::compatibility::shard::WARM_UP;

const ECHOES: &str = "/apis/echo.example.com/v1/namespaces/fixed/echoes";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("aggregated group", "odd headers and status", async move |probe| {
            let script = Script::new(StatusCode::IM_A_TEAPOT).header("x-odd", "1").header("x-odd", "0").bytes("short");
            probe.fixture.aggregated.answer(&probe.mark, script.header("content-type", "text/tea"));
            let ask = Ask::get(format!("{ECHOES}/one?a=1&a=%30")).header("x-b", "2").header("x-b", "1");
            let (answer, outcome) = both(&probe, &ask).await?;
            ensure!(answer.status == StatusCode::IM_A_TEAPOT, "{}", answer.status);
            Ok(outcome)
        }),
        case("aggregated group", "write", async move |probe| {
            // Without a type the API server would guess one, or not, as the pieces of the body come.
            let script = Script::new(StatusCode::CREATED).header("content-type", "application/x-own");
            probe.fixture.aggregated.answer(&probe.mark, script.part(Part::Echo));
            let ask = Ask::new(Method::POST, ECHOES).body("application/x-own", vec![7; 300_000]);
            let (answer, outcome) = both(&probe, &ask).await?;
            ensure!(answer.body == ask.body, "the body came back otherwise");
            Ok(outcome)
        }),
        case("aggregated group", "upgrade", upgraded).by_http1(),
        case("aggregated group in a ring", "list, watch", in_a_ring),
    ]
}

/// What streams of its own are, no proxy knows.
async fn upgraded(probe: Probe) -> Result<Outcome> {
    probe.fixture.aggregated.answer(&probe.mark, Script::new(StatusCode::OK).bytes("{}"));
    let ask = websocket(Ask::get(format!("{ECHOES}/one/talk")));
    // The API server takes a plain answer to such a request for a fault.
    Raw::send(&probe.shard.direct, &ask, &probe.mark).await?.head().await?;
    let head = Raw::send(&probe.shard.proxied, &ask, &probe.mark).await?.head().await?;
    ensure!(head.status.contains("200"), "{head:#?}");
    probe.arrived_as(&ask, PLAIN)?;
    let arrived = probe.fixture.aggregated.take(&probe.mark);
    let asked: Vec<_> = arrived.iter().map(|it| it.headers.contains_key(header::UPGRADE)).collect();
    ensure!(asked == [true, false], "{arrived:#?}");
    Ok(Outcome::Changed(
        "a plain answer: protocols change only for `exec`, `attach`, `portforward`, `proxy` and watches",
    ))
}

/// What the aggregated server is asked for is the shard's alone, by a proxy whose ring shards the group.
async fn in_a_ring(probe: Probe) -> Result<Outcome> {
    let aggregated = &probe.fixture.aggregated;
    let list = json!({
        "kind": "EchoList", "apiVersion": "echo.example.com/v1", "metadata": {"resourceVersion": "7"},
        "items": [echo("own-1", "6")],
    });
    let answering = Script::new(StatusCode::OK).json(&list);
    aggregated.answer(WARM_UP, answering.clone());
    let resources = json!([{"group": "echo.example.com", "resource": "echoes"}]);
    let shard = probe.fixture.alone("aggregated", Offer::Both, &resources).await?;
    shard.serves(&[ECHOES]).await?;
    let probe = probe.clone().of(&shard);

    aggregated.answer(&probe.mark, answering);
    let ask = Ask::get(format!("{ECHOES}?limit=5&labelSelector=tier"));
    let (answer, _) = asked(&probe, &probe.by_hand(&ask), &ask, SELECTED).await?;
    ensure!(answer.body == list.to_string(), "{}", answer.text());

    let events = [("ADDED", echo("own-2", "8")), ("DELETED", echo("own-1", "9")), ("BOOKMARK", echo("", "10"))];
    let events = events.map(|(kind, object)| format!("{}\n", json!({"type": kind, "object": object}))).concat();
    let script = Script::new(StatusCode::OK).header("content-type", JSON).bytes(events.clone());
    aggregated.answer(&probe.mark, script);
    let ask = Ask::get(format!("{ECHOES}?watch=1&allowWatchBookmarks=true&resourceVersion=7&labelSelector=tier"));
    let by_hand = probe.by_hand(&ask).header("accept-encoding", "identity");
    let (answer, _) = asked(&probe, &by_hand, &ask, WATCHED).await?;
    ensure!(answer.body == events, "{}", answer.text());
    Ok(Outcome::Narrowed)
}

fn echo(name: &str, version: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "fixed", "resourceVersion": version});
    json!({"kind": "Echo", "apiVersion": "echo.example.com/v1", "metadata": metadata})
}

async fn both(probe: &Probe, ask: &Ask) -> Result<(Answer, Outcome)> {
    asked(probe, ask, ask, AS_SENT).await
}

/// Asked by hand for what the proxy is to make of the request, and through it.
async fn asked(probe: &Probe, by_hand: &Ask, ask: &Ask, rewritten: Rewritten) -> Result<(Answer, Outcome)> {
    let direct = probe.past(by_hand).await?;
    let sent = probe.fixture.aggregated.take(&probe.mark);
    let (proxied, _) = probe.through(ask, rewritten).await?;
    let arrived = probe.fixture.aggregated.take(&probe.mark);
    let outcome = answers(&direct, &proxied, Bodies::Exact)?;
    let told = || format!("{sent:#?} became {arrived:#?}");
    ensure!(sent.len() == 1 && arrived.len() == 1, "{}", told());
    // The API server rewrites the query, of both alike.
    ensure!(sent[0].target == arrived[0].target, "{}", told());
    ensure!(sent[0].headers == arrived[0].headers && sent[0].body == arrived[0].body, "{}", told());
    Ok((proxied, outcome))
}
