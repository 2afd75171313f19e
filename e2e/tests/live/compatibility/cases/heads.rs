//! What may stand in a request's head beside its meaning: names, encodings, methods, lengths.

use super::*;
use changes::part::{BAD_ESCAPE, EMPTY, SEMICOLON, VERSION_AGAIN, WATCH_AGAIN};

/// As many as a client may well send that impersonates with extras; Go has no limit but the head's length of 1 MiB.
const MANY: usize = 490;
/// As many as are refused by HTTP/1.1.
const TOO_MANY: usize = 501;
/// Selectors can be long: 1,500 names have been seen to be accepted.
const LONG: usize = 40_000;

type Asks = fn() -> Ask;
type LeftOut = &'static [(&'static str, &'static str)];

/// Requests that the proxy does not narrow.
const PLAIN: [(&str, StatusCode, Asks); 10] = [
    ("HEAD", StatusCode::OK, || Ask::new(Method::HEAD, "/livez")),
    ("a method that nobody knows", StatusCode::METHOD_NOT_ALLOWED, || {
        Ask::new(Method::from_bytes(b"BREW").unwrap_or_default(), OBJECT)
    }),
    ("unknown query parameters", StatusCode::OK, || object("?&b=2&a=1&a=0&un%6bnown=%7e+x&bare&?/:@!$'()*,")),
    ("unknown headers, several lines of one", StatusCode::OK, || {
        object("").header("x-b", "1").header("x-a", "é").header("x-b", "0")
    }),
    ("490 headers", StatusCode::OK, || many(MANY)),
    ("query of 40 kB", StatusCode::OK, || object(&format!("?x={}", "x".repeat(LONG)))),
    ("header of 40 kB", StatusCode::OK, || object("").header("x-long", &"x".repeat(LONG))),
    ("percent-encoded path, trailing slash", StatusCode::OK, || {
        Ask::get("/api/v1/namespaces/fi%78ed/%63onfigmaps/free-1/")
    }),
    ("get of one object with `watch`, which is no watch", StatusCode::OK, || object("?watch=1")),
    ("who is asking, as a front proxy says it", StatusCode::OK, || {
        object("")
            .header("x-remote-user", "admin")
            .header("x-remote-uid", "1")
            .header("x-remote-group", "system:masters")
            .header("x-remote-extra-scopes", "all")
    }),
];

/// Lists of the ring: what stands in the query behind the state that is asked for, and what of that is left out.
const LISTS: [(&str, &str, LeftOut); 9] = [
    ("unknown query parameters of a list", "b=2&a=1&a=0&un%6bnown=%7e+x&empty=&bare&pretty=true", &[]),
    ("labelSelector of the client's own", "labelSelector=tier+in+(back,%20side),!absent", &[]),
    (
        "labelSelector given twice, of which the first counts",
        "labelSelector=tier%3Dback&labelSelector=tier%3Dfront",
        &[],
    ),
    (
        "resourceVersion given twice, of which the first counts",
        "x=1&resourceVersion=1&x=2",
        &[("resourceVersion=1", VERSION_AGAIN)],
    ),
    ("`watch` given twice, of which the first counts", "watch=0&watch=1", &[("watch=1", WATCH_AGAIN)]),
    ("empty parameters of a list", "&x=1&", &[("", EMPTY), ("", EMPTY)]),
    (
        "parameters with `;`, which do not count",
        "limit=1;labelSelector=a&x=;",
        &[("limit=1;labelSelector=a", SEMICOLON), ("x=;", SEMICOLON)],
    ),
    (
        "parameters with bad escapes, which do not count",
        "fieldSelector=%zz&x=%f&y=%",
        &[("fieldSelector=%zz", BAD_ESCAPE), ("x=%f", BAD_ESCAPE), ("y=%", BAD_ESCAPE)],
    ),
    ("fieldSelector", "fieldSelector=metadata.name!%3dvisitor", &[]),
];

const OBJECT: &str = "/api/v1/namespaces/fixed/configmaps/free-1";

fn object(rest: &str) -> Ask {
    Ask::get(format!("{OBJECT}{rest}"))
}

fn many(headers: usize) -> Ask {
    (0..headers).fold(object(""), |ask, index| ask.header(&format!("x-many-{index}"), "value"))
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (behaviour, status, ask) in PLAIN {
        cases.extend(by_pair(behaviour, move |probe| async move { probe.same_as(&ask(), status).await }));
    }
    for (behaviour, query, left_out) in LISTS {
        cases.extend(by_pair(behaviour, move |probe| async move {
            let Ask { target, .. } = exact(&probe.fixture, MAPS);
            probe.narrowed(&Ask::get(format!("{target}&{query}")), Rewritten { left_out, ..SELECTED }).await
        }));
    }
    cases.push(case("501 headers", "HTTP/2", async |probe| probe.same(&many(TOO_MANY)).await));
    let by_http1 = case("501 headers", "HTTP/1.1", async |probe| {
        let ask = many(TOO_MANY);
        probe.past(&ask).await?.with(StatusCode::OK)?;
        probe.proxied(&ask).await?.with(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)?;
        Ok(Outcome::Gap(
            "refused with 431 from 501 on: the HTTP library makes room for each beforehand, on every request",
        ))
    });
    cases.push(by_http1.by_http1());
    cases.push(case("write as somebody else (impersonation)", "merge patch", async |probe| {
        let ask = Ask::new(Method::PATCH, format!("{MAPS}/{}1?dryRun=All", probe.shard.owns));
        let ask = ask.body(MERGE, r#"{"data":{"text":"somebody's"}}"#).as_somebody();
        probe.same_with(&ask, OF_A_WRITE, Expected::Done).await
    }));
    cases
}
