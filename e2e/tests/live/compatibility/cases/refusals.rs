//! What the proxy itself refuses, or answers otherwise than the API server, and why.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::*;

const OWN_WORDS: &str = "the message of the refusal is the proxy's own, which refuses by itself";

const DOTS: &str =
    "refused with 400: the API server takes dots for names, another server on the way for the path to another list";

type Asks = fn() -> Ask;

/// What both refuse, with the same status and reason.
const BOTH: [(&str, &str, Asks); 7] = [
    // The proxy refuses states that are not compacted yet too: objects may have moved since.
    ("410", "list of an old state, of the ring", || {
        Ask::get(format!("{SITES}?resourceVersion=2&resourceVersionMatch=Exact"))
    }),
    ("path with dot segments", "get", || Ask::get(format!("{MAPS}/.."))),
    ("labelSelector that is none", "list", || Ask::get(format!("{MAPS}?labelSelector=a%20b%20c"))),
    ("compressed request body", "gzip", || {
        let compressed = &b"\x1f\x8b\x08\x00"[..];
        Ask::new(Method::POST, MAPS).header("content-encoding", "gzip").body(JSON, compressed)
    }),
    // More than a request may have, where the body is read before it is sent on.
    ("413", "write of a controlled resource", || {
        Ask::new(Method::POST, CONTROLLED).body(JSON, format!("{{\"x\":\"{}\"}}", "x".repeat(3_500_000)))
    }),
    ("415", "write of a controlled resource", || Ask::new(Method::POST, CONTROLLED).body("text/plain", "x")),
    ("400", "write of a controlled resource, no JSON", || Ask::new(Method::POST, CONTROLLED).body(JSON, "{")),
];

/// A resource that the ring's own one controls.
pub(super) const CONTROLLED: &str = "/apis/apps/v1/namespaces/fixed/replicasets";
pub(super) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

const TWICE: &str = r#"{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"twice","ownerReferences":[],
    "ownerReferences":[]},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
    "spec":{"containers":[{"name":"a","image":"a:1"}]}}}}"#;

/// What the proxy alone refuses: the answer of the API server, and why.
const ALONE: [(&str, &str, StatusCode, &str, Asks); 4] = [
    (
        "a field named twice",
        "owners in a write of a controlled resource",
        StatusCode::CREATED,
        "refused with 400, as with `fieldValidation=Strict`: decoders take the first, the last or both, and it must be sure who \
         controls it",
        || Ask::new(Method::POST, format!("{CONTROLLED}?dryRun=All")).body(JSON, TWICE),
    ),
    (
        "more than 1,000 query parameters",
        "list",
        StatusCode::OK,
        "refused with 400: of more than 10,000 the API server reads none, the selector neither",
        || Ask::get(format!("{MAPS}?limit=1{}", "&x".repeat(1_000))),
    ),
    (
        "path with empty segments",
        "list",
        StatusCode::FORBIDDEN,
        "refused with 400: servers clean such paths each in its own way, and it must be sure what is listed",
        || Ask::get("/api/v1/namespaces/fixed//configmaps"),
    ),
    ("path with dot segments", "list", StatusCode::FORBIDDEN, DOTS, || {
        Ask::get("/api/v1/namespaces/fixed/secrets/%2e%2e/configmaps")
    }),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (behaviour, form, ask) in BOTH {
        cases.push(case(behaviour, form, async move |probe| {
            refused_alike(&probe.past(&ask()).await?, &probe.unforwarded(&ask()).await?)
        }));
    }
    for (behaviour, form, status, why, ask) in ALONE {
        cases.push(case(behaviour, form, async move |probe| {
            probe.past(&ask()).await?.with(status)?;
            let proxied = probe.unforwarded(&ask()).await?;
            let said = proxied.status.as_str();
            ensure!(why.contains(said) && !reason(&proxied)?.is_empty(), "{said}: {}", proxied.text());
            Ok(Outcome::Changed(why))
        }));
    }
    // Beside the API there is no list that they could lead to.
    cases.push(case("path with dot segments", "beside the API", async |probe| {
        probe.same_as(&Ask::get("/version/./x/%2e%2e"), StatusCode::NOT_FOUND).await
    }));
    let a_byte = "each byte in a query, written as it is";
    cases.extend(by_form(a_byte, WITH_A_BYTE, bytes).map(|case| case.by_http1().costs("400 connections")));
    cases.push(case("`#` in a query, written as it is", "list", number_sign).by_http1());
    cases.push(case("continue token", "that goes on in another state than it began", inconsistent));
    cases.push(case("`/version` without a token", "JSON", without_a_token));
    cases
}

/// Whether both refuse with the same status and reason.
pub(super) fn refused_alike(direct: &Answer, proxied: &Answer) -> Result<Outcome> {
    ensure!(!direct.status.is_success(), "{}", direct.text());
    let (one, other) = (reason(direct)?, reason(proxied)?);
    ensure!(
        (direct.status, &one) == (proxied.status, &other),
        "{} {one} became {} {other}",
        direct.status,
        proxied.status
    );
    own_answer(direct, proxied)?;
    Ok(Outcome::Changed(OWN_WORDS))
}

/// What the API server says to whom it does not know.
async fn without_a_token(probe: Probe) -> Result<Outcome> {
    let ask = Ask::get("/version");
    let exchange =
        async |endpoint: &Endpoint, token| endpoint.with_token(token).exchange(probe.http, &ask, &probe.mark).await;
    exchange(&probe.shard.direct, "").await?.with(StatusCode::OK)?;
    let unknown = exchange(&probe.shard.direct, "nobody's").await?.with(StatusCode::UNAUTHORIZED)?;
    refused_alike(&unknown, &exchange(&probe.shard.proxied, "").await?)?;
    probe.nothing_arrived()?;
    Ok(Outcome::Changed("refused with 401: whoever reaches the proxy's port must have its token"))
}

/// What the HTTP library takes in no query, and Go's server does, besides what is no ASCII.
const NO_URI: &[u8] = b"\"<>";

/// Where a byte stands; the shard's selector is the first of the selectors.
const WITH_A_BYTE: [(&str, &str); 2] = [
    ("list, in its labelSelector", "EXACT&labelSelector=OURStier!%3Da~b&x=1"),
    ("list, in its fieldSelector", "EXACT&fieldSelector=metadata.name!%3Da~b&labelSelector=OURStier%3Dback"),
];

/// What Go's server takes, and what this one does, may differ: then nothing arrives that could mean something else there. No
/// client writes these as they are, so each is sent by hand.
async fn bytes(probe: Probe, query: &'static str) -> Result<Outcome> {
    let target = query.replace("EXACT", &exact(&probe.fixture, MAPS).target);
    let ours = utf8_percent_encode(&probe.shard.selector, NON_ALPHANUMERIC);
    let by_hand = Ask::get(target.replace("OURS", &format!("{ours},")));
    let ask = Ask::get(target.replace("OURS", ""));
    let (mut alike, mut not_taken) = (0, Vec::new());
    // By hand the shard's selector would go with the parameter that these two unmake; `heads.rs` has them.
    let unmakes = |byte: u8| target.contains("!%3Da~b&x=1") && b"%;".contains(&byte);
    for byte in (0..=u8::MAX).filter(|byte| !byte.is_ascii_alphanumeric() && *byte != b'#' && !unmakes(*byte)) {
        let told = || format!("byte {byte:#04x} in {}", ask.target);
        let direct = answer(&probe.shard.direct, &by_hand, &probe.mark, byte).await.with_context(told)?;
        let proxied = answer(&probe.shard.proxied, &ask, &probe.mark, byte).await.with_context(told)?;
        let arrived = probe.take();
        if arrived.is_empty() {
            ensure!(proxied.0 == StatusCode::BAD_REQUEST, "{}: {} without a request", told(), proxied.0);
            if direct.0.is_success() {
                not_taken.push(byte);
            }
        } else {
            ensure!(direct == proxied, "{}: {direct:?} became {proxied:?} by {arrived:#?}", told());
            alike += 1;
        }
    }
    // In a selector few bytes mean anything.
    ensure!(alike > 0, "none of them arrived");
    let differ: Vec<_> = not_taken.into_iter().filter(|byte| byte.is_ascii() && !NO_URI.contains(byte)).collect();
    ensure!(differ.is_empty(), "the API server takes these, and they are refused: {differ:x?}");
    Ok(Outcome::Changed("the same, or refused with 400 and not sent on: the HTTP library takes fewer than Go's"))
}

/// It begins what a URI has behind its query (RFC 3986, section 3.5), and requests have none: Go's server takes it for a part
/// of the query.
async fn number_sign(probe: Probe) -> Result<Outcome> {
    let ask = Ask::get(format!("{MAPS}?x=a~b&labelSelector=absent"));
    let (status, all) = answer(&probe.shard.direct, &ask, &probe.mark, b'#').await?;
    ensure!(status == StatusCode::OK && !contains(&all, b"own-0"), "{status}: {}", String::from_utf8_lossy(&all));
    let (status, shown) = answer(&probe.shard.proxied, &ask, &probe.mark, b'#').await?;
    let arrived = probe.arrived()?.target;
    ensure!(
        status == StatusCode::OK && arrived.starts_with(&format!("{MAPS}?x=a&labelSelector=")),
        "{status}: {arrived}"
    );
    // Of the shard's own more than was asked for, and nothing else.
    ensure!(!arrived.contains("absent"), "{arrived}");
    probe.shows_its_own(&shown)?;
    Ok(Outcome::Gap(
        "what stands behind it is left out, a selector of the client's own too: the HTTP library takes it for a fragment",
    ))
}

/// Status and body of an answer to a request with this byte in place of its `~`.
async fn answer(endpoint: &Endpoint, ask: &Ask, mark: &str, byte: u8) -> Result<(StatusCode, Vec<u8>)> {
    let mut raw = Raw::send_with(endpoint, ask, mark, ("~", &[byte])).await?;
    let head = raw.head().await?;
    let framed = head.get("Content-Length").is_some() || head.get("Transfer-Encoding").is_some();
    // Go says of a request that is none no more than that, and closes.
    let body = if framed { raw.body(&head).await? } else { raw.rest().await? };
    Ok((head.answer(Vec::new())?.status, body))
}

/// As an API server offers it whose list took too long; and what the proxy says where it answers.
async fn inconsistent(probe: Probe) -> Result<Outcome> {
    // {"v":"meta.k8s.io/v1","rv":-1,"start":"a\u0000"}
    let token = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9";
    let ask = Ask::get(format!("{MAPS}?limit=1&continue={token}"));
    probe.past(&ask).await?.with(StatusCode::OK)?;
    let proxied = probe.proxied(&ask).await?.with(StatusCode::GONE)?;
    probe.arrived_as(&ask, SELECTED)?;
    ensure!(reason(&proxied)? == "Expired", "{}", proxied.text());
    Ok(Outcome::Changed(
        "refused with 410, so that the list begins anew: a page of a state that is not known may show what was moved away, \
         and no event takes it back",
    ))
}
