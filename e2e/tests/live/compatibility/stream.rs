//! Watches that go on: read event by event, as far as a case wants.

use anyhow::{Context as _, Result, ensure};
use ringside_e2e::compatibility::Outcome;

use crate::compatibility::{
    client::{Answer, Ask, Open},
    compare::{Bodies, Extent, Probe, WATCHED, answers, contains, difference, passed_on},
    objects::OWNERS,
};

/// How events follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A line each.
    Lines,
    /// Each behind its length in 4 bytes.
    Lengths,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
pub(crate) const METADATA_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
pub(crate) const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// The forms of a watch.
pub(crate) const FORMS: [(&str, &str, Format); 5] = [
    ("JSON", JSON, Format::Lines),
    ("protobuf", PROTOBUF, Format::Lengths),
    ("metadata as JSON", METADATA, Format::Lines),
    ("metadata as protobuf", METADATA_PROTOBUF, Format::Lengths),
    ("Table", TABLE, Format::Lines),
];

/// An event as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event(Vec<u8>);

impl Event {
    /// The bookmark behind the initial events.
    pub(crate) fn is_end_of_list(&self) -> bool {
        contains(&self.0, b"k8s.io/initial-events-end")
    }

    pub(crate) fn is_bookmark(&self) -> bool {
        contains(&self.0, b"BOOKMARK")
    }

    /// What it says, in JSON.
    pub(crate) fn json(&self) -> Result<serde_json::Value> {
        Ok(serde_json::from_slice(&self.0)?)
    }

    pub(crate) fn shows(&self, name: &str) -> bool {
        contains(&self.0, name.as_bytes())
    }
}

/// The events in bytes that end with one.
pub(crate) fn events(format: Format, mut bytes: &[u8]) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let end = format.first(bytes).context("the last event is not whole")?;
        events.push(Event(bytes[..end].to_vec()));
        bytes = &bytes[end..];
    }
    Ok(events)
}

/// All but bookmarks, as it came.
pub(crate) fn without_bookmarks(events: &[Event]) -> Vec<u8> {
    events.iter().filter(|event| !event.is_bookmark()).flat_map(|event| event.0.clone()).collect()
}

impl Format {
    /// The first event in the bytes, if it is there whole, and its length.
    pub(crate) fn first(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Lines => bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1),
            Self::Lengths => {
                let length: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
                let end = 4 + usize::try_from(u32::from_be_bytes(length)).ok()?;
                (bytes.len() >= end).then_some(end)
            }
        }
    }
}

/// Whether the last event is one that is waited for.
pub(crate) fn last(is: impl Fn(&Event) -> bool) -> impl Fn(&[Event]) -> bool {
    move |events| events.last().is_some_and(&is)
}

/// Reads events until there are enough.
pub(crate) async fn read(open: &mut Open, format: Format, enough: impl Fn(&[Event]) -> bool) -> Result<Vec<Event>> {
    let (mut events, mut left): (Vec<Event>, Vec<u8>) = (Vec::new(), Vec::new());
    while !enough(&events) {
        let Some(piece) = open.piece().await? else { break };
        left.extend_from_slice(&piece);
        while let Some(end) = format.first(&left) {
            let rest = left.split_off(end);
            events.push(Event(std::mem::replace(&mut left, rest)));
        }
    }
    ensure!(enough(&events), "the watch ended early, with {} events", events.len());
    Ok(events)
}

/// Watches through the proxy, and past it with the shard's selector written by hand, until there are enough events. What
/// arrives and the heads of the answers are compared, and the events with those that the API server sent; with those of the
/// other watch the case compares them.
pub(crate) async fn both(
    probe: &Probe,
    ask: &Ask,
    format: Format,
    enough: impl Fn(&[Event]) -> bool,
) -> Result<(Vec<Event>, Vec<Event>)> {
    let by_hand = probe.by_hand(ask);
    let (mut direct, mut proxied) = tokio::try_join!(
        probe.shard.direct.open(probe.http, &by_hand, &probe.mark),
        probe.shard.proxied.open(probe.http, ask, &probe.mark),
    )?;
    answers(&direct.without_body(), &proxied.without_body(), Bodies::Exact)?;
    let both = tokio::try_join!(read(&mut direct, format, &enough), read(&mut proxied, format, &enough))?;
    arrived(probe, ask, &proxied, &both.1)?;
    let foreign = OWNERS.iter().find(|name| **name != probe.shard.owns && both.1.iter().any(|it| it.shows(name)));
    ensure!(foreign.is_none(), "objects named {foreign:?} are shown");
    Ok(both)
}

/// Whether a watch arrived as it was asked for, and what came through the proxy is what the API server sent.
pub(crate) fn arrived(probe: &Probe, ask: &Ask, proxied: &Open, events: &[Event]) -> Result<()> {
    let arrived = probe.arrived_as(ask, WATCHED)?;
    let bytes: Vec<u8> = events.iter().flat_map(|event| event.0.iter().copied()).collect();
    passed_on(&arrived, &Answer { body: bytes.into(), ..proxied.without_body() }, Extent::Begin)
}

/// Whether the same was shown, one after the other, but for what is in events that are another's each time.
pub(crate) fn alike(direct: &[Event], proxied: &[Event], others: impl Fn(&Event) -> bool) -> Result<Outcome> {
    ensure!(direct.len() == proxied.len(), "{} events became {}", direct.len(), proxied.len());
    for (one, other) in direct.iter().zip(proxied) {
        let same = one == other || others(one) && others(other);
        ensure!(same, "{}", difference("an event", &one.0, &other.0));
    }
    Ok(Outcome::Narrowed)
}
