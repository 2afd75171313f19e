//! All cases, a room for each part of the API.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use http::{HeaderMap, Method, StatusCode, Version, header};
use hyper::body::Bytes;
use ringside_e2e::{
    compatibility::Outcome,
    eventually::eventually,
    live::Ability,
    relay::{Offer, Script},
};
use ringside_ring::labels::RingLabels;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::{
    controlled::CONFIG_MAPS,
    refusals::{CONTROLLED, LEASES, refused_alike},
    upgrades::websocket,
    writes::{APPLY, CURRENT, JSON_PATCH, Kind, MERGE, Write, owner},
};
use super::{
    changes::{self, part},
    client::{Answer, Ask, Endpoint, Http},
    compare::{
        AS_SENT, Bodies, Expected, Extent, Moment, OF_A_WRITE, PLAIN, Probe, Rewritten, SELECTED, WATCHED, answers,
        contains, difference, lasting, own_answer, passed_on, steady,
    },
    fixture::{DEADLINE, Fixture, NAMESPACE},
    objects::{map, site},
    raw::Raw,
    shard::Shard,
    status::{self, reason, same_refusal},
    stream::{self, Event, Format, JSON, METADATA, METADATA_PROTOBUF, PROTOBUF, TABLE},
    table::{Case, GOES_ON, Part, by_form, by_pair, case},
};

mod aggregated;
mod beside;
mod controlled;
mod deletions;
mod discovery;
mod election;
mod ends;
mod errors;
mod fenced;
mod heads;
mod large;
mod lists;
mod moves;
mod other_servers;
mod peering;
mod refusals;
mod representations;
mod transport;
mod upgrades;
mod watches;
mod writes;

/// ConfigMaps and Websites are the ring's, Secrets are not.
const MAPS: &str = "/api/v1/namespaces/fixed/configmaps";
const SITES: &str = "/apis/web.example.com/v1/namespaces/fixed/websites";
const SECRETS: &str = "/api/v1/namespaces/fixed/secrets";
/// ConfigMaps that are never drained: a watch that began with any state may be ended for those that are.
const STILL: &str = "/api/v1/namespaces/still/configmaps";

/// A list of the state after the last object.
fn exact(fixture: &Fixture, collection: &str) -> Ask {
    of_version(collection, &format!("resourceVersion={}&resourceVersionMatch=Exact", fixture.end))
}

/// A watch that begins before the first object, and ends by itself.
fn since_begin(fixture: &Fixture, collection: &str) -> Ask {
    of_version(collection, &format!("watch=1&resourceVersion={}&timeoutSeconds=1", fixture.begin))
}

fn of_version(collection: &str, query: &str) -> Ask {
    Ask::get(format!("{collection}{}{query}", if collection.contains('?') { '&' } else { '?' }))
}

fn joined<const ROOMS: usize>(rooms: [Vec<Case>; ROOMS]) -> Vec<Case> {
    rooms.into_iter().flatten().collect()
}

/// The table, in the order of the page.
pub(crate) fn all() -> Vec<Part> {
    let part = |title, cases| Part { title, cases };
    vec![
        part("Versions of HTTP", transport::cases()),
        part("Heads of requests", heads::cases()),
        part("Forms of objects", representations::cases()),
        part("Lists", lists::cases()),
        part("Watches", watches::cases()),
        part("Upgrades, and what HTTP/1.1 has besides", upgrades::cases()),
        part("Writes", joined([writes::cases(), controlled::cases(), deletions::cases()])),
        part("Large objects and lists", large::cases()),
        part("Errors and warnings", errors::cases()),
        part("Without the Lease, and when the ring changes", ends::cases()),
        part("When objects move", moves::cases()),
        part("CBOR, and other API servers", other_servers::cases()),
        part("Discovery, versions, health, identity", discovery::cases()),
        part("Aggregated API servers", aggregated::cases()),
        part("Elections, and kopf's peers", joined([election::cases(), beside::cases(), peering::cases()])),
        part("What the proxy itself refuses", joined([refusals::cases(), fenced::cases()])),
    ]
}
