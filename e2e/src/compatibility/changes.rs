//! The written list: which headers the proxy changes, and why.
//!
//! The comparison lets exactly these differ, and the page is made from them. What stands here must be seen at work too:
//! in at least one case each.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use anyhow::{Result, ensure};
use http::{HeaderMap, HeaderName, header};

/// A header that arrives otherwise than it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Its name; with a `*` at its end, how it begins.
    pub header: &'static str,
    /// In each request, or where the reason says so.
    pub always: bool,
    /// What arrives instead.
    pub becomes: &'static str,
    /// Why.
    pub reason: &'static str,
}

impl Change {
    /// Whether it is of the header with this name.
    pub fn is_of(&self, name: &str) -> bool {
        match self.header.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => self.header == name,
        }
    }
}

const CONNECTION: &str = "RFC 9110, section 7.6.1: it is about one connection, and the other one has its own";
const FRONT_PROXY: &str =
    "what a front proxy of the API server says of its clients; nobody believes it without that proxy's certificate";

/// What becomes of what must not arrive.
const LEFT_OUT: &str = "left out";
/// Not a header's name: what stands in this header.
const NAMED: &str = "what `connection` names";

const fn of_connection(header: &'static str) -> Change {
    Change { header, always: true, becomes: LEFT_OUT, reason: CONNECTION }
}

const fn of_front_proxy(header: &'static str) -> Change {
    Change { header, always: true, becomes: LEFT_OUT, reason: FRONT_PROXY }
}

/// The names that a `Connection` header names, in small letters.
pub fn named(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}

/// Headers of a request that must not arrive, whoever sends them on. (A body of unknown length has a
/// `Transfer-Encoding` on the other connection too, but that is its own.)
pub fn is_left_out(name: &str) -> bool {
    let change = REQUEST.iter().find(|change| change.is_of(name));
    change.is_some_and(|change| change.becomes == LEFT_OUT && change.header != "transfer-encoding")
}

static SEEN: Mutex<BTreeSet<(&str, &str)>> = Mutex::new(BTreeSet::new());

fn saw(side: &'static str, changes: &[Change], name: &str) {
    if let Some(change) = changes.iter().find(|change| change.is_of(name)) {
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert((side, change.header));
    }
}

/// Notes what was changed between the two.
pub fn note(side: &'static str, changes: &[Change], sent: &HeaderMap, arrived: &HeaderMap) {
    for name in sent.keys().filter(|name| sent.get(*name) != arrived.get(*name)) {
        saw(side, changes, name.as_str());
    }
    if named(sent).iter().any(|name| sent.contains_key(name) && !arrived.contains_key(name)) {
        saw(side, changes, NAMED);
    }
}

/// Whether each entry of the list was seen at work.
pub fn all_seen() -> Result<()> {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    for (side, changes) in SIDES {
        let unseen: Vec<_> = changes.iter().map(|it| it.header).filter(|it| !seen.contains(&(side, *it))).collect();
        ensure!(unseen.is_empty(), "of each {side} these are on the list and change in no case: {unseen:?}");
    }
    Ok(())
}

const SIDES: [(&str, &[Change]); 2] = [(SENT, &REQUEST), (ANSWERED, &RESPONSE)];
/// Of a request, on its way there.
pub const SENT: &str = "request";
/// Of an answer, on its way back.
pub const ANSWERED: &str = "answer";

/// What becomes of a request's headers.
pub const REQUEST: [Change; 18] = [
    Change {
        header: "authorization",
        always: true,
        becomes: "the pod's own token",
        reason: "the local token opens the proxy; for the API server the controller is who it was before: its pod",
    },
    Change {
        header: "host",
        always: true,
        becomes: "the API server's address",
        reason: "RFC 9110, section 7.2: it names the server that is asked",
    },
    Change {
        header: "accept",
        always: false,
        becomes: "without CBOR, for resources of the ring",
        reason: "the proxy follows watches in JSON and protobuf; CBOR among others is negotiated away",
    },
    Change {
        header: "accept-encoding",
        always: false,
        becomes: "`identity`, for watches of the ring's resources",
        reason: "the proxy reads events as they pass; API servers since 1.37 compress watches with initial events",
    },
    Change {
        header: "sec-websocket-extensions",
        always: false,
        becomes: "left out, for watches of the ring's resources",
        reason: "the same: an extension may compress the messages",
    },
    Change {
        header: "sec-websocket-protocol",
        always: false,
        becomes: "without `base64url.bearer.authorization.k8s.io.*`",
        reason: "the local token, as browsers send it, is taken off as the API server does it",
    },
    of_front_proxy("x-remote-user"),
    of_front_proxy("x-remote-uid"),
    of_front_proxy("x-remote-group"),
    of_front_proxy("x-remote-extra-*"),
    Change {
        header: "connection",
        always: true,
        becomes: "left out; `Upgrade` where an upgrade is asked for",
        reason: CONNECTION,
    },
    of_connection(NAMED),
    of_connection("keep-alive"),
    of_connection("proxy-authenticate"),
    of_connection("proxy-authorization"),
    of_connection("te"),
    of_connection("trailer"),
    of_connection("transfer-encoding"),
];

/// What becomes of an answer's headers.
pub const RESPONSE: [Change; 8] = [
    of_connection("connection"),
    of_connection(NAMED),
    of_connection("keep-alive"),
    of_connection("proxy-authenticate"),
    of_connection("te"),
    of_connection("upgrade"),
    of_connection("trailer"),
    of_connection("transfer-encoding"),
];

/// What becomes of the query of a list, a watch or a deletion of many, of a resource of the ring. `query.rs` says the same
/// to the comparison.
const QUERY: [(&str, &str, &str); 3] = [
    (
        "`labelSelector`",
        "the shard's and then the client's first one, written anew, behind all other parameters",
        "the API server selects what is the shard's and what the client asked for",
    ),
    (
        "`watch`, `resourceVersion`, `sendInitialEvents` given again",
        LEFT_OUT,
        "the API server takes the first; another server on the way could take the last",
    ),
    (
        "parameters with a `;` or a bad escape, and empty ones",
        LEFT_OUT,
        "Go's `url.ParseQuery` leaves them out; another server on the way could read them",
    ),
];

/// The lists as Markdown.
pub fn page() -> String {
    let mut page =
        "### Queries that the proxy changes\n\n| query | becomes | because |\n| --- | --- | --- |\n".to_owned();
    for (part, becomes, reason) in QUERY {
        page.push_str(&format!("| {part} | {becomes} | {reason} |\n"));
    }
    page.push_str(
        "\nAll others arrive as they were written, in their order.\n\n### Headers that the proxy changes\n\n",
    );
    for (title, changes) in SIDES {
        page.push_str(&format!("| {title} | becomes | because |\n| --- | --- | --- |\n"));
        for Change { header, becomes, reason, .. } in changes {
            let header = if *header == NAMED { NAMED.to_owned() } else { format!("`{header}`") };
            page.push_str(&format!("| {header} | {becomes} | {reason} |\n"));
        }
        page.push('\n');
    }
    page
}
