//! What a client sees, and the API server, when an object is moved away.

use ringside_e2e::compatibility::own_requests;

use super::*;

const RING: &str = "moving";
const SECRETS: &str = "/api/v1/namespaces/moving/secrets";
const LEAVER: &str = "/api/v1/namespaces/moving/secrets/leaver";

pub(crate) fn cases() -> Vec<Case> {
    let missed = case("watch behind a move that the watch before it did not see", "JSON", missed);
    let arrives = case("watch that shows what comes from another shard", "JSON", arrives);
    vec![
        missed.costs("a proxy and a move of its own; the handover's cases show it in every format"),
        arrives.costs("a proxy of its own; the cases of children show it on a watch that is late"),
    ]
}

/// The sharder wrote to it, so it may have children that came before it, by another watch.
async fn arrives(probe: Probe) -> Result<Outcome> {
    const ARRIVING: &str = "arriving";
    let (sites, maps) = (Kind::Website.collection(ARRIVING), Kind::ConfigMap.collection(ARRIVING));
    let children = json!([{"group": "", "resource": "configmaps"}]);
    let resources = json!([{"group": "web.example.com", "resource": "websites", "controlledResources": children}]);
    probe.fixture.namespace(ARRIVING).await?;
    let shard = probe.fixture.alone(ARRIVING, Offer::Both, &resources).await?;
    shard.serves(&[&sites, &maps]).await?;
    let probe = probe.of(&shard);
    let from = probe.fixture.anew(&sites, &json!(site("before", BTreeMap::new()))).await?;
    let watch = async |objects: &str| {
        let ask = Ask::get(format!("{objects}?watch=1&resourceVersion={from}"));
        shard.proxied.open(Http::Two, &ask, &probe.mark).await
    };
    let (mut roots, _children) = (watch(&sites).await?, watch(&maps).await?);
    probe.take();
    let assigned = format!("{sites}?fieldManager=ringside-sharder");
    let comer = json!(site("comer", shard.labels())).to_string();
    probe.fixture.admin(&Ask::new(Method::POST, assigned).body(JSON, comer)).await?;
    let shown = stream::read(&mut roots, Format::Lines, stream::last(|event| event.shows("comer"))).await?;
    ensure!(shown.len() == 1, "{shown:?}");
    // Asked with the client's headers, on the connection of the other watch.
    let asked = probe.take();
    let is_question = |target: &str| target.starts_with("/api/v1/") && !target.contains("watch=");
    ensure!(asked.iter().any(|it| is_question(&it.target)), "{asked:#?}");
    own_requests::note(asked.iter().map(|it| (it.method.as_str(), it.target.as_str())))?;
    shard.note_own_requests()?;
    Ok(Outcome::Changed("is shown once the watches of its children have caught up, or after 3 s"))
}

/// A client lists between two watches, and an object was drained in between. Its list does not have the object any more, and
/// no event of the API server will ever say so.
async fn missed(probe: Probe) -> Result<Outcome> {
    probe.fixture.namespace(RING).await?;
    let shard = probe.fixture.alone(RING, Offer::Both, &json!([{"group": "", "resource": "secrets"}])).await?;
    shard.serves(&["/api/v1/secrets"]).await?;
    let leaver = json!({"metadata": {"name": "leaver", "labels": shard.labels()}, "type": "Opaque"});
    probe.fixture.anew(SECRETS, &leaver).await?;

    let probe = probe.of(&shard);
    let (version, names) = list(&probe).await?;
    ensure!(names == ["leaver"], "{names:?}");
    // Only the API server can tell whether this one showed it: so the proxy asks. It has no bookmark for a minute: one behind
    // the drain would leave no question, and initial events have two of them within the first seconds.
    let other = Ask::get(format!("{SECRETS}?watch=1&resourceVersion={version}&fieldSelector=type%3Dkubernetes.io/tls"));
    let _other = shard.proxied.open(Http::Two, &other, &probe.mark).await?;
    let first = events(probe.proxied(&from(&version)).await?)?;
    ensure!(first.is_empty(), "{first:?}");
    // Of what is drained before the proxy's own watch is there, it does not know when it was, and asks nothing.
    shard.until_ready().await?;
    let labels = RingLabels::of(&RING.parse()?);
    let drain = json!({"metadata": {"labels": {&labels.drain: "a-move"}}});
    probe.fixture.admin(&Ask::new(Method::PATCH, LEAVER).body(MERGE, drain.to_string())).await?;
    eventually("the proxy asks what its watches showed", DEADLINE, || async {
        let asked = shard.relay.unmarked().iter().any(|(_, target)| target.contains("resourceVersionMatch=Exact"));
        if asked { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await?;

    let (version, names) = list(&probe).await?;
    ensure!(names.is_empty(), "{names:?}");
    probe.take();
    let ask = from(&version);
    let (told, direct) = (probe.proxied(&ask).await?, probe.past(&probe.by_hand(&ask)).await?);
    let (told, direct) = (events(told)?, events(direct)?);
    ensure!(direct.is_empty(), "{direct:?}");
    ensure!(told.len() == 1, "{told:?}");
    let event = told[0].json()?;
    ensure!(event["type"] == "DELETED" && event["object"]["metadata"]["name"] == "leaver", "{event}");
    // Asked with the client's headers.
    let asked = probe.take();
    let (watches, questions): (Vec<_>, Vec<_>) = asked.iter().partition(|it| it.target.contains("watch="));
    ensure!(watches.len() == 1 && !questions.is_empty(), "{asked:#?}");
    own_requests::note(questions.iter().map(|it| (it.method.as_str(), it.target.as_str())))?;

    shard.note_own_requests()?;
    Ok(Outcome::Changed(
        "begins with a `DELETED` of the proxy's own, with the metadata of what moved: not every client notices what is gone \
         from its list",
    ))
}

/// The version of a list, and the names in it.
async fn list(probe: &Probe) -> Result<(String, Vec<String>)> {
    let list: Value = serde_json::from_slice(&probe.proxied(&Ask::get(SECRETS)).await?.with(StatusCode::OK)?.body)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names = list["items"].as_array().into_iter().flatten().map(|item| text(&item["metadata"]["name"])).collect();
    Ok((text(&list["metadata"]["resourceVersion"]), names))
}

/// A watch that goes on from there, and ends by itself.
fn from(version: &str) -> Ask {
    Ask::get(format!("{SECRETS}?watch=1&timeoutSeconds=1&resourceVersion={version}"))
}

fn events(watched: Answer) -> Result<Vec<Event>> {
    stream::events(Format::Lines, &watched.with(StatusCode::OK)?.body)
}
