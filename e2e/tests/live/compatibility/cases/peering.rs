//! kopf's peering objects: what the controller says of itself there, and what it sees of others.

use super::*;

const PEERINGS: &str = "/apis/kopf.dev/v1/namespaces/default/kopfpeerings";
const RING: &str = "ringside-compatibility";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("kopf's peers", "get, list", seen),
        case("kopf's peers", "merge patch of its own entry, and of others", said),
    ]
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

fn read(answer: Answer) -> Result<Value> {
    let answer = answer.with(StatusCode::OK)?;
    serde_json::from_slice(&answer.body).with_context(|| answer.text())
}

/// What the controller is shown of what the API server has: without the ring, and with itself.
fn shown(mut real: Value, own: Option<Value>) -> Value {
    if let Some(status) = real["status"].as_object_mut() {
        status.remove(RING);
        status.extend(own.map(|own| ("me".to_owned(), own)));
    }
    real
}

async fn seen(probe: Probe) -> Result<Outcome> {
    let peers = json!({RING: entry("then"), "stranger": {"priority": 7}});
    let path = made(&probe.fixture, "seen", &peers).await?;
    for (target, at) in [(path, ""), (format!("{PEERINGS}?fieldSelector=metadata.name%3Dseen"), "/items/0")] {
        let ask = Ask::get(target).accept(JSON);
        let (direct, proxied) = (probe.past(&ask).await?, probe.proxied(&ask).await?);
        probe.arrived_as(&ask, Rewritten { headers: &["accept", "accept-encoding"], ..AS_SENT })?;
        own_answer(&direct, &proxied)?;
        let [Some(real), Some(seen)] = [read(direct)?, read(proxied)?].map(|read| read.pointer(at).cloned()) else {
            anyhow::bail!("the list is empty")
        };
        let real = shown(real, None);
        ensure!(real == seen && seen["status"] == json!({"stranger": {"priority": 7}}), "{real} became {seen}");
    }
    Ok(Outcome::Changed(
        "without the other shards, with what the controller says of itself: shards don't pause for each other",
    ))
}

async fn said(probe: Probe) -> Result<Outcome> {
    let path = made(&probe.fixture, "said", &json!({"old": {"priority": 0}})).await?;
    let me = json!({"status": {"me": entry("now")}});
    let seen = read(probe.unforwarded(&patch(&path, &me).accept("*/*")).await?)?;
    let real = read(probe.past(&Ask::get(&path)).await?)?;
    ensure!(real["status"][RING]["lifetime"] == 60 && real["status"]["me"].is_null(), "{real}");
    ensure!(shown(real.clone(), Some(entry("now"))) == seen, "{real} became {seen}");
    // Who is gone is taken off.
    let off = json!({"status": {"old": null}});
    let seen = read(probe.proxied(&patch(&path, &off)).await?)?;
    let arrived = probe.arrived()?;
    let sent: Value = serde_json::from_slice(&arrived.body)?;
    ensure!((&arrived.method, &sent) == (&Method::PATCH, &off), "{arrived:#?}");
    let real = read(probe.past(&Ask::get(&path)).await?)?;
    ensure!(shown(real.clone(), Some(entry("now"))) == seen && seen["status"].get("old").is_none(), "{real}: {seen}");
    Ok(Outcome::Changed(
        "the API server is told that the ring is there, and what it answers to that is shown: shards don't pause for each \
         other",
    ))
}
