//! What happened to an object: what the API server wrote down about it and its children, and what was recorded beside.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    path::Path,
    time::Duration,
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use ringside_ring::RingLabels;

use crate::{
    audit,
    checker::{Event, Object, Record, Uid},
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
    pub(super) object: Option<Object>,
}

/// The requests about some objects, each with those about its children, in the order of their arrival. Children have the
/// names of their owners.
pub(super) fn requests(
    log: &Path,
    labels: &RingLabels,
    names: &BTreeSet<String>,
) -> anyhow::Result<BTreeMap<String, Vec<Request>>> {
    let mut found: BTreeMap<String, Vec<Request>> = BTreeMap::new();
    let sought: Vec<_> = names.iter().filter_map(|name| name.rsplit('/').next()).collect();
    audit::lines(log, 0, |line| {
        let text = std::str::from_utf8(line).map_err(|error| error.to_string())?;
        if sought.iter().any(|name| text.contains(name)) {
            let event = audit::Event::parse(line)?;
            let known = |name: &str| names.get(&format!("{}/{name}", event.object_ref.namespace)).cloned();
            // A create names no object but in its answer.
            let created = || known(event.response_object.as_ref()?.metadata.name.as_deref()?);
            let name = known(&event.object_ref.name).or_else(created);
            if let Some((name, request)) = name.zip(request(event, labels)) {
                found.entry(name).or_default().push(request);
            }
        }
        Ok(())
    })?;
    found.values_mut().for_each(|requests| requests.sort_by_key(|request| request.received));
    Ok(found)
}

/// How a proxy's fence asks for the labels of an object that is about to be written to, or read where the answer does not show
/// them. Whether a drain goes on its handover asks otherwise, when nothing is written any more.
const ASKED: &str = "?fieldSelector=metadata%2Ename%3D";

fn request(event: audit::Event, labels: &RingLabels) -> Option<Request> {
    let is_read = matches!(&*event.verb, "list" | "watch") && !event.request_uri.contains(ASKED);
    if event.stage != "ResponseComplete" || is_read || event.request_uri.contains("dryRun=All") {
        return None;
    }
    Some(Request {
        received: event.request_received_timestamp.0,
        answered: event.stage_timestamp.0,
        who: event.user.pod().unwrap_or(&event.user.username).clone(),
        what: (event.verb, event.object_ref.resource()),
        code: event.response_status.code,
        object: event.response_object.and_then(|answer| answer.object(labels).ok()),
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
    let object = object.as_ref().map(|object| {
        let or_none = |label: Option<&String>| label.map_or("-", String::as_str).to_owned();
        let (version, labels) = (object.version.as_ref().map(ToString::to_string), object.labels.as_ref());
        let (shard, drain) = labels.map(|labels| (labels.shard.as_ref(), labels.drain.as_ref())).unwrap_or_default();
        format!(", version {}, shard {}, drain {}", or_none(version.as_ref()), or_none(shard), or_none(drain))
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
        Event::ShardAvailable { shard } => Some(format!("{shard} has its Lease")),
        Event::ShardUnavailable { shard, cause } => Some(format!("{shard} has lost its Lease: {cause:?}")),
    }
}

#[cfg(test)]
mod tests;
