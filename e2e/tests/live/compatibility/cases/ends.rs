//! A proxy that is no shard yet, one that is none any more, and one whose ring shards something else from now on.

use futures::future::try_join_all;

use super::*;
use crate::compatibility::{
    client::Open,
    stream::{FORMS, read},
};

/// The opcode of a closing frame that is whole (RFC 6455, section 5.2).
const CLOSE: u8 = 0x88;
/// Long on a loaded machine: a Lease is renewed every three seconds.
const SOON: Duration = Duration::from_secs(60);

type Asks = fn() -> Ask;

/// What is refused to whom has no Lease.
const OF_RESOURCES: [(&str, Asks); 5] = [
    ("get", || Ask::get(format!("{MAPS}/own-1"))),
    ("list", || Ask::get(MAPS)),
    ("list as protobuf", || Ask::get(MAPS).accept(PROTOBUF)),
    ("watch", || Ask::get(format!("{MAPS}?watch=1&timeoutSeconds=1"))),
    ("write", || {
        let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"unheld"}}"#;
        Ask::new(Method::POST, format!("{MAPS}?dryRun=All")).body(JSON, object)
    }),
];

/// A proxy whose Lease somebody else holds.
static WAITING: OnceCell<Arc<Shard>> = OnceCell::const_new();

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for http in Http::BOTH {
        for (form, ask) in OF_RESOURCES {
            let form = format!("{form}, {}", http.name());
            let unheld = async move |probe| unheld(&waiting(probe).await?, &ask()).await;
            cases.push(case("request for a resource without the shard Lease", &form, unheld).by((http, Http::Two)));
        }
        let no_resource = case("request for no resource without the shard Lease", http.name(), async |probe| {
            let probe = waiting(probe).await?;
            probe.same(&Ask::get("/version")).await?;
            probe.same(&Ask::get("/apis/web.example.com/v1")).await
        });
        cases.push(no_resource.by((http, Http::Two)));
    }
    let of_main = "watch of a main resource when the shard Lease is lost";
    cases.push(case(of_main, "HTTP/1.1; HTTP/2", parted));
    cases.push(case("watch when the shard Lease is lost", "WebSocket", broken_off));
    let forms: Vec<_> = FORMS.iter().map(|(form, ..)| *form).chain(["WebSocket"]).collect();
    cases.push(case("watch when its resource leaves the ring", &forms.join("; "), left));
    cases.push(case("watch when its resource joins the ring", "JSON", joined));
    cases
}

/// The Lease of a shard, as it is when somebody else has it for an hour.
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
    ensure!(proxied.headers.get(header::CACHE_CONTROL) == direct.headers.get(header::CACHE_CONTROL), "Cache-Control");
    let content_type = (&direct.headers[header::CONTENT_TYPE], &proxied.headers[header::CONTENT_TYPE]);
    ensure!(content_type.0 == content_type.1, "{content_type:?}");
    ensure!(contains(&proxied.body, b"ServiceUnavailable"), "{}", proxied.text());
    Ok(Outcome::Changed(
        "refused with 503 and Retry-After, when the Lease does not come soon: who does not hold it is no shard",
    ))
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

/// Has somebody hold the Lease of the shard, or nobody.
async fn hold(probe: &Probe, spec: Value) -> Result<Value> {
    patch(&probe.fixture, &format!("{LEASES}/{}", probe.shard.identity.pod()), &json!({"spec": spec})).await
}

/// No client may take it for a watch that has ended in order.
async fn broken_off(probe: Probe) -> Result<Outcome> {
    let probe = alone(probe, "breaking").await?;
    let raw = websocket_watch(&probe, Ask::get(format!("{MAPS}?watch=1"))).await?;
    hold(&probe, held()).await?;
    let rest = timeout(SOON, raw.rest()).await.context("the WebSocket goes on")??;
    ensure!(rest.is_empty(), "{rest:?} came");
    unheld(&probe, &Ask::get(MAPS)).await.context("after the loss")?;
    Ok(Outcome::Changed("breaks off, as when the API server is gone: by then the objects may be another shard's"))
}

/// The client is told what others may have, and of nothing that could be worked on.
async fn parted(probe: Probe) -> Result<Outcome> {
    let (maps, leaver) = ("/api/v1/namespaces/losing/configmaps", "/api/v1/namespaces/losing/configmaps/leaver");
    probe.fixture.namespace("losing").await?;
    let probe = alone(probe, "losing").await?;
    let object = |name| json!({"metadata": {"name": name, "labels": probe.shard.labels()}});
    probe.fixture.anew(maps, &object("leaver")).await?;
    let ask = Ask::get(format!("{maps}?watch=1"));
    let mut watches = try_join_all(Http::BOTH.map(|http| watch(&probe, http, &ask))).await?;
    for watch in &mut watches {
        let events = read(watch, Format::Lines, |event| event.shows("leaver")).await?;
        ensure!(events.len() == 1, "{events:?}");
    }
    hold(&probe, held()).await?;
    eventually("the proxy knows", SOON, || async {
        let answer = probe.proxied(&Ask::get(maps)).await.map_err(|it| it.to_string())?;
        if answer.status == StatusCode::SERVICE_UNAVAILABLE { Ok(()) } else { Err(answer.status.to_string()) }
    })
    .await?;
    probe.fixture.anew(maps, &object("newcomer")).await?;
    let others = json!({"metadata": {"labels": {&RingLabels::of(&"losing".parse()?).shard: "another"}}});
    patch(&probe.fixture, leaver, &others).await?;
    for watch in &mut watches {
        let told = timeout(SOON, read(watch, Format::Lines, |_| true)).await.context("it is not told")??;
        let told: Vec<_> = told.iter().map(Event::json).collect::<Result<_>>()?;
        ensure!(told.len() == 1 && told[0]["type"] == "DELETED", "{told:?}");
        ensure!(told[0]["object"]["metadata"]["name"] == "leaver", "{told:?}");
    }
    hold(&probe, json!({"holderIdentity": null})).await?;
    for watch in watches {
        let end = expired(&one_event(watch).await?)?;
        ensure!(end["type"] == "ERROR" && end["object"]["code"] == 410, "{end}");
    }
    Ok(Outcome::Changed(
        "tells of nothing but of what leaves the shard, as of `DELETED`, and ends with 410 when the Lease is held again, or \
         when the client wants it for no longer",
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
async fn one_event(mut watch: Open) -> Result<Vec<u8>> {
    let mut read = Vec::new();
    while let Some(piece) = timeout(SOON, watch.piece()).await.context("the watch goes on")?? {
        read.extend_from_slice(&piece);
    }
    Ok(read)
}

async fn left(probe: Probe) -> Result<Outcome> {
    let probe = alone(probe, "leaving").await?;
    let ask = Ask::get(format!("{MAPS}?watch=1"));
    let watches = FORMS.map(|(_, media_type, _)| {
        let (probe, ask) = (&probe, ask.clone().accept(media_type));
        async move { try_join_all(Http::BOTH.map(|http| watch(probe, http, &ask))).await }
    });
    let (watches, raw) = tokio::try_join!(try_join_all(watches), websocket_watch(&probe, ask.clone()))?;
    probe.fixture.shards("leaving", &json!([{"group": "web.example.com", "resource": "websites"}])).await?;
    for ((_, media_type, format), watches) in FORMS.into_iter().zip(watches) {
        // Custom resources have no protobuf of their own.
        let old = Ask::get(format!("{SITES}?watch=1&resourceVersion=2")).accept(media_type);
        for watch in watches {
            let event = one_event(watch).await?;
            let whole = format.first(&event) == Some(event.len()) && contains(&event, b"ERROR");
            ensure!(whole && contains(&event, b"Expired"), "{:?} came", String::from_utf8_lossy(&event));
            if format == Format::Lines {
                let (direct, own) = (expired(&probe.past(&old).await?.body)?, expired(&event)?);
                ensure!(direct == own, "{direct} became {own}");
            }
        }
    }
    let messages = timeout(SOON, raw.rest()).await.context("the WebSocket goes on")??;
    ensure!(contains(&messages, b"Expired") && contains(&messages, &[CLOSE, 2]), "{messages:?} came");
    Ok(Outcome::Changed(CHANGED))
}

const CHANGED: &str =
    "ends with 410, and in order: what the client knows is of another set of objects, so it lists again";

/// It was not narrowed before, and would show all shards' objects for ever.
async fn joined(probe: Probe) -> Result<Outcome> {
    let probe = alone(probe, "joining").await?;
    let nowhere = SITES.replace("fixed", "nowhere");
    let ask = Ask::get(format!("{nowhere}?watch=1&resourceVersion={}", probe.fixture.end));
    let watch = watch(&probe, Http::Two, &ask).await?;
    probe.fixture.shards("joining", &json!([{"group": "web.example.com", "resource": "websites"}])).await?;
    let event = one_event(watch).await?;
    let old = Ask::get(format!("{SITES}?watch=1&resourceVersion=2"));
    let (direct, own) = (expired(&probe.past(&old).await?.body)?, expired(&event)?);
    ensure!(direct == own, "{direct} became {own}");
    Ok(Outcome::Changed(CHANGED))
}
