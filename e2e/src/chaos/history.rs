//! What happened to an object: what the API server wrote down about it and its children, and what was recorded beside.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    fs::File,
    io::{self, BufRead as _, BufReader},
    path::Path,
    time::Duration,
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use ringside_ring::RingLabels;
use serde_json::Value;

use crate::{
    audit::POD_NAME,
    checker::{Event, Record, Uid},
};

/// A request that the API server wrote down, whatever came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// When it arrived.
    pub(super) received: Timestamp,
    /// When it was answered.
    pub(super) answered: Timestamp,
    /// The Pod that asked, or another user.
    pub(super) who: String,
    /// The verb, and the resource with its subresource.
    pub(super) what: (String, String),
    /// The status of the answer.
    pub(super) code: u16,
    /// The object that came of it; none where the answer is no object.
    pub(super) object: Option<State>,
}

/// An object after a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) uid: Uid,
    pub(super) version: String,
    /// The value of its shard label.
    pub(super) shard: Option<String>,
    /// The value of its drain label.
    pub(super) drain: Option<String>,
}

/// The requests about some objects, each with those about its children, in the order of their arrival. Children have the
/// names of their owners.
pub(super) fn requests(
    log: &Path,
    labels: &RingLabels,
    names: &BTreeSet<String>,
) -> io::Result<BTreeMap<String, Vec<Request>>> {
    let mut found: BTreeMap<String, Vec<Request>> = BTreeMap::new();
    let sought: Vec<_> = names.iter().filter_map(|name| name.rsplit('/').next()).collect();
    for line in BufReader::new(File::open(log)?).lines() {
        let line = line?;
        if !sought.iter().any(|name| line.contains(name)) {
            continue;
        }
        // The last one may still be being written.
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        let text = |at: &str| event.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let name = format!("{}/{}", text("/objectRef/namespace"), text("/objectRef/name"));
        // A create names no object but in its answer.
        let created = format!("{}/{}", text("/objectRef/namespace"), text("/responseObject/metadata/name"));
        if let (Some(name), Some(request)) = (names.get(&name).or_else(|| names.get(&created)), request(&event, labels))
        {
            found.entry(name.clone()).or_default().push(request);
        }
    }
    found.values_mut().for_each(|requests| requests.sort_by_key(|request| request.received));
    Ok(found)
}

/// How a proxy's fence asks for the labels of an object that is about to be written to, or read where the answer does not show
/// them. Whether a drain goes on its handover asks otherwise, when nothing is written any more.
const ASKED: &str = "?fieldSelector=metadata%2Ename%3D";

fn request(event: &Value, labels: &RingLabels) -> Option<Request> {
    let text = |at: &str| event.pointer(at).and_then(Value::as_str);
    let uri = text("/requestURI").unwrap_or_default();
    let is_read = matches!(text("/verb")?, "list" | "watch") && !uri.contains(ASKED);
    if text("/stage")? != "ResponseComplete" || is_read || uri.contains("dryRun=All") {
        return None;
    }
    let pod = event.pointer("/user/extra").and_then(|extra| extra.get(POD_NAME)?.get(0)?.as_str());
    let subresource = text("/objectRef/subresource").map(|sub| format!("/{sub}")).unwrap_or_default();
    let object = event.pointer("/responseObject/metadata").filter(|_| text("/responseObject/kind") != Some("Status"));
    Some(Request {
        received: text("/requestReceivedTimestamp")?.parse().ok()?,
        answered: text("/stageTimestamp")?.parse().ok()?,
        who: pod.or(text("/user/username"))?.to_owned(),
        what: (text("/verb")?.to_owned(), format!("{}{subresource}", text("/objectRef/resource")?)),
        code: event.pointer("/responseStatus/code").and_then(Value::as_u64).and_then(|code| code.try_into().ok())?,
        object: object.and_then(|metadata| state(metadata, labels)),
    })
}

fn state(metadata: &Value, labels: &RingLabels) -> Option<State> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let label = |key: &str| text(metadata.get("labels").and_then(|all| all.get(key)));
    Some(State {
        uid: text(metadata.get("uid"))?,
        version: text(metadata.get("resourceVersion"))?,
        shard: label(&labels.shard),
        drain: label(&labels.drain),
    })
}

/// The names of all objects that were recorded, by uid.
pub(super) fn names(journal: &[Record]) -> HashMap<Uid, String> {
    let named = journal.iter().filter_map(|record| match &record.event {
        Event::Written { uid, name, .. } | Event::Seen { uid, name, .. } => Some((uid.clone(), name.clone())),
        _ => None,
    });
    named.collect()
}

/// All that is known of an object, a line each, in order; `begun` is when the records begin.
pub(super) fn tell(name: &str, requests: &[Request], journal: &[Record], begun: Timestamp) -> String {
    let uids: BTreeSet<Uid> = names(journal).into_iter().filter(|(_, of)| of == name).map(|(uid, _)| uid).collect();
    let since = |at: Timestamp| at.duration_since(begun);
    let mut lines: Vec<(SignedDuration, String)> = requests.iter().map(|request| line(request, since)).collect();
    lines.extend(journal.iter().filter_map(|record| {
        let text = recorded(&record.event, &uids)?;
        Some((SignedDuration::try_from(record.at).ok()?, text))
    }));
    lines.sort();
    let mut text = format!("history of {name}, seconds since the beginning of the records:\n");
    for (at, line) in lines {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{:>10.3}  {line}", at.as_secs_f64());
    }
    text
}

fn line(request: &Request, since: impl Fn(Timestamp) -> SignedDuration) -> (SignedDuration, String) {
    let Request { received, answered, who, what: (verb, resource), code, object } = request;
    let took = Duration::try_from(answered.duration_since(*received)).unwrap_or_default();
    let object = object.as_ref().map(|State { version, shard, drain, .. }| {
        let or_none = |label: &Option<String>| label.clone().unwrap_or_else(|| "-".to_owned());
        format!(", version {version}, shard {}, drain {}", or_none(shard), or_none(drain))
    });
    (since(*received), format!("{who}: {verb} {resource}: {code} after {took:?}{}", object.unwrap_or_default()))
}

fn recorded(event: &Event, uids: &BTreeSet<Uid>) -> Option<String> {
    match event {
        Event::Started { uid, .. } | Event::Ended { uid, .. } | Event::Gone { uid } if !uids.contains(uid) => None,
        // The requests say the same.
        Event::Seen { .. } | Event::Written { .. } => None,
        Event::Started { generation, instance, .. } => Some(format!("{instance} starts on generation {generation}")),
        Event::Ended { generation, instance, outcome, .. } => {
            Some(format!("{instance} ends on generation {generation}: {outcome:?}"))
        }
        Event::Killed { instance } => Some(format!("{instance} is no more")),
        Event::Gone { .. } => Some("it is gone".to_owned()),
        Event::Relisted => Some("the observer lists anew".to_owned()),
        Event::ShardAvailable { shard } => Some(format!("{shard} has its Lease")),
        Event::ShardUnavailable { shard, cause } => Some(format!("{shard} has lost its Lease: {cause:?}")),
    }
}

#[cfg(test)]
mod tests;
