//! Connections that become something else, and requests whose writing matters.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

use super::*;
use crate::compatibility::raw::RawHead;

/// An example of RFC 6455; both sides answer to the same.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// In which form a watch by WebSocket is asked for, and what its messages are.
type Watch = (&'static str, &'static str, Messages);

pub(crate) fn cases() -> Vec<Case> {
    let accepts = |form, media_type, messages| (form, ("Accept", media_type, messages));
    let forms: [(&str, Watch); 6] = [
        accepts("JSON in text messages", JSON, Messages::Text),
        // As a server of exec does; a watch repeats the name, and sends text (`HandleWS` of k8s.io/apiserver).
        (
            "JSON, with a subprotocol that says base64",
            ("Sec-WebSocket-Protocol", "base64.binary.k8s.io", Messages::Text),
        ),
        accepts("protobuf in binary messages", PROTOBUF, Messages::Binary),
        accepts("metadata as protobuf", METADATA_PROTOBUF, Messages::Binary),
        accepts("Table", TABLE, Messages::Text),
        ("with compression, which is not accepted", ("Sec-WebSocket-Extensions", "permessage-deflate", Messages::Text)),
    ];
    let mut cases: Vec<_> = by_form("watch by WebSocket", forms, watch).collect();
    let one = "JSON in text messages";
    cases.push(case("watch by WebSocket", "with the token as a subprotocol", by_subprotocol).variant());
    let from_nothing = case("watch by WebSocket, from nothing", one, async |probe| {
        let ask = websocket(Ask::get(format!("{STILL}?watch=1&timeoutSeconds=1")));
        shows(&probe, &ask, Messages::Text).await
    });
    cases.push(from_nothing.asks_for(Ability::StreamingLists));
    let mut cases: Vec<_> = cases.into_iter().map(Case::by_http1).collect();
    let without_http2 = case("watch by WebSocket, of a server without HTTP/2", one, async |probe| {
        watch(probe, ("Accept", JSON, Messages::Text)).await
    });
    cases.push(without_http2.by((Http::One, Http::One)));
    cases.extend(as_written().map(|(behaviour, form, ask, rewritten, status)| {
        let by_hand = case(behaviour, form, async move |probe| {
            let outcome = same(&probe, &ask, status).await?;
            probe.arrived_as(&ask, rewritten).map(|_| outcome)
        });
        by_hand.by_http1()
    }));
    let answered = case("headers of one connection in an answer", "HTTP/2 to HTTP/1.1", of_connection);
    cases.push(answered.by((Http::Two, Http::One)));
    cases.push(case("head of more than 64 KiB", "HTTP/1.1", too_long).by_http1());
    cases.push(case("Expect: 100-continue", "HTTP/1.1 to HTTP/2", continued).by_http1());
    let by_name = case("names of headers as they are written", "HTTP/1.1 to HTTP/1.1", names);
    cases.push(by_name.by((Http::One, Http::One)));
    cases
}

/// Requests that HTTP/2 can't say (RFC 9113, section 8.2.2), nor the library that other cases send with; what becomes of them,
/// and the status of the answer.
fn as_written() -> [(&'static str, &'static str, Ask, Rewritten, &'static str); 4] {
    let with =
        |ask: Ask, headers: &[(&str, &str)]| headers.iter().fold(ask, |ask, (name, value)| ask.header(name, value));
    let spdy = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "v4.channel.k8s.io")];
    let websocket = websocket(exec(Method::GET)).header("Sec-WebSocket-Protocol", "v5.channel.k8s.io");
    let own = Ask::get(format!("{MAPS}/own-1"));
    let h2c = with(own.clone(), &[("Connection", "Upgrade"), ("Upgrade", "h2c")]);
    let of_connection = [
        ("Connection", "keep-alive, x-mine"),
        ("X-Mine", "1"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers, deflate"),
        ("Trailer", "x-other"),
        ("Proxy-Authorization", "Basic eDp5"),
        ("Proxy-Authenticate", "Basic"),
        ("Proxy-Connection", "keep-alive"),
    ];
    [
        ("exec in a pod without a node", "SPDY", with(exec(Method::POST), &spdy), AS_SENT, "400"),
        ("exec in a pod without a node", "WebSocket", websocket, AS_SENT, "400"),
        ("upgrade to HTTP/2 without TLS, which is not accepted", "HTTP/1.1", h2c, PLAIN, "200"),
        ("headers of one connection", "HTTP/1.1", with(own, &of_connection), AS_SENT, "200"),
    ]
}

/// In a pod that no node runs: what a node would be asked for is refused before. (On a node: see the section on pods.)
fn exec(method: Method) -> Ask {
    let target = format!("/api/v1/namespaces/{NAMESPACE}/pods/shard-0/exec?command=true&stdout=true");
    Ask::new(method, target).unsized_body()
}

pub(super) fn websocket(ask: Ask) -> Ask {
    let ask = ask.header("Connection", "Upgrade").header("Upgrade", "websocket");
    ask.header("Sec-WebSocket-Version", "13").header("Sec-WebSocket-Key", KEY).header("Origin", "https://127.0.0.1")
}

/// Sends the same both ways; what comes is the same, with this status, headers and the case of their names included.
async fn same(probe: &Probe, ask: &Ask, status: &str) -> Result<Outcome> {
    let (direct, body) = to_end(Raw::send(&probe.shard.direct, ask, &probe.mark).await?).await?;
    let (proxied, proxied_body) = to_end(Raw::send(&probe.shard.proxied, ask, &probe.mark).await?).await?;
    ensure!(direct.status.contains(status), "without the proxy {}: {}", direct.status, String::from_utf8_lossy(&body));
    heads(&direct, &proxied)?;
    ensure!(!body.is_empty() && body == proxied_body, "{}", difference("the body", &body, &proxied_body));
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

async fn watch(probe: Probe, (header, value, form): Watch) -> Result<Outcome> {
    shows(&probe, &websocket(since_begin(&probe.fixture, MAPS)).header(header, value), form).await
}

async fn shows(probe: &Probe, ask: &Ask, form: Messages) -> Result<Outcome> {
    let sides = [(&probe.shard.direct, &probe.by_hand(ask)), (&probe.shard.proxied, ask)];
    shows_both(probe, sides, form, &["accept-encoding", "sec-websocket-extensions"]).await
}

/// Watches both ways, to the ends. Compared are what arrived, the heads, and the messages: those through the proxy with what
/// the API server sent there, and with those of the other watch.
async fn shows_both(
    probe: &Probe,
    [(direct, by_hand), (proxied, ask)]: [(&Endpoint, &Ask); 2],
    form: Messages,
    headers: &'static [&'static str],
) -> Result<Outcome> {
    steady(async |times| {
        let (by_hand, ask) = (lasting(by_hand, times), lasting(ask, times));
        let both = tokio::try_join!(Raw::send(direct, &by_hand, &probe.mark), Raw::send(proxied, &ask, &probe.mark));
        let (mut direct, mut proxied) = both?;
        let head = direct.head().await?;
        heads(&head, &proxied.head().await?)?;
        ensure!(head.status.contains("101"), "{}", head.status);
        let (direct, proxied) = tokio::try_join!(direct.rest(), proxied.rest())?;
        let arrived = probe.arrived_as(&ask, Rewritten { headers, ..SELECTED })?;
        probe.shows_its_own(&proxied).map_err(Moment)?;
        ensure!(proxied.first() == Some(&(form as u8)), "{:?} is no message of {form:?}", proxied.first());
        let sent = without_bookmarks(&arrived.upgraded.as_ref().context("it went on as before")?.answered)?;
        ensure!(sent == proxied, "{}", difference("what came through the proxy", &sent, &proxied));
        // A Table says how old an object is.
        let same = || anyhow::anyhow!("{}", difference("what came", &direct, &proxied));
        if direct == proxied { Ok(Outcome::Narrowed) } else { Err(Moment(same()).into()) }
    })
    .await
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
    let ask = websocket(since_begin(&probe.fixture, MAPS));
    let with = |ask: &Ask, endpoint: &Endpoint| {
        let token = BASE64_URL_SAFE_NO_PAD.encode(endpoint.token());
        let protocols = format!("base64url.bearer.authorization.k8s.io.{token}, base64.binary.k8s.io");
        ask.clone().header("Sec-WebSocket-Protocol", &protocols)
    };
    let (direct, proxied) = (&probe.shard.direct, &probe.shard.proxied);
    let (by_hand, ask) = (with(&probe.by_hand(&ask), direct), with(&ask, proxied));
    let sides = [(&direct.with_token(""), &by_hand), (&proxied.with_token(""), &ask)];
    shows_both(&probe, sides, Messages::Text, &["accept-encoding", "sec-websocket-protocol"]).await
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

/// The API server takes 1 MiB. What passes is less than what a head may have at most, in bytes. The library that other cases
/// send with takes no path that long.
async fn too_long(probe: Probe) -> Result<Outcome> {
    const PASSES: usize = 55_000;
    let own = format!("{MAPS}/own-1");
    let of_path = |length: usize| Ask::get(format!("{own}?x={}", "x".repeat(length)));
    let of_header = |length: usize| Ask::get(&own).header("X-Long", &"x".repeat(length));
    for (passes, ask) in [(of_path(PASSES), of_path(65_535)), (of_header(PASSES), of_header(550_000))] {
        let head = Raw::send(&probe.shard.proxied, &passes, &probe.mark).await?.head().await?;
        ensure!(head.status.contains("200"), "{}", head.status);
        let (direct, _) = to_end(Raw::send(&probe.shard.direct, &ask, &probe.mark).await?).await?;
        ensure!(direct.status.contains("200"), "{}", direct.status);
        probe.take();
        // It closes the connection while the client still sends, so the answer may be lost.
        let head = async { Raw::send(&probe.shard.proxied, &ask, &probe.mark).await?.head().await };
        if let Ok(RawHead { status, .. }) = head.await {
            // It looks at how much it has after each read.
            ensure!(status.contains("414") || status.contains("431"), "{status}");
        }
        probe.nothing_arrived()?;
    }
    Ok(Outcome::Gap("refused with 414 or 431: a head has 64 KiB at most"))
}

/// The client sees the names as Go writes them, and the API server as the client did. (HTTP/2 has small letters only.)
async fn names(probe: Probe) -> Result<Outcome> {
    let lines = ["X-mIxEd: 1", "x-lower: 2", "ACCEPT: */*"];
    let ask = Ask::get(format!("{MAPS}/{}1", probe.shard.owns));
    let ask =
        lines.iter().filter_map(|line| line.split_once(": ")).fold(ask, |ask, (name, value)| ask.header(name, value));
    let outcome = same(&probe, &ask, "200").await?;
    let head = probe.arrived()?.head.unwrap_or_default();
    ensure!(lines.iter().all(|line| head.lines().any(|it| it == *line)), "it arrived as {head}");
    Ok(outcome)
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
