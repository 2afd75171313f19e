//! A proxy that is no shard yet, one that is none any more, and one whose ring shards something else from now on.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use http::{Method, StatusCode, header};
use ringside_e2e::{compatibility::Outcome, eventually::eventually, relay::Offer};
use ringside_ring::labels::RingLabels;
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::timeout};

use super::upgrades::websocket;
use crate::compatibility::{
    client::{Ask, Http, Open},
    compare::{Probe, contains},
    fixture::{Fixture, NAMESPACE},
    raw::Raw,
    shard::{Member, Shard},
    stream::{Event, FORMS, Format, JSON, PROTOBUF, read},
    table::{Case, case},
};

const MAPS: &str = "/api/v1/namespaces/fixed/configmaps";
const SITES: &str = "/apis/web.example.com/v1/namespaces/fixed/websites";
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
static WAITING: OnceCell<Shard> = OnceCell::const_new();

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for http in Http::BOTH {
        for (form, ask) in OF_RESOURCES {
            let form = format!("{form}, {}", http.name());
            cases.push(case(
                "request for a resource without the shard Lease",
                &form,
                move |fixture, mark| async move {
                    let shard = WAITING.get_or_try_init(|| waiting(&fixture)).await?;
                    unheld(&Probe { shard, http, mark: &mark }, &ask()).await
                },
            ));
        }
        cases.push(case(
            "request for no resource without the shard Lease",
            http.name(),
            move |fixture, mark| async move {
                let shard = WAITING.get_or_try_init(|| waiting(&fixture)).await?;
                let probe = Probe { shard, http, mark: &mark };
                probe.same(&Ask::get("/version")).await?;
                probe.same(&Ask::get("/apis/web.example.com/v1")).await
            },
        ));
    }
    let of_main = "watch of a main resource when the shard Lease is lost";
    cases.push(case(of_main, "HTTP/1.1; HTTP/2", |fixture, mark| async move { parted(&fixture, &mark).await }));
    cases.push(case("watch when the shard Lease is lost", "WebSocket", |fixture, mark| async move {
        broken_off(&fixture, &mark).await
    }));
    let forms: Vec<_> = FORMS.iter().map(|(form, ..)| *form).chain(["WebSocket"]).collect();
    cases.push(case("watch when its resource leaves the ring", &forms.join("; "), |fixture, mark| async move {
        left(&fixture, &mark).await
    }));
    cases.push(case("watch when its resource joins the ring", "JSON", |fixture, mark| async move {
        joined(&fixture, &mark).await
    }));
    cases
}

/// The Lease of a shard, as it is when somebody else has it for an hour.
fn held() -> Value {
    json!({
        "holderIdentity": "shardlease-controller", "leaseDurationSeconds": 3600, "leaseTransitions": 1,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
    })
}

fn leases() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")
}

async fn waiting(fixture: &Fixture) -> Result<Shard> {
    let name = "shard-waiting";
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": held(),
    });
    fixture.admin(&Ask::new(Method::POST, leases()).body(JSON, lease.to_string())).await?;
    fixture.alone(Member { ring: "waiting", name, owns: "own-", offer: Offer::Both }, &maps()).await
}

fn maps() -> Value {
    json!([{"group": "", "resource": "configmaps"}])
}

/// It is not sent on, and the client is told when to come again.
async fn unheld(probe: &Probe<'_>, ask: &Ask) -> Result<Outcome> {
    let direct = probe.past(ask).await?;
    ensure!(direct.status.is_success(), "{}: {}", direct.status, direct.text());
    probe.shard.relay.take(probe.mark);
    let proxied = probe.shard.proxied.exchange(probe.http, ask, probe.mark).await?;
    let arrived = probe.shard.relay.take(probe.mark);
    ensure!(arrived.is_empty(), "it arrived at the API server: {arrived:#?}");
    ensure!(proxied.status == StatusCode::SERVICE_UNAVAILABLE, "{}: {}", proxied.status, proxied.text());
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
async fn alone(fixture: &Fixture, ring: &str) -> Result<Shard> {
    let name = format!("shard-{ring}");
    let shard = fixture.alone(Member { ring, name: &name, owns: "own-", offer: Offer::Both }, &maps()).await?;
    shard.serves(&["/api/v1/configmaps"]).await.map(|()| shard)
}

/// A watch that goes on, with its head there.
async fn watch(shard: &Shard, http: Http, ask: &Ask, mark: &str) -> Result<Open> {
    let open = shard.proxied.open(http, ask, mark).await?;
    ensure!(open.head.status == StatusCode::OK, "{}", open.head.status);
    Ok(open)
}

async fn websocket_watch(shard: &Shard, ask: Ask, mark: &str) -> Result<Raw> {
    let mut raw = Raw::send(&shard.proxied, &websocket(ask), mark).await?;
    let head = raw.head().await?;
    ensure!(head.status.contains("101"), "{head:#?}");
    Ok(raw)
}

/// Writes to an object past all proxies.
async fn patch(fixture: &Fixture, path: &str, patch: &Value) -> Result<Value> {
    let patch = Ask::new(Method::PATCH, path).body("application/merge-patch+json", patch.to_string());
    fixture.admin(&patch).await
}

/// Has somebody hold the Lease of the shard, or nobody.
async fn hold(fixture: &Fixture, shard: &Shard, spec: Value) -> Result<Value> {
    patch(fixture, &format!("{}/{}", leases(), shard.identity.pod()), &json!({"spec": spec})).await
}

/// No client may take it for a watch that has ended in order.
async fn broken_off(fixture: &Fixture, mark: &str) -> Result<Outcome> {
    let shard = alone(fixture, "breaking").await?;
    let raw = websocket_watch(&shard, Ask::get(format!("{MAPS}?watch=1")), mark).await?;
    hold(fixture, &shard, held()).await?;
    let rest = timeout(SOON, raw.rest()).await.context("the WebSocket goes on")??;
    ensure!(rest.is_empty(), "{rest:?} came");
    unheld(&Probe { shard: &shard, http: Http::Two, mark }, &Ask::get(MAPS)).await.context("after the loss")?;
    Ok(Outcome::Changed("breaks off, as when the API server is gone: by then the objects may be another shard's"))
}

/// The client is told what others may have, and of nothing that could be worked on.
async fn parted(fixture: &Fixture, mark: &str) -> Result<Outcome> {
    let (maps, leaver) = ("/api/v1/namespaces/losing/configmaps", "/api/v1/namespaces/losing/configmaps/leaver");
    fixture.namespace("losing").await?;
    let shard = alone(fixture, "losing").await?;
    let object = |name| json!({"metadata": {"name": name, "labels": shard.labels()}});
    fixture.anew(maps, &object("leaver")).await?;
    let ask = Ask::get(format!("{maps}?watch=1"));
    let mut watches = try_join_all(Http::BOTH.map(|http| watch(&shard, http, &ask, mark))).await?;
    for watch in &mut watches {
        let events = read(watch, Format::Lines, |event| event.shows("leaver")).await?;
        ensure!(events.len() == 1, "{events:?}");
    }
    hold(fixture, &shard, held()).await?;
    eventually("the proxy knows", SOON, || async {
        let answer = shard.proxied.exchange(Http::Two, &Ask::get(maps), mark).await.map_err(|it| it.to_string())?;
        if answer.status == StatusCode::SERVICE_UNAVAILABLE { Ok(()) } else { Err(answer.status.to_string()) }
    })
    .await?;
    fixture.anew(maps, &object("newcomer")).await?;
    let others = json!({"metadata": {"labels": {&RingLabels::of(&"losing".parse()?).shard: "another"}}});
    patch(fixture, leaver, &others).await?;
    for watch in &mut watches {
        let told = timeout(SOON, read(watch, Format::Lines, |_| true)).await.context("it is not told")??;
        let told: Vec<_> = told.iter().map(Event::json).collect::<Result<_>>()?;
        ensure!(told.len() == 1 && told[0]["type"] == "DELETED", "{told:?}");
        ensure!(told[0]["object"]["metadata"]["name"] == "leaver", "{told:?}");
    }
    hold(fixture, &shard, json!({"holderIdentity": null})).await?;
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

async fn left(fixture: &Fixture, mark: &str) -> Result<Outcome> {
    let shard = alone(fixture, "leaving").await?;
    let ask = Ask::get(format!("{MAPS}?watch=1"));
    let watches = FORMS.map(|(_, media_type, _)| {
        let (shard, ask) = (&shard, ask.clone().accept(media_type));
        async move { try_join_all(Http::BOTH.map(|http| watch(shard, http, &ask, mark))).await }
    });
    let (watches, raw) = tokio::try_join!(try_join_all(watches), websocket_watch(&shard, ask.clone(), mark))?;
    fixture.shards("leaving", &json!([{"group": "web.example.com", "resource": "websites"}])).await?;
    for ((_, media_type, format), watches) in FORMS.into_iter().zip(watches) {
        // Custom resources have no protobuf of their own.
        let old = Ask::get(format!("{SITES}?watch=1&resourceVersion=2")).accept(media_type);
        for watch in watches {
            let event = one_event(watch).await?;
            let whole = format.first(&event) == Some(event.len()) && contains(&event, b"ERROR");
            ensure!(whole && contains(&event, b"Expired"), "{:?} came", String::from_utf8_lossy(&event));
            if format == Format::Lines {
                let direct = shard.direct.exchange(Http::Two, &old, mark).await?;
                let (direct, own) = (expired(&direct.body)?, expired(&event)?);
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
async fn joined(fixture: &Fixture, mark: &str) -> Result<Outcome> {
    let shard = alone(fixture, "joining").await?;
    let ask = Ask::get(format!(
        "/apis/web.example.com/v1/namespaces/nowhere/websites?watch=1&resourceVersion={}",
        fixture.end
    ));
    let watch = watch(&shard, Http::Two, &ask, mark).await?;
    fixture.shards("joining", &json!([{"group": "web.example.com", "resource": "websites"}])).await?;
    let event = one_event(watch).await?;
    let old = Ask::get(format!("{SITES}?watch=1&resourceVersion=2"));
    let direct = shard.direct.exchange(Http::Two, &old, mark).await?;
    let (direct, own) = (expired(&direct.body)?, expired(&event)?);
    ensure!(direct == own, "{direct} became {own}");
    Ok(Outcome::Changed(CHANGED))
}
