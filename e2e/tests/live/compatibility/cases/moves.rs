//! What a client sees, and the API server, when an object is moved away.

use anyhow::{Context as _, Result, ensure};
use http::{Method, StatusCode};
use ringside_e2e::{
    compatibility::{Outcome, own_requests},
    eventually::eventually,
    relay::Offer,
};
use ringside_ring::labels::RingLabels;
use serde_json::{Value, json};

use crate::compatibility::{
    client::{Ask, Endpoint, Http},
    fixture::{DEADLINE, Fixture},
    query,
    shard::Member,
    table::{Case, case},
};

const RING: &str = "moving";
const SECRETS: &str = "/api/v1/namespaces/moving/secrets";
const LEAVER: &str = "/api/v1/namespaces/moving/secrets/leaver";

pub(crate) fn cases() -> Vec<Case> {
    vec![case("watch behind a move that the watch before it did not see", "JSON", |fixture, mark| async move {
        missed(&fixture, &mark).await
    })]
}

/// A client lists between two watches, and an object was drained in between. Its list does not have the object any more, and
/// no event of the API server will ever say so.
async fn missed(fixture: &Fixture, mark: &str) -> Result<Outcome> {
    fixture.namespace(RING).await?;
    let member = Member { ring: RING, name: "shard-moving", owns: "leaver", offer: Offer::Both };
    let shard = fixture.alone(member, &json!([{"group": "", "resource": "secrets"}])).await?;
    shard.serves(&["/api/v1/secrets"]).await?;
    let leaver = json!({"metadata": {"name": "leaver", "labels": shard.labels()}, "type": "Opaque"});
    fixture.anew(SECRETS, &leaver).await?;

    let (from, names) = list(&shard.proxied, mark).await?;
    ensure!(names == ["leaver"], "{names:?}");
    // Only the API server can tell whether this one showed it: so the proxy asks. It has no bookmark for a minute: one behind
    // the drain would leave no question, and initial events have two of them within the first seconds.
    let other = Ask::get(format!("{SECRETS}?watch=1&resourceVersion={from}&fieldSelector=type%3Dkubernetes.io/tls"));
    let _other = shard.proxied.open(Http::Two, &other, mark).await?;
    let first = watch(&shard.proxied, &format!("{SECRETS}?{}", ends(&from)), mark).await?;
    ensure!(first.is_empty(), "{first:?}");
    // Of what is drained before the proxy's own watch is there, it does not know when it was, and asks nothing.
    shard.until_ready().await?;
    let labels = RingLabels::of(&RING.parse()?);
    let drain = json!({"metadata": {"labels": {&labels.drain: "a-move"}}});
    fixture.admin(&Ask::new(Method::PATCH, LEAVER).body("application/merge-patch+json", drain.to_string())).await?;
    eventually("the proxy asks what its watches showed", DEADLINE, || async {
        let asked = shard.relay.unmarked().iter().any(|(_, target)| target.contains("resourceVersionMatch=Exact"));
        if asked { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await?;

    let (from, names) = list(&shard.proxied, mark).await?;
    ensure!(names.is_empty(), "{names:?}");
    shard.relay.take(mark);
    let target = format!("{SECRETS}?{}", ends(&from));
    let events = watch(&shard.proxied, &target, mark).await?;
    let direct = watch(&shard.direct, &query::narrowed(&target, &shard.selector), mark).await?;
    ensure!(direct.is_empty(), "{direct:?}");
    ensure!(events.len() == 1, "{events:?}");
    let (event, metadata) = (&events[0], &events[0]["object"]["metadata"]);
    ensure!(event["type"] == "DELETED" && event["object"]["kind"] == "Secret", "{event}");
    ensure!((&metadata["name"], &metadata["namespace"]) == (&json!("leaver"), &json!(RING)), "{event}");
    // Asked with the client's headers.
    let asked = shard.relay.take(mark);
    let (watches, questions): (Vec<_>, Vec<_>) = asked.iter().partition(|it| it.target.contains("watch="));
    ensure!(watches.len() == 1 && !questions.is_empty(), "{asked:#?}");
    own_requests::note(questions.iter().map(|it| (it.method.as_str(), it.target.as_str())))?;

    eventually("the proxy lets go of it", DEADLINE, || async {
        let object = fixture.admin(&Ask::get(LEAVER)).await.map_err(|error| error.to_string())?;
        let held = &object["metadata"]["labels"];
        if held.get(&labels.shard).is_none() { Ok(()) } else { Err(held.to_string()) }
    })
    .await?;
    shard.note_own_requests()?;
    Ok(Outcome::Changed(
        "begins with a `DELETED` of the proxy's own, with the metadata of what moved: not every client notices what is gone \
         from its list",
    ))
}

/// The version of a list, and the names in it.
async fn list(endpoint: &Endpoint, mark: &str) -> Result<(String, Vec<String>)> {
    let listed = endpoint.exchange(Http::Two, &Ask::get(SECRETS), mark).await?;
    ensure!(listed.status == StatusCode::OK, "{}", listed.text());
    let list: Value = serde_json::from_slice(&listed.body)?;
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let version = list["metadata"]["resourceVersion"].as_str().context("a resourceVersion")?;
    Ok((version.to_owned(), list["items"].as_array().into_iter().flatten().map(name).collect()))
}

/// Of a watch that goes on from there, and ends by itself.
fn ends(from: &str) -> String {
    format!("watch=1&timeoutSeconds=1&resourceVersion={from}")
}

/// Its events.
async fn watch(endpoint: &Endpoint, target: &str, mark: &str) -> Result<Vec<Value>> {
    let watched = endpoint.exchange(Http::Two, &Ask::get(target), mark).await?;
    ensure!(watched.status == StatusCode::OK, "{}", watched.text());
    let lines = watched.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| Ok(serde_json::from_slice(line)?)).collect()
}
