//! What is asked of Leases and ConfigMaps where locks of elections may be among them: by WebSocket, and of many.

use percent_encoding::percent_decode_str;

use super::election::{LOCKS, Lock};
use super::*;

pub(crate) fn cases() -> Vec<Case> {
    let websocket = "watch by one name, of a Lease in the shard's namespace";
    let spared = by_form("deletecollection with a lock among what is deleted", LOCKS, spared);
    spared.chain([case(websocket, "WebSocket", by_websocket).by_http1()]).collect()
}

async fn by_websocket(probe: Probe) -> Result<Outcome> {
    let one = format!("{LEASES}?fieldSelector=metadata.name%3D{}", probe.mark);
    let ask = websocket(Ask::get(format!("{one}&watch=1&timeoutSeconds=1")));
    let direct = Raw::send(&probe.shard.direct, &ask, &probe.mark).await?.head().await?;
    ensure!(direct.status.contains("101"), "without the proxy {direct:#?}");
    let mut proxied = Raw::send(&probe.shard.proxied, &ask, &probe.mark).await?;
    let head = proxied.head().await?;
    let body = proxied.body(&head).await?;
    ensure!(head.status.contains("200") && body.is_empty(), "{head:#?}");
    probe.nothing_arrived()?;
    Ok(Outcome::Changed(
        "answered with 200 and nothing behind it, as by a server that knows no WebSockets: clients go on by HTTP, where the \
         proxy sees when a lock has become the ring's",
    ))
}

/// The real lock, which the ring holds, is selected by its name, and stays.
async fn spared(probe: Probe, lock: Lock) -> Result<Outcome> {
    let name = format!("{}-in-the-memory", probe.mark);
    let Lock { collection, record, .. } = lock;
    let create = Ask::new(Method::POST, collection).body(JSON, record(&name, election::BEGUN).to_string());
    probe.proxied(&create).await?.done()?;
    let ask = Ask::new(Method::DELETE, format!("{collection}?fieldSelector=metadata.name%3D{name}"));
    probe.take();
    let (answer, arrived) = (probe.proxied(&ask).await?, probe.arrived()?);
    let query = arrived.target.split_once('?').context("a query")?.1;
    let query = percent_decode_str(query).decode_utf8()?;
    let fields = query.split('&').find_map(|pair| pair.strip_prefix("fieldSelector=")).context("a fieldSelector")?;
    let (ours, theirs) = (format!("metadata.name!={name}"), format!(",metadata.name={name}"));
    ensure!(fields.contains(&ours) && fields.ends_with(&theirs), "{fields}");
    changes::note_query(part::FIELDS);
    let list: Value = serde_json::from_slice(&answer.body).with_context(|| answer.text())?;
    ensure!(answer.status.is_success() && list["items"] == Value::Array(Vec::new()), "{}: {list}", answer.status);
    let real = probe.fixture.admin(&Ask::get(format!("{collection}/{name}"))).await?;
    ensure!(real.to_string().contains("ringside-compatibility"), "the ring does not hold it: {real}");
    Ok(Outcome::Changed("without the locks that the proxy answers for: the real ones are the ring's"))
}
