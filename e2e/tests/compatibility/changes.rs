//! The written list: which headers the proxy changes, and why.
//!
//! The comparison lets exactly these differ, and the page is made from them.

/// A header that arrives otherwise than it was sent.
pub(crate) struct Change {
    pub(crate) header: &'static str,
    /// In each request, or where the reason says so.
    pub(crate) always: bool,
    pub(crate) becomes: &'static str,
    pub(crate) reason: &'static str,
}

const CONNECTION: &str = "RFC 9110, section 7.6.1: it is about one connection, and the other one has its own";

/// What becomes of what must not arrive.
const LEFT_OUT: &str = "left out";

const fn of_connection(header: &'static str) -> Change {
    Change { header, always: true, becomes: LEFT_OUT, reason: CONNECTION }
}

/// Headers of a request that must not arrive, whoever sends them on. (A body of unknown length has a
/// `Transfer-Encoding` on the other connection too, but that is its own.)
pub(crate) fn left_out() -> impl Iterator<Item = &'static str> {
    let changes = REQUEST.iter().filter(|change| change.becomes == LEFT_OUT && change.header != "transfer-encoding");
    changes.map(|change| change.header)
}

/// What becomes of a request's headers.
pub(crate) const REQUEST: [Change; 12] = [
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
        header: "connection",
        always: true,
        becomes: "left out; `Upgrade` where an upgrade is asked for",
        reason: CONNECTION,
    },
    of_connection("keep-alive"),
    of_connection("proxy-authorization"),
    of_connection("te"),
    of_connection("trailer"),
    of_connection("transfer-encoding"),
    Change { header: "upgrade", always: false, becomes: "passed on, over HTTP/1.1", reason: "HTTP/2 has no upgrades" },
];

/// What becomes of an answer's headers.
pub(crate) const RESPONSE: [Change; 4] = [
    of_connection("connection"),
    of_connection("keep-alive"),
    of_connection("trailer"),
    of_connection("transfer-encoding"),
];

/// The list as Markdown.
pub(crate) fn page() -> String {
    let mut page = "### Headers that the proxy changes\n\n".to_owned();
    for (title, changes) in [("request", &REQUEST[..]), ("answer", &RESPONSE[..])] {
        page.push_str(&format!("| {title} | becomes | because |\n| --- | --- | --- |\n"));
        for Change { header, becomes, reason, .. } in changes {
            page.push_str(&format!("| `{header}` | {becomes} | {reason} |\n"));
        }
        page.push('\n');
    }
    page
}
