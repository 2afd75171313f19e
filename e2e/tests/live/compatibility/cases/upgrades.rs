//! Connections that become something else, and requests whose writing matters.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ringside_e2e::relay::Recorded;

use super::*;
use crate::compatibility::raw::RawHead;

const STREAMING: &str =
    "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=2";
/// An example of RFC 6455; both sides answer to the same.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = watches();
    let mut add = |pair, case: Case| cases.push(case.by(pair));
    let one = (Http::One, Http::Two);
    add(
        one,
        case("watch by WebSocket", "with compression, which is not accepted", async |probe| {
            let ask = websocket(Ask::get(format!("{MAPS}?watch=1&{}", probe.fixture.since_begin())));
            watch(&probe, &ask.header("Sec-WebSocket-Extensions", "permessage-deflate"), Messages::Text).await
        }),
    );
    pods().into_iter().for_each(|case| add(one, case));
    add(
        one,
        case("upgrade to HTTP/2 without TLS, which is not accepted", "HTTP/1.1", async |probe| {
            let ask = Ask::get(format!("{MAPS}/own-1")).header("Connection", "Upgrade").header("Upgrade", "h2c");
            same(&probe, &ask, PLAIN, "200").await
        }),
    );
    add(one, case("watch that the API server ends with 410 Gone", "WebSocket", gone));
    // HTTP/2 can't say any of it (RFC 9113, section 8.2.2), nor does the library that other cases send with.
    add(
        one,
        case("headers of one connection", "HTTP/1.1", async |probe| {
            let ask =
                Ask::get(format!("{MAPS}/own-1")).header("Connection", "keep-alive, x-mine").header("X-Mine", "1");
            let ask =
                ask.header("Keep-Alive", "timeout=5").header("TE", "trailers, deflate").header("Trailer", "x-other");
            let ask = ask.header("Proxy-Authorization", "Basic eDp5").header("Proxy-Authenticate", "Basic");
            same(&probe, &ask.header("Proxy-Connection", "keep-alive"), AS_SENT, "200").await
        }),
    );
    let answered = case("headers of one connection in an answer", "HTTP/2 to HTTP/1.1", of_connection);
    add((Http::Two, Http::One), answered);
    add(one, case("watch by WebSocket", "with the token as a subprotocol", by_subprotocol));
    add(one, case("path and query of 65,535 bytes", "HTTP/1.1", too_long));
    add(one, case("head of 550 kB", "HTTP/1.1", too_much));
    for upstream in Http::BOTH {
        let (pair, form) = ((Http::One, upstream), Http::One.towards(upstream));
        add(pair, case("Expect: 100-continue", &form, continued));
        add(pair, case("names of headers as they are written", &form, names));
    }
    cases
}

/// Watches by WebSocket, in each form.
fn watches() -> Vec<Case> {
    let mut cases = Vec::new();
    for (behaviour, path, query) in [
        ("watch by WebSocket", MAPS, "BEGIN"),
        ("watch by WebSocket, legacy path", "/api/v1/watch/namespaces/fixed/configmaps", "BEGIN"),
        ("watch by WebSocket, of one object", MAPS, "fieldSelector=metadata.name%3Down-1&BEGIN"),
        ("watch by WebSocket, from nothing", STILL, "timeoutSeconds=2"),
        ("watch by WebSocket, from 0", STILL, "resourceVersion=0&timeoutSeconds=2"),
        ("streaming list by WebSocket", STILL, STREAMING),
    ] {
        for (form, messages, header) in [
            ("JSON in text messages", Messages::Text, None),
            // As a server of exec does; a watch repeats the name, and sends text (`HandleWS` of k8s.io/apiserver).
            (
                "JSON, with a subprotocol that says base64",
                Messages::Text,
                Some(("Sec-WebSocket-Protocol", "base64.binary.k8s.io")),
            ),
            ("protobuf in binary messages", Messages::Binary, Some(("Accept", PROTOBUF))),
            ("metadata as JSON", Messages::Text, Some(("Accept", METADATA))),
            ("metadata as protobuf", Messages::Binary, Some(("Accept", METADATA_PROTOBUF))),
            ("Table", Messages::Text, Some(("Accept", TABLE))),
        ] {
            for upstream in Http::BOTH {
                let of_server = if upstream == Http::One { ", of a server without HTTP/2" } else { "" };
                let watching = case(&format!("{behaviour}{of_server}"), form, async move |probe| {
                    let target = format!("{path}?watch=1&{query}").replace("BEGIN", &probe.fixture.since_begin());
                    let ask = websocket(Ask::get(target.replace("own-", probe.shard.owns)));
                    let ask = header.into_iter().fold(ask, |ask, (name, value)| ask.header(name, value));
                    watch(&probe, &ask, messages).await
                });
                cases.push(watching.by((Http::One, upstream)));
            }
        }
    }
    cases
}

pub(super) fn websocket(ask: Ask) -> Ask {
    let ask = ask.header("Connection", "Upgrade").header("Upgrade", "websocket");
    ask.header("Sec-WebSocket-Version", "13").header("Sec-WebSocket-Key", KEY).header("Origin", "https://127.0.0.1")
}

/// A pod that no node runs: what a node would be asked for is refused before. (On a node: see the section on pods.)
fn pods() -> Vec<Case> {
    let mut cases = Vec::new();
    for (subresource, query) in [
        ("exec", "command=true&stdout=true"),
        ("attach", "stdout=true"),
        ("portforward", "ports=80"),
        ("log", "follow=true"),
    ] {
        for (form, method, statuses) in [
            ("SPDY", Method::POST, ["400", "405"]),
            ("WebSocket", Method::GET, ["400", "204"]),
            ("plain", Method::GET, ["400", "204"]),
        ] {
            if (subresource, form) == ("log", "SPDY") {
                // It has no such streams.
                continue;
            }
            let status = statuses[usize::from(subresource == "log")];
            let target = format!("/api/v1/namespaces/{NAMESPACE}/pods/shard-0/{subresource}?{query}");
            let plain = Ask::new(method, target).unsized_body();
            let ask = match form {
                "SPDY" => plain
                    .header("Connection", "Upgrade")
                    .header("Upgrade", "SPDY/3.1")
                    .header("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
                "WebSocket" => websocket(plain).header("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
                _ => plain,
            };
            let rewritten = if subresource == "log" && form != "plain" { PLAIN } else { AS_SENT };
            let behaviour = format!("{subresource} in a pod without a node");
            cases.push(case(&behaviour, form, async move |probe| same(&probe, &ask, rewritten, status).await));
        }
    }
    cases
}

/// Sends the same both ways; what comes is the same, with this status, headers and the case of their names included.
async fn same(probe: &Probe, ask: &Ask, rewritten: Rewritten, status: &str) -> Result<Outcome> {
    let (direct, proxied) = both(probe, ask).await?;
    probe.arrived_as(ask, rewritten)?;
    alike(&direct, &proxied, status)
}

/// Both answers as they are written, with their bodies.
async fn both(probe: &Probe, ask: &Ask) -> Result<((RawHead, Vec<u8>), (RawHead, Vec<u8>))> {
    let direct = to_end(Raw::send(&probe.shard.direct, ask, &probe.mark).await?).await?;
    Ok((direct, to_end(Raw::send(&probe.shard.proxied, ask, &probe.mark).await?).await?))
}

/// Two answers with this status, and what they say. (Of a log that is not there yet: nothing.)
fn alike(
    (direct, body): &(RawHead, Vec<u8>),
    (proxied, proxied_body): &(RawHead, Vec<u8>),
    status: &str,
) -> Result<Outcome> {
    ensure!(direct.status.contains(status), "without the proxy {}: {}", direct.status, String::from_utf8_lossy(body));
    heads(direct, proxied)?;
    ensure!(!body.is_empty() || direct.status.contains("204"), "there is nothing to compare: {direct:#?}");
    ensure!(body == proxied_body, "{}", difference("the body", body, proxied_body));
    Ok(Outcome::Same)
}

fn heads(direct: &RawHead, proxied: &RawHead) -> Result<()> {
    ensure!(direct == proxied, "{direct:#?} became {proxied:#?}");
    Ok(())
}

/// The head, and the body as it is framed.
async fn to_end(mut raw: Raw) -> Result<(RawHead, Vec<u8>)> {
    let head = raw.head().await?;
    let body = raw.body(&head).await.with_context(|| format!("{head:#?}"))?;
    Ok((head, body))
}

/// What messages of a watch are made of (RFC 6455, section 5.2): a whole message in a frame, of text or binary.
#[derive(Clone, Copy, Debug)]
enum Messages {
    Text = 0x81,
    Binary = 0x82,
}

async fn watch(probe: &Probe, ask: &Ask, form: Messages) -> Result<Outcome> {
    let by_hand = probe.by_hand(ask);
    let rewritten = Rewritten { headers: &["accept-encoding", "sec-websocket-extensions"], ..SELECTED };
    steady(async || {
        let both = tokio::try_join!(
            Raw::send(&probe.shard.direct, &by_hand, &probe.mark),
            Raw::send(&probe.shard.proxied, ask, &probe.mark),
        )?;
        shows(probe, both, form, (ask, rewritten)).await.map(|_| Outcome::Narrowed)
    })
    .await
}

/// Compares two watches, head and messages: those through the proxy with what the API server sent there, and with those of
/// the other watch. And what arrived, which it returns.
async fn shows(
    probe: &Probe,
    both: (Raw, Raw),
    form: Messages,
    (ask, rewritten): (&Ask, Rewritten),
) -> Result<Recorded> {
    let read = read(both, form).await;
    let arrived = probe.arrived_as(ask, rewritten)?;
    let (direct, proxied) = read?;
    probe.shows_its_own(&proxied)?;
    let sent = arrived.upgraded.as_ref().context("it went on as before")?.answered.clone();
    let asks = arrived.target.contains("allowWatchBookmarks=true&resourceVersionMatch");
    let sent = if asks { sent } else { without_bookmarks(&sent)? };
    ensure!(sent == proxied, "{}", difference("what came through the proxy", &sent, &proxied));
    let (direct, proxied) = (without_bookmarks(&direct)?, without_bookmarks(&proxied)?);
    // A Table says how old an object is, and a bookmark of which moment it is.
    let same = || anyhow::anyhow!("{}", difference("what came", &direct, &proxied));
    if direct == proxied { Ok(arrived) } else { Err(Moment(same()).into()) }
}

/// The messages of both, to their ends.
async fn read((mut direct, mut proxied): (Raw, Raw), form: Messages) -> Result<(Vec<u8>, Vec<u8>)> {
    let head = direct.head().await?;
    heads(&head, &proxied.head().await?)?;
    ensure!(head.status.contains("101"), "{}", head.status);
    let (messages, proxied) = tokio::try_join!(direct.rest(), proxied.rest())?;
    ensure!(proxied.first() == Some(&(form as u8)), "{:?} is no message of {form:?}", proxied.first());
    Ok((messages, proxied))
}

/// What a server sends, without the frames that are bookmarks (RFC 6455, section 5.2).
fn without_bookmarks(mut bytes: &[u8]) -> Result<Vec<u8>> {
    let mut left = Vec::new();
    while let [_, second, rest @ ..] = bytes {
        let extended = match second {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let long =
            rest.get(..extended).context("half a frame")?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let length = 2 + extended + if extended == 0 { usize::from(*second) } else { long };
        let (frame, behind) = bytes.split_at_checked(length).context("half a frame")?;
        if !contains(frame, b"BOOKMARK") {
            left.extend_from_slice(frame);
        }
        bytes = behind;
    }
    ensure!(bytes.is_empty(), "half a frame");
    Ok(left)
}

/// As a browser asks, which can set no header: the token is one of the subprotocols, and another one is agreed.
async fn by_subprotocol(probe: Probe) -> Result<Outcome> {
    let ask = websocket(Ask::get(format!("{MAPS}?watch=1&{}", probe.fixture.since_begin())));
    let with = |ask: &Ask, token: &str| {
        let token = BASE64_URL_SAFE_NO_PAD.encode(token);
        let protocols = format!("base64url.bearer.authorization.k8s.io.{token}, base64.binary.k8s.io");
        ask.clone().header("Sec-WebSocket-Protocol", &protocols)
    };
    let (direct, proxied) = (&probe.shard.direct, &probe.shard.proxied);
    let (by_hand, ask) = (with(&probe.by_hand(&ask), direct.token()), with(&ask, proxied.token()));
    let (nobody, nobody_there) = (direct.with_token(""), proxied.with_token(""));
    let rewritten = Rewritten { headers: &["accept-encoding", "sec-websocket-protocol"], ..SELECTED };
    steady(async || {
        let both =
            tokio::try_join!(Raw::send(&nobody, &by_hand, &probe.mark), Raw::send(&nobody_there, &ask, &probe.mark))?;
        let arrived = shows(&probe, both, Messages::Text, (&ask, rewritten)).await?;
        let left = arrived.headers.get("sec-websocket-protocol");
        ensure!(left.is_some_and(|it| it == "base64.binary.k8s.io"), "{left:?} arrived");
        Ok(Outcome::Narrowed)
    })
    .await
}

/// What the API server says to a watch from a state that it does not have any more, said to one that goes on.
async fn gone(probe: Probe) -> Result<Outcome> {
    let old = websocket(Ask::get(format!("{SITES}?watch=1&resourceVersion=2&timeoutSeconds=1")));
    let mut real = Raw::send(&probe.shard.direct, &old, &probe.mark).await?;
    let (head, messages) = (real.head().await?, real.rest().await?);
    ensure!(head.status.contains("101") && contains(&messages, b"ERROR"), "{head:#?}");
    let header = |name| head.get(name).unwrap_or_default().to_owned();
    let script = Script::new(StatusCode::SWITCHING_PROTOCOLS).header("connection", "Upgrade");
    let script = script.header("upgrade", "websocket").header("sec-websocket-accept", &header("Sec-Websocket-Accept"));
    probe.script(script.bytes(messages.clone()));
    let ask = websocket(Ask::get(format!("{SITES}?watch=1&resourceVersion={}", probe.fixture.begin)));
    let mut came = Vec::new();
    for endpoint in [&probe.shard.scripted, &probe.shard.proxied] {
        probe.take();
        let mut raw = Raw::send(endpoint, &ask, &probe.mark).await?;
        let head = raw.head().await?;
        came.push(head.answer(raw.rest().await?)?);
    }
    ensure!(came[0].body == messages, "{}", difference("what came", &messages, &came[0].body));
    probe.arrived_as(&ask, WATCHED)?;
    answers(&came[0], &came[1], Bodies::Exact)
}

/// None of it comes. (What the relay's own connection needs it says itself.)
async fn of_connection(probe: Probe) -> Result<Outcome> {
    let script = Script::new(StatusCode::OK).bytes("{}").header("connection", "x-mine").header("x-mine", "1");
    let script = script.header("keep-alive", "timeout=5").header("proxy-authenticate", "Basic");
    let script = script.header("te", "trailers").header("upgrade", "h2c");
    probe.script(script.header("transfer-encoding", "chunked"));
    let (answer, _) = probe.through(&Ask::get("/version"), AS_SENT).await?;
    let came = changes::RESPONSE.iter().find(|change| answer.headers.contains_key(change.header));
    ensure!(came.is_none(), "{} came", came.map_or("", |change| change.header));
    Ok(Outcome::Changed("left out, as the list below says"))
}

/// A path with its query that passes, in bytes, and one that does not.
const LONG: usize = 60_000;
const TOO_LONG: usize = 65_535;

/// The library that this client is written with takes no such path: so by hand.
async fn too_long(probe: Probe) -> Result<Outcome> {
    let path = format!("{MAPS}/own-1?x=");
    let of = |length: usize| Ask::get(format!("{path}{}", "x".repeat(length - path.len())));
    let longest = Raw::send(&probe.shard.proxied, &of(LONG), &probe.mark).await?.head().await?;
    ensure!(longest.status.contains("200"), "{}", longest.status);
    let ask = of(TOO_LONG);
    let (direct, _) = to_end(Raw::send(&probe.shard.direct, &ask, &probe.mark).await?).await?;
    ensure!(direct.status.contains("200"), "{}", direct.status);
    // It looks at how much it has after each read.
    refused(&probe, &ask, &["414", "431"]).await?;
    Ok(Outcome::Gap("refused with 414 or 431: a head has 64 KiB at most"))
}

/// What a head may have at most, in bytes.
const LARGEST: usize = 64 << 10;

/// The API server takes 1 MiB.
async fn too_much(probe: Probe) -> Result<Outcome> {
    let of = |length: usize| Ask::get(format!("{MAPS}/own-1")).header("X-Long", &"x".repeat(length));
    let (passes, _) = to_end(Raw::send(&probe.shard.proxied, &of(LARGEST - 10_000), &probe.mark).await?).await?;
    ensure!(passes.status.contains("200"), "{}", passes.status);
    let ask = of(550_000);
    let (direct, _) = to_end(Raw::send(&probe.shard.direct, &ask, &probe.mark).await?).await?;
    ensure!(direct.status.contains("200"), "{}", direct.status);
    refused(&probe, &ask, &["431"]).await?;
    Ok(Outcome::Gap("refused with 431: a head has 64 KiB at most"))
}

/// The proxy refuses a head with one of these codes. It closes the connection while the client still sends, so the answer may be lost.
async fn refused(probe: &Probe, ask: &Ask, codes: &[&str]) -> Result<()> {
    probe.take();
    let head = async { Raw::send(&probe.shard.proxied, ask, &probe.mark).await?.head().await };
    if let Ok(head) = head.await {
        ensure!(codes.iter().any(|code| head.status.contains(code)), "{}", head.status);
    }
    probe.nothing_arrived()
}

/// The client sees the names as Go writes them; and by HTTP/1.1 the API server as the client did. (HTTP/2 has small
/// letters only.)
async fn names(probe: Probe) -> Result<Outcome> {
    let ask = Ask::get(format!("{MAPS}/{}1", probe.shard.owns))
        .header("X-mIxEd", "1")
        .header("x-lower", "2")
        .header("ACCEPT", "*/*");
    let (direct, proxied) = both(&probe, &ask).await?;
    let head = probe.arrived()?.head.unwrap_or_default();
    for line in ["X-mIxEd: 1", "x-lower: 2", "ACCEPT: */*"] {
        ensure!(probe.shard.upstream == Http::Two || head.lines().any(|it| it == line), "{line} is not in {head}");
    }
    alike(&direct, &proxied, "200")
}

/// The body is sent only when the server asks for it.
async fn continued(probe: Probe) -> Result<Outcome> {
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"expected"}}"#;
    let ask = Ask::new(Method::POST, format!("{MAPS}?dryRun=All"))
        .header("Content-Type", JSON)
        .header("Content-Length", &object.len().to_string())
        .header("Expect", "100-continue");
    let mut both = Vec::new();
    for endpoint in [&probe.shard.direct, &probe.shard.proxied] {
        let mut raw = Raw::send(endpoint, &ask, &probe.mark).await?;
        let first = raw.head().await?.status;
        ensure!(first == "HTTP/1.1 100 Continue", "{first}");
        raw.write(object.as_bytes()).await?;
        let (head, body) = to_end(raw).await?;
        ensure!(head.status.contains("201"), "{}", head.status);
        both.push(head.answer(body)?);
    }
    let arrived = probe.arrived()?;
    probe.check_arrival(&Ask { body: object.into(), ..ask }, &arrived, AS_SENT)?;
    answers(&both[0], &both[1], OF_A_WRITE)
}
