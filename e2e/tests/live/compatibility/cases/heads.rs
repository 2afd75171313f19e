//! What may stand in a request's head beside its meaning: names, encodings, methods, lengths.

use super::*;

/// As many as a client may well send that impersonates with extras; Go has no limit but the head's length of 1 MiB.
const MANY: usize = 490;
/// As many as are refused by HTTP/1.1.
const TOO_MANY: usize = 501;
/// Selectors can be long: 1,500 names have been seen to be accepted.
const LONG: usize = 40_000;

type Asks = fn(&Fixture) -> Ask;

/// Requests that nobody narrows.
const PLAIN: [(&str, StatusCode, Asks); 17] = [
    ("HEAD", StatusCode::OK, |_| Ask::new(Method::HEAD, "/livez")),
    ("HEAD of an object", StatusCode::METHOD_NOT_ALLOWED, |_| Ask::new(Method::HEAD, OBJECT)),
    ("HEAD of a list", StatusCode::METHOD_NOT_ALLOWED, |_| Ask::new(Method::HEAD, SECRETS)),
    ("OPTIONS", StatusCode::METHOD_NOT_ALLOWED, |_| Ask::new(Method::OPTIONS, OBJECT)),
    ("a method that nobody knows", StatusCode::METHOD_NOT_ALLOWED, |_| {
        Ask::new(Method::from_bytes(b"BREW").unwrap_or_default(), OBJECT)
    }),
    ("unknown query parameters", StatusCode::OK, |_| object("?b=2&a=1&a=0&un%6bnown=%7e+x&empty=&bare")),
    ("odd query", StatusCode::OK, |_| object("?&&a=b=c&?/:@!$'()*,")),
    ("unknown headers, several lines of one", StatusCode::OK, |_| {
        object("").header("x-b", "1").header("x-a", "é").header("x-b", "0")
    }),
    ("490 headers", StatusCode::OK, |_| many(MANY)),
    ("query of 40 kB", StatusCode::OK, |_| object(&format!("?x={}", "x".repeat(LONG)))),
    ("header of 40 kB", StatusCode::OK, |_| object("").header("x-long", &"x".repeat(LONG))),
    ("percent-encoded path", StatusCode::OK, |_| Ask::get("/api/v1/namespaces/fi%78ed/%63onfigmaps/free-1")),
    ("trailing slash", StatusCode::OK, |_| object("/")),
    ("get of one object with `watch`, which is no watch", StatusCode::OK, |_| object("?watch=1")),
    ("`pretty`", StatusCode::OK, |_| object("?pretty=true")),
    ("who is asking, as a front proxy says it", StatusCode::OK, |_| {
        object("")
            .header("x-remote-user", "admin")
            .header("x-remote-uid", "1")
            .header("x-remote-group", "system:masters")
            .header("x-remote-extra-scopes", "all")
    }),
    ("forwarded by somebody else", StatusCode::OK, |_| {
        object("").header("x-forwarded-for", "192.0.2.1").header("via", "1.1 somebody").header("forwarded", "for=x")
    }),
];

/// Lists of the ring, as they were at one moment.
const LISTS: [(&str, Asks); 13] = [
    ("unknown query parameters of a list", |fixture| list(fixture, "&b=2&a=1&a=0&un%6bnown=%7e+x&empty=&bare")),
    ("labelSelector of the client's own", |fixture| list(fixture, "&labelSelector=tier+in+(back,%20side),!absent")),
    ("labelSelector with blanks", |fixture| list(fixture, "&labelSelector=tier%21%3Dfront,+tier+,!+absent")),
    ("labelSelector given twice, of which the first counts", |fixture| {
        list(fixture, "&labelSelector=tier%3Dback&labelSelector=tier%3Dfront")
    }),
    ("resourceVersion given twice, of which the first counts", |fixture| list(fixture, "&x=1&resourceVersion=1&x=2")),
    ("`watch` given twice, of which the first counts", |fixture| list(fixture, "&watch=0&watch=1")),
    ("empty parameters of a list", |fixture| list(fixture, "&&x=1&")),
    ("parameters with `;`, which do not count", |fixture| list(fixture, "&limit=1;labelSelector=a&x=;")),
    ("parameters with bad escapes, which do not count", |fixture| list(fixture, "&labelSelector=%zz&x=%f&y=%")),
    ("fieldSelector", |fixture| list(fixture, "&fieldSelector=metadata.name!%3dvisitor")),
    ("percent-encoded path of a list", |fixture| {
        let Ask { target, .. } = list(fixture, "");
        Ask::get(target.replace("fixed/configmaps", "fi%78ed/%63onfigmaps"))
    }),
    ("trailing slash of a list", |fixture| Ask::get(list(fixture, "").target.replace('?', "/?"))),
    ("`pretty` of a list", |fixture| list(fixture, "&pretty=true")),
];

const OBJECT: &str = "/api/v1/namespaces/fixed/configmaps/free-1";

fn object(rest: &str) -> Ask {
    Ask::get(format!("{OBJECT}{rest}"))
}

fn many(headers: usize) -> Ask {
    (0..headers).fold(object(""), |ask, index| ask.header(&format!("x-many-{index}"), "value"))
}

fn list(fixture: &Fixture, rest: &str) -> Ask {
    Ask::get(format!("{MAPS}?{}{rest}", fixture.exact()))
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (behaviour, status, ask) in PLAIN {
        cases.extend(by_pair(behaviour, move |probe| async move { probe.same_as(&ask(&probe.fixture), status).await }));
    }
    for (behaviour, ask) in LISTS {
        cases.extend(by_pair(behaviour, move |probe| async move { probe.narrowed(&ask(&probe.fixture)).await }));
    }
    cases.extend(by_pair("501 headers", async |probe| {
        let ask = many(TOO_MANY);
        if probe.http == Http::Two {
            return probe.same(&ask).await;
        }
        let (direct, proxied) = (probe.past(&ask).await?, probe.proxied(&ask).await?);
        ensure!(direct.status == StatusCode::OK, "{}", direct.text());
        ensure!(proxied.status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{}", proxied.text());
        Ok(Outcome::Gap(
            "refused with 431 from 501 on: the HTTP library makes room for each beforehand, on every request",
        ))
    }));
    cases.push(case("get as somebody else (impersonation)", "JSON", async move |probe| {
        probe.same(&Ask::get(format!("{MAPS}/{}1", probe.shard.owns)).as_somebody()).await
    }));
    cases.push(case("write as somebody else (impersonation)", "merge patch", async move |probe| {
        let ask = Ask::new(Method::PATCH, format!("{MAPS}/{}1?dryRun=All", probe.shard.owns));
        let ask = ask.body(MERGE, r#"{"data":{"text":"somebody's"}}"#);
        let ask = ask.as_somebody();
        probe.same_with(&ask, OF_A_WRITE, Expected::Done).await
    }));
    cases
}
