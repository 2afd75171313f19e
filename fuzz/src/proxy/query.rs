//! A query that is rewritten says what was read, and what was set, once. The input: a query, and in the next line a
//! value.

use ringside_proxy::request::Query;

const KEYS: [&str; 3] = ["watch", "resourceVersion", "sendInitialEvents"];

/// Panics when a promise is broken.
pub fn run(input: &[u8]) {
    let input = super::text(input);
    let (raw, value) = input.split_once('\n').unwrap_or((input, ""));
    let Ok(mut query) = Query::parse(raw) else { return };
    let read = query.clone();
    query.keep_first(&KEYS);
    let Ok(written) = Query::parse(&query.with("labelSelector", value)) else {
        // One more than it had.
        assert_eq!(raw.split('&').count(), 1_000);
        return;
    };
    assert_eq!(written.first("labelSelector"), Some(value));
    for key in KEYS.into_iter().chain(["continue", "fieldSelector"]) {
        assert_eq!(written.first(key), read.first(key), "{key}");
    }
    let mut once = written.clone();
    once.keep_first(&KEYS);
    once.keep_first(&["labelSelector"]);
    assert_eq!(once, written, "something is there twice");
}
