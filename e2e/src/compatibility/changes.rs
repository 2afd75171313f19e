//! The written list: which parts of a query and which headers the proxy changes, and why.
//!
//! The comparison lets exactly these differ, and the page is made from them. What stands here must be seen at work too:
//! in at least one case each.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use anyhow::{Result, ensure};
use http::{HeaderMap, HeaderName, header};

use super::own_requests;

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

const fn change(header: &'static str, always: bool, becomes: &'static str, reason: &'static str) -> Change {
    Change { header, always, becomes, reason }
}

const fn of_connection(header: &'static str) -> Change {
    change(header, true, LEFT_OUT, CONNECTION)
}

const fn of_front_proxy(header: &'static str) -> Change {
    change(header, true, LEFT_OUT, FRONT_PROXY)
}

/// The names that a `Connection` header names, in small letters.
pub fn named(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}

/// Headers of a request that must not arrive, whichever side sends them on. (A body of unknown length has a
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

/// Notes what was changed of a query.
pub fn note_query(part: &str) {
    if let Some(change) = QUERY.iter().find(|change| change.part == part) {
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert((ASKED, change.part));
    }
}

/// Notes that an entry of a list was seen at work.
pub(super) fn saw_entry(list: &'static str, entry: &'static str) {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert((list, entry));
}

/// Whether each entry of the list was seen at work.
pub fn all_seen() -> Result<()> {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let headers = SIDES.iter().flat_map(|(side, changes)| changes.iter().map(|change| (*side, change.header)));
    let own = own_requests::names().into_iter().map(|name| (OWN_REQUEST, name));
    let listed = QUERY.iter().map(|change| (ASKED, change.part)).chain(headers).chain(own);
    let unseen: Vec<_> = listed.filter(|entry| !seen.contains(entry)).collect();
    ensure!(unseen.is_empty(), "these are on the list and change in no case: {unseen:?}");
    Ok(())
}

const SIDES: [(&str, &[Change]); 3] = [(SENT, &REQUEST), (ANSWERED, &RESPONSE), (OWN, &REFUSAL)];
/// What no client asked the proxy for.
pub(super) const OWN_REQUEST: &str = "request of the proxy's own";
/// Of a query, on its way there.
const ASKED: &str = "query";
/// Of a request, on its way there.
pub const SENT: &str = "request";
/// Of an answer, on its way back.
pub const ANSWERED: &str = "answer";
/// Of an answer that the proxy gives instead of the API server.
pub const OWN: &str = "answer of the proxy's own";

/// What becomes of a request's headers.
#[rustfmt::skip]
pub const REQUEST: [Change; 19] = [
    change("authorization", true, "the pod's own token",
        "the local token opens the proxy; for the API server the controller is who it was before: its pod"),
    change("host", true, "the API server's address", "RFC 9110, section 7.2: it names the server that is asked"),
    change("accept", false, "without CBOR; `application/x-nothing`, where nothing else is accepted; one form alone, \
        where the lock of an election is tried, and of kopf's peering objects, where JSON is accepted",
        "the proxy reads JSON and protobuf; what else is accepted decides, and of nothing the API server says 406"),
    change("accept-encoding", false, "`identity`, for watches of the ring's resources, where the lock of an election \
        is tried or may be watched by its one name, and for kopf's peering objects",
        "the proxy reads events as they pass; API servers since 1.37 compress watches with initial events"),
    change("sec-websocket-extensions", false, "left out, for watches of the ring's resources",
        "the same: an extension may compress the messages"),
    change("sec-websocket-protocol", false, "without `base64url.bearer.authorization.k8s.io.*`",
        "the local token, as browsers send it, is taken off as the API server does it"),
    of_front_proxy("x-remote-user"),
    of_front_proxy("x-remote-uid"),
    of_front_proxy("x-remote-group"),
    of_front_proxy("x-remote-extra-*"),
    change("connection", true, "left out; `Upgrade` where an upgrade is asked for and passes", CONNECTION),
    change("upgrade", false, "left out, but for WebSocket and SPDY/3.1 to `exec`, `attach`, `portforward` and `proxy`, and \
        WebSocket to watches",
        "a server on the way may make a tunnel of any other, past the selector and the fence"),
    of_connection(NAMED),
    of_connection("keep-alive"),
    of_connection("proxy-authenticate"),
    of_connection("proxy-authorization"),
    of_connection("proxy-connection"),
    change("te", true, "`trailers`, where it says so; else left out",
        "RFC 9110, section 10.1.4: it is about one connection, but trailers pass the proxy"),
    of_connection("transfer-encoding"),
];

/// What becomes of an answer's headers.
pub const RESPONSE: [Change; 7] = [
    of_connection("connection"),
    of_connection(NAMED),
    of_connection("keep-alive"),
    of_connection("proxy-authenticate"),
    of_connection("te"),
    of_connection("upgrade"),
    of_connection("transfer-encoding"),
];

/// What answers of the proxy's own don't have, or have of their own.
#[rustfmt::skip]
pub const REFUSAL: [Change; 3] = [
    change("audit-id", true, LEFT_OUT, "the API server's audit log does not know a request that it did not get"),
    change("x-kubernetes-pf-*", true, LEFT_OUT, "the API server's flow control did not see it either"),
    change("content-length", true, "its own", "the message is the proxy's own"),
];

/// A part of a query that arrives otherwise than it was sent, or not.
struct QueryChange {
    /// Which part, as the page says it.
    part: &'static str,
    becomes: &'static str,
    reason: &'static str,
}

/// The parts of queries that change, by the names under which they are noted.
pub mod part {
    /// What the client selects.
    pub const SELECTOR: &str = "`labelSelector`";
    /// What the proxy wants to know of each watch.
    pub const BOOKMARKS: &str = "`allowWatchBookmarks`, of a watch";
    /// How old an answer may be.
    pub const AGE: &str = "`resourceVersion` 0 or before the last move; none, of a watch";
    /// A second value of a parameter of which the first counts.
    pub const WATCH_AGAIN: &str = "`watch` given again";
    /// The same.
    pub const VERSION_AGAIN: &str = "`resourceVersion` given again";
    /// The same.
    pub const INITIAL_AGAIN: &str = "`sendInitialEvents` given again";
    /// The same.
    pub const BOOKMARKS_AGAIN: &str = "`allowWatchBookmarks` given again";
    /// What Go does not read.
    pub const SEMICOLON: &str = "a parameter with a `;`";
    /// The same.
    pub const BAD_ESCAPE: &str = "a parameter with a bad escape";
    /// What says nothing.
    pub const EMPTY: &str = "an empty parameter";
    /// What is only tried.
    pub const DRY_RUN: &str = "`dryRun`, of what may begin an election";
    /// What is not the client's to delete.
    pub const FIELDS: &str = "`fieldSelector`, of a deletion of many with an election's lock among them";
}

const FIRST_COUNTS: &str = "the API server takes the first; another server on the way could take the last";
const NOT_READ: &str = "Go's `url.ParseQuery` leaves it out; another server on the way could read it";

const fn query(part: &'static str, becomes: &'static str, reason: &'static str) -> QueryChange {
    QueryChange { part, becomes, reason }
}

const fn left_out_of_query(part: &'static str, reason: &'static str) -> QueryChange {
    query(part, LEFT_OUT, reason)
}

/// What becomes of the query of a list, a watch or a deletion of many, of a resource of the ring, and of what is asked
/// where locks of elections may be. `query.rs` says what arrives, and notes what was seen.
#[rustfmt::skip]
const QUERY: [QueryChange; 12] = [
    query(part::SELECTOR, "the shard's and then the client's first one, written anew, behind all other parameters",
        "the API server selects what is the shard's and what the client asked for"),
    query(part::BOOKMARKS, "`true`, where it does not ask for bookmarks; they are taken out of what it is sent",
        "bookmarks say how far a watch has come on which nothing happens, so that it holds no move"),
    query(part::AGE, "none, so that the answer is of the present; a watch by `sendInitialEvents=true` and \
        `resourceVersionMatch=NotOlderThan`; without `limit`, where it was 0",
        "an API server that lags would show objects that were moved away"),
    left_out_of_query(part::WATCH_AGAIN, FIRST_COUNTS),
    left_out_of_query(part::VERSION_AGAIN, FIRST_COUNTS),
    left_out_of_query(part::INITIAL_AGAIN, FIRST_COUNTS),
    left_out_of_query(part::BOOKMARKS_AGAIN, FIRST_COUNTS),
    left_out_of_query(part::SEMICOLON, NOT_READ),
    left_out_of_query(part::BAD_ESCAPE, NOT_READ),
    left_out_of_query(part::EMPTY, NOT_READ),
    query(part::DRY_RUN, "`All`", "the API server judges the write of an election's lock, and does not store it"),
    query(part::FIELDS, "not the lock, and then the client's, written anew behind all other parameters",
        "the real lock is the ring's"),
];

/// The lists as Markdown.
pub fn page() -> String {
    let mut page =
        "### Queries that the proxy changes\n\n| query | becomes | because |\n| --- | --- | --- |\n".to_owned();
    for QueryChange { part, becomes, reason } in QUERY {
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
    page + &own_requests::page()
}
