//! What `docs/dev/compatibility.md` says of servers that die without a word.

use ringside_e2e::compatibility::{Outcome, Row, Section, Task, table};

const SECTION: Section = Section { name: "silence", test: "live -- --include-ignored endurance::" };

const BALANCED: &str = "watch on a server that died behind a connection which a load balancer keeps";
const ENDED: Outcome = Outcome::Changed("ends in order within 30 s; without the proxy, when its client gives up");

/// Which case sees what.
const ROWS: [(&str, &str, &str, Outcome); 8] = [
    (
        "packets_that_vanish_are_noticed",
        "watch on a connection whose packets vanish",
        "HTTP/1.1, HTTP/2, WebSocket",
        ENDED,
    ),
    (
        "packets_that_vanish_are_noticed",
        "session in a pod on a connection whose packets vanish",
        "SPDY, WebSocket",
        Outcome::Changed("ends within 30 s; without the proxy, when its client gives up"),
    ),
    ("a_server_that_is_gone_behind_a_live_connection_is_noticed", BALANCED, "HTTP/1.1, HTTP/2; WebSocket", ENDED),
    (
        "a_server_without_http2_that_hangs_is_noticed",
        BALANCED,
        "HTTP/1.1 to one of several servers without HTTP/2",
        Outcome::Gap(
            "silent until its client gives up, as without the proxy: what the proxy asks on a new connection, another server \
             answers",
        ),
    ),
    (
        "a_server_without_http2_that_hangs_is_noticed",
        "session in a pod on a server that died behind such a connection",
        "SPDY, WebSocket",
        Outcome::Gap(
            "silent until its client gives up, as without the proxy: a ping could wait behind input that the pod does not \
             take, and prove nothing",
        ),
    ),
    (
        "a_server_without_http2_that_hangs_is_noticed",
        "watch on a server that hangs",
        "HTTP/1.1 to the API server",
        ENDED,
    ),
    (
        "clients_recover_from_an_api_server_that_hangs_and_restarts",
        "watch on a server that hangs",
        "HTTP/2 to the API server",
        ENDED,
    ),
    (
        "clients_recover_from_an_api_server_that_hangs_and_restarts",
        "watch on a server that is killed",
        "HTTP/2 to the API server",
        Outcome::Changed("ends in order, and not with a broken connection"),
    ),
];

/// Compares the page with what the cases have seen that passed, or writes it.
pub(crate) fn settle() -> Result<(), String> {
    let rows = ROWS.map(|(_, behaviour, representation, outcome)| Row {
        behaviour: behaviour.to_owned(),
        representation: representation.to_owned(),
        outcome,
    });
    SECTION.settle(&table(&rows), Task::of_process()).map_err(|error| error.to_string())
}
