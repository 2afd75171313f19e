//! All cases, a room for each part of the API.

use super::table::{Case, Part};

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
