//! kopf's peering objects: what the controller says of itself there, and what it sees of others.

use super::*;

const PEERINGS: &str = "/apis/kopf.dev/v1/namespaces/default/kopfpeerings";
const RING: &str = "ringside-compatibility";
const BEHAVIOUR: &str = "kopf's peers";
/// What of such a request and of its answer is the proxy's.
const READABLE: Rewritten = Rewritten { headers: &["accept", "accept-encoding"], ..AS_SENT };

const SEEN: &str =
    "without the other shards, with what the controller says of itself: shards don't pause for each other";
const SAID: &str = "the API server is told that the ring is there, and what it answers to that is shown: shards don't pause for each other";

type Otherwise = fn(&str) -> Ask;

/// What no controller asks to see its peers.
const OTHERWISE: [(&str, Otherwise); 5] = [
    ("get as a table", |path| Ask::get(path).accept(TABLE)),
    ("a patch of labels", |path| patch(path, &json!({"metadata": {"labels": {"a": "b"}}}))),
    ("a patch of labels and the status", |path| {
        patch(path, &json!({"metadata": {"labels": {"a": "b"}}, "status": {"x": {"priority": 1}}}))
    }),
    ("a JSON patch", |path| {
        Ask::new(Method::PATCH, path)
            .body(JSON_PATCH, r#"[{"op":"add","path":"/status","value":{"y":{"priority":1}}}]"#)
    }),
    ("a list as a table", |path| Ask::get(path.rsplit_once('/').map_or(path, |(list, _)| list)).accept(TABLE)),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case(BEHAVIOUR, "get, list", seen),
        case(BEHAVIOUR, "watch", watched),
        case(BEHAVIOUR, "merge patch of its own entry, and of others", said),
        case(BEHAVIOUR, "merge patch where there is no such object", absent),
    ];
    cases.push(case(BEHAVIOUR, "get, where only protobuf is accepted", async move |probe| {
        let path = made(&probe.fixture, "in-protobuf", &json!({RING: entry("then")})).await?;
        let ask = Ask::get(path).accept(PROTOBUF);
        probe.same_as(&ask, StatusCode::NOT_ACCEPTABLE).await
    }));
    for (number, (form, ask)) in OTHERWISE.into_iter().enumerate() {
        cases.push(case(BEHAVIOUR, form, async move |probe| {
            let path = made(&probe.fixture, &format!("otherwise-{number}"), &json!({RING: entry("then")})).await?;
            probe.same(&ask(&path)).await
        }));
    }
    cases
}

fn entry(lastseen: &str) -> Value {
    json!({"priority": 0, "lifetime": 60, "lastseen": lastseen})
}

/// A peering object with these peers; its path.
async fn made(fixture: &Fixture, name: &str, status: &Value) -> Result<String> {
    let object =
        json!({"apiVersion": "kopf.dev/v1", "kind": "KopfPeering", "metadata": {"name": name}, "status": status});
    fixture.anew(PEERINGS, &object).await?;
    Ok(format!("{PEERINGS}/{name}"))
}

fn patch(path: &str, patch: &Value) -> Ask {
    Ask::new(Method::PATCH, path).body(MERGE, patch.to_string())
}

fn read(answer: &Answer) -> Result<Value> {
    ensure!(answer.status == StatusCode::OK, "{}: {}", answer.status, answer.text());
    serde_json::from_slice(&answer.body).with_context(|| answer.text())
}

/// What the controller is shown of what the API server has: without the ring, and with itself.
fn shown(mut real: Value, own: Option<&Value>) -> Value {
    let status = real["status"].as_object_mut();
    if let Some(status) = status {
        status.remove(RING);
        status.extend(own.map(|own| ("me".to_owned(), own.clone())));
    }
    real
}

async fn seen(probe: Probe) -> Result<Outcome> {
    let peers = json!({RING: entry("then"), "stranger": {"priority": 7}});
    let path = made(&probe.fixture, "seen", &peers).await?;
    let list = format!("{PEERINGS}?fieldSelector=metadata.name%3Dseen");
    for target in [path, list] {
        let ask = Ask::get(target).accept(JSON);
        let direct = probe.past(&ask).await?;
        let proxied = probe.proxied(&ask).await?;
        probe.arrived_as(&ask, READABLE)?;
        own_answer(&direct, &proxied)?;
        let (real, seen) = (read(&direct)?, read(&proxied)?);
        // Of a list, the one that is in it.
        let [real, seen] = [real, seen].map(|mut read| match read.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) if items.len() == 1 => items.remove(0),
            _ => read,
        });
        let real = shown(real, None);
        ensure!(real == seen, "{real} became {seen}");
        let peers = seen["status"].as_object().context("peers")?;
        ensure!(peers.keys().eq(["stranger"]), "{peers:?}");
    }
    Ok(Outcome::Changed(SEEN))
}

async fn watched(probe: Probe) -> Result<Outcome> {
    let path = made(&probe.fixture, "watched", &json!({RING: entry("then"), "stranger": {"priority": 7}})).await?;
    let watch = Ask::get(format!("{PEERINGS}?watch=1&fieldSelector=metadata.name%3Dwatched&timeoutSeconds=30"));
    let mut open = probe.shard.proxied.open(probe.http, &watch.accept(JSON), &probe.mark).await?;
    let mut event = async |kind: &str| {
        let events = stream::read(&mut open, Format::Lines, |_| true).await?;
        let event = events.last().context("an event")?.json()?;
        ensure!(event["type"] == kind, "{event}");
        anyhow::Ok(event["object"]["status"].clone())
    };
    let first = event("ADDED").await?;
    ensure!(first == json!({"stranger": {"priority": 7}}), "{first}");
    probe.proxied(&patch(&path, &json!({"status": {"me": entry("now")}}))).await?;
    // That the ring is there comes first.
    let mut said = event("MODIFIED").await?;
    if said["me"].is_null() {
        said = event("MODIFIED").await?;
    }
    ensure!(said == json!({"stranger": {"priority": 7}, "me": entry("now")}), "{said}");
    Ok(Outcome::Changed(SEEN))
}

async fn said(probe: Probe) -> Result<Outcome> {
    let path = made(&probe.fixture, "said", &json!({"old": {"priority": 0}})).await?;
    let says = patch(&path, &json!({"status": {"me": entry("now")}})).accept("*/*");
    let proxied = probe.unforwarded(&says).await?;
    let real = read(&probe.past(&Ask::get(&path)).await?)?;
    ensure!(real["status"][RING]["lifetime"] == 60 && real["status"]["me"].is_null(), "{real}");
    let seen = read(&proxied)?;
    ensure!(shown(real.clone(), Some(&entry("now"))) == seen, "{real} became {seen}");
    // Who is gone is taken off.
    let off = json!({"status": {"old": null}});
    let proxied = probe.proxied(&patch(&path, &off)).await?;
    let arrived = probe.arrived()?;
    let sent: Value = serde_json::from_slice(&arrived.body)?;
    ensure!((&arrived.method, &sent) == (&Method::PATCH, &off), "{arrived:#?}");
    let (real, seen) = (read(&probe.past(&Ask::get(&path)).await?)?, read(&proxied)?);
    ensure!(shown(real.clone(), Some(&entry("now"))) == seen, "{real} became {seen}");
    ensure!(seen["status"].get("old").is_none(), "{seen}");
    Ok(Outcome::Changed(SAID))
}

/// kopf goes on without peers then.
async fn absent(probe: Probe) -> Result<Outcome> {
    let says = patch(&format!("{PEERINGS}/absent"), &json!({"status": {"me": entry("now")}}));
    let direct = probe.past(&says).await?;
    let proxied = probe.proxied(&says).await?;
    ensure!(direct.status == StatusCode::NOT_FOUND, "{}", direct.text());
    let same = (direct.status, &direct.body) == (proxied.status, &proxied.body);
    ensure!(same, "{} became {}", direct.text(), proxied.text());
    own_answer(&direct, &proxied)?;
    Ok(Outcome::Changed(SAID))
}
