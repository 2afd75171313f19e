//! A proxy that is no shard yet, one that is none any more, and one whose ring shards something else from now on.

use futures::future::try_join_all;
use ringside_e2e::eventually::eventually;

use super::*;
use crate::compatibility::{
    client::Open,
    stream::{FORMS, last, read},
};

/// The opcode of a closing frame that is whole (RFC 6455, section 5.2).
const CLOSE: u8 = 0x88;

type Asks = fn() -> Ask;

/// What is refused to whom has no Lease.
const OF_RESOURCES: [(&str, Asks); 4] = [
    ("list", || Ask::get(MAPS)),
    ("get", || Ask::get(format!("{MAPS}/own-1"))),
    ("watch", || Ask::get(format!("{MAPS}?watch=1&timeoutSeconds=1"))),
    ("write", || {
        let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"unheld"}}"#;
        Ask::new(Method::POST, format!("{MAPS}?dryRun=All")).body(JSON, object)
    }),
];

/// A proxy whose Lease another holder has.
static WAITING: OnceCell<Arc<Shard>> = OnceCell::const_new();

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let without = "request for a resource without the shard Lease";
    cases.extend(by_form(without, OF_RESOURCES, async |probe, ask| unheld(&waiting(probe).await?, &ask()).await));
    cases.push(case("request for no resource without the shard Lease", "HTTP/2", async |probe| {
        let probe = waiting(probe).await?;
        probe.same(&Ask::get("/version")).await?;
        probe.same(&Ask::get("/apis/web.example.com/v1")).await
    }));
    let of_main = "watch of a main resource when the shard Lease is lost";
    cases.push(case(of_main, "HTTP/1.1; HTTP/2; WebSocket", parted));
    cases.push(case("watch of any other resource when the shard Lease is lost", "HTTP/1.1; HTTP/2", silent));
    let forms: Vec<_> = FORMS.iter().map(|(form, ..)| *form).chain(["WebSocket"]).collect();
    let changed = case("watch when its resource leaves the ring, or joins it", &forms.join("; "), changed);
    cases.push(changed.asks_for(Ability::StreamingTables));
    cases
}

/// The Lease of a shard, as it is when another holder has it for an hour.
fn held() -> Value {
    json!({
        "holderIdentity": "shardlease-controller", "leaseDurationSeconds": 3600, "leaseTransitions": 1,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
    })
}

async fn waiting(probe: Probe) -> Result<Probe> {
    let waiting = WAITING.get_or_try_init(async || {
        let lease = json!({"metadata": {"name": "shard-waiting"}, "spec": held()});
        probe.fixture.admin(&Ask::new(Method::POST, LEASES).body(JSON, lease.to_string())).await?;
        probe.fixture.alone("waiting", Offer::Both, &maps()).await
    });
    let waiting = waiting.await?.clone();
    Ok(probe.of(&waiting))
}

fn maps() -> Value {
    json!([{"group": "", "resource": "configmaps"}])
}

/// It is not sent on, and the client is told when to come again.
async fn unheld(probe: &Probe, ask: &Ask) -> Result<Outcome> {
    let direct = probe.past(ask).await?.done()?;
    let proxied = probe.unforwarded(ask).await?.with(StatusCode::SERVICE_UNAVAILABLE)?;
    ensure!(proxied.headers.get(header::RETRY_AFTER).is_some_and(|it| it == "1"), "{:?}", proxied.headers);
    for name in [header::CACHE_CONTROL, header::CONTENT_TYPE] {
        ensure!(proxied.headers.get(&name) == direct.headers.get(&name), "{name}: {:?}", proxied.headers);
    }
    ensure!(reason(&proxied)? == "ServiceUnavailable", "{}", proxied.text());
    Ok(Outcome::Changed(
        "refused with 503 and Retry-After, when the Lease does not come soon: who does not hold it is no shard",
    ))
}

/// Waits until the proxy knows that it has lost its Lease: until then it sends requests on.
async fn until_lost(probe: &Probe, ask: &Ask) -> Result<()> {
    let refused = eventually("the proxy knows that it has lost its Lease", DEADLINE, || async {
        let answer = probe.proxied(ask).await.and_then(|answer| answer.with(StatusCode::SERVICE_UNAVAILABLE));
        answer.map(drop).map_err(|error| format!("{error:#}"))
    });
    refused.await?;
    unheld(probe, ask).await.map(drop).context("after the loss")
}

/// Starts a shard that has a ring to itself.
async fn alone(probe: Probe, ring: &str) -> Result<Probe> {
    let shard = probe.fixture.alone(ring, Offer::Both, &maps()).await?;
    shard.serves(&["/api/v1/configmaps"]).await?;
    Ok(probe.of(&shard))
}

/// A watch that goes on, with its head there.
async fn watch(probe: &Probe, http: Http, ask: &Ask) -> Result<Open> {
    let open = probe.shard.proxied.open(http, ask, &probe.mark).await?;
    ensure!(open.head.status == StatusCode::OK, "{}", open.head.status);
    Ok(open)
}

async fn websocket_watch(probe: &Probe, ask: Ask) -> Result<Raw> {
    let mut raw = Raw::send(&probe.shard.proxied, &websocket(ask), &probe.mark).await?;
    let head = raw.head().await?;
    ensure!(head.status.contains("101"), "{head:#?}");
    Ok(raw)
}

/// Writes to an object past all proxies.
async fn patch(fixture: &Fixture, path: &str, patch: &Value) -> Result<Value> {
    fixture.admin(&Ask::new(Method::PATCH, path).body(MERGE, patch.to_string())).await
}

/// Gives the Lease of the shard another holder, or none.
async fn hold(probe: &Probe, spec: Value) -> Result<Value> {
    patch(&probe.fixture, &format!("{LEASES}/{}", probe.shard.identity.pod()), &json!({"spec": spec})).await
}

/// The client is told what others may have, and of nothing that could be worked on.
async fn parted(probe: Probe) -> Result<Outcome> {
    probe.fixture.namespace("losing").await?;
    let (maps, probe) = (Kind::ConfigMap.collection("losing"), alone(probe, "losing").await?);
    let object = |name| json!({"metadata": {"name": name, "labels": probe.shard.labels()}});
    let version = probe.fixture.anew(&maps, &object("leaver")).await?;
    let ask = Ask::get(format!("{maps}?watch=1"));
    let raw = websocket_watch(&probe, Ask::get(format!("{maps}?watch=1&resourceVersion={version}"))).await?;
    let mut watches = try_join_all(Http::BOTH.map(|http| watch(&probe, http, &ask))).await?;
    for watch in &mut watches {
        let events = read(watch, Format::Lines, last(|event| event.shows("leaver"))).await?;
        ensure!(events.len() == 1, "{events:?}");
    }
    hold(&probe, held()).await?;
    until_lost(&probe, &Ask::get(&maps)).await?;
    probe.fixture.anew(&maps, &object("newcomer")).await?;
    let others = json!({"metadata": {"labels": {&RingLabels::of(&"losing".parse()?).shard: "another"}}});
    patch(&probe.fixture, &format!("{maps}/leaver"), &others).await?;
    for watch in &mut watches {
        let told = read(watch, Format::Lines, last(|_| true)).await?;
        let told: Vec<_> = told.iter().map(Event::json).collect::<Result<_>>()?;
        ensure!(told.len() == 1 && told[0]["type"] == "DELETED", "{told:?}");
        ensure!(told[0]["object"]["metadata"]["name"] == "leaver", "{told:?}");
    }
    hold(&probe, json!({"holderIdentity": null})).await?;
    for watch in watches {
        let end = expired(&one_event(watch).await?)?;
        ensure!(end["type"] == "ERROR" && end["object"]["code"] == 410, "{end}");
    }
    let messages = raw.rest().await?;
    let told = String::from_utf8_lossy(&messages);
    ensure!(told.contains("\"DELETED\"") && told.contains("leaver") && told.contains("\"code\":410"), "{told}");
    ensure!(!told.contains("newcomer") && messages.iter().rev().nth(3) == Some(&CLOSE), "{told}");
    Ok(Outcome::Changed(
        "tells of nothing but of what leaves the shard, as of `DELETED`, and ends with 410 when the Lease is held again, or \
         when the client wants it for no longer",
    ))
}

/// A client that gives up a watch which breaks off, or which is refused, lives on.
async fn silent(probe: Probe) -> Result<Outcome> {
    probe.fixture.namespace("silent").await?;
    let (secrets, probe) = ("/api/v1/namespaces/silent/secrets", alone(probe, "silent").await?);
    let ask = Ask::get(format!("{secrets}?watch=1"));
    let watches = try_join_all(Http::BOTH.map(|http| watch(&probe, http, &ask))).await?;
    hold(&probe, held()).await?;
    until_lost(&probe, &Ask::get(secrets)).await?;
    let newcomer = json!({"metadata": {"name": "newcomer"}}).to_string();
    probe.fixture.admin(&Ask::new(Method::POST, secrets).body(JSON, newcomer)).await?;
    hold(&probe, json!({"holderIdentity": null})).await?;
    for watch in watches {
        let told = one_event(watch).await.context("it breaks off")?;
        ensure!(told.is_empty(), "{}", String::from_utf8_lossy(&told));
    }
    Ok(Outcome::Changed(
        "says nothing, and ends in order when the Lease is held again: the client goes on from where it is, or, where the \
         resource is the ring's, lists again",
    ))
}

/// What the API server says of a watch from a state that it does not have any more, but for the message.
fn expired(event: &[u8]) -> Result<Value> {
    let mut event: Value =
        serde_json::from_slice(event).with_context(|| String::from_utf8_lossy(event).into_owned())?;
    ensure!(event["object"]["message"].take().is_string(), "{event}");
    Ok(event)
}

/// Reads the one event that there is, to the end of the watch.
async fn one_event(watch: Open) -> Result<Vec<u8>> {
    Ok(watch.collect().await?.body.into())
}

/// One resource takes another's place. A watch of what joins was not narrowed, and would show all shards' objects for ever.
async fn changed(probe: Probe) -> Result<Outcome> {
    let probe = alone(probe, "leaving").await?;
    let of_maps = Ask::get(format!("{MAPS}?watch=1"));
    let nowhere = Kind::Website.collection("nowhere");
    let of_sites = Ask::get(format!("{nowhere}?watch=1&resourceVersion={}", probe.fixture.end));
    let asks = FORMS.map(|(_, media_type, format)| (of_maps.clone().accept(media_type), media_type, format));
    let asks: Vec<_> = asks.into_iter().chain([(of_sites, JSON, Format::Lines)]).collect();
    let watches = try_join_all(asks.iter().map(|(ask, ..)| watch(&probe, Http::Two, ask)));
    let (watches, raw) = tokio::try_join!(watches, websocket_watch(&probe, of_maps))?;
    probe.fixture.shards("leaving", &json!([{"group": "web.example.com", "resource": "websites"}])).await?;
    for ((_, media_type, format), watch) in asks.into_iter().zip(watches) {
        let event = one_event(watch).await?;
        let whole = format.first(&event) == Some(event.len()) && contains(&event, b"ERROR");
        ensure!(whole && contains(&event, b"Expired"), "{:?} came", String::from_utf8_lossy(&event));
        if format == Format::Lines {
            let old = Ask::get(format!("{SITES}?watch=1&resourceVersion=2")).accept(media_type);
            let (direct, own) = (expired(&probe.past(&old).await?.body)?, expired(&event)?);
            ensure!(direct == own, "{direct} became {own}");
        }
    }
    let messages = raw.rest().await?;
    ensure!(contains(&messages, b"Expired") && contains(&messages, &[CLOSE, 2]), "{messages:?} came");
    Ok(Outcome::Changed(
        "ends with 410, and in order: what the client knows is of another set of objects, so it lists again",
    ))
}
