//! Clients that are not kubectl: those that speak WebSocket with the pod's channels in its messages, as most libraries do, and
//! those that read logs by HTTP. Written by hand, so that heads are compared as they are written, and answers to one key.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::header;
use ringside_e2e::{
    compatibility::{
        client::{Ask, Endpoint, Http},
        compare::{Bodies, Extent, answers, arrival, contains, difference, passed_on},
        raw::{Raw, RawHead},
    },
    eventually::eventually,
};
use tokio::time::timeout;

use super::{
    DEADLINE, ECHO, Held, MUCH, Proxy, Site, digest, filling, logs,
    passage::{answer, opening},
};
use crate::Fixture;

/// An example of RFC 6455; everybody answers to the same.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Ends a connection from the client's side: a masked frame without a reason (RFC 6455, section 5.5.1).
const CLOSE: [u8; 6] = [0x88, 0x80, 0, 0, 0, 0];

/// The channel of exec and attach on which the kubelet says at the end how it went.
const STATUS: u8 = 3;

/// The bytes of each channel, in the order of their messages.
type Channels = BTreeMap<u8, Vec<u8>>;

/// What the client writes, and what has to come before it goes on.
type Step = (Vec<u8>, &'static str);

/// The subprotocols of exec and attach. Only the last of them can say that no more input comes.
const V4: &str = "v4.channel.k8s.io";
const V5: &str = "v5.channel.k8s.io";

/// What is said on a connection once it is a WebSocket, by each of some subprotocols.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub(super) name: &'static str,
    pub(super) behaviour: &'static str,
    subprotocols: &'static [&'static str],
    /// Below the pods of a namespace.
    target: &'static str,
    says: fn() -> Vec<Step>,
    /// Whether the client ends it, and not the other side.
    closes: bool,
    /// Takes away what differs each time.
    without_chance: fn(&mut Channels),
    came: fn(&Channels) -> bool,
}

const OUTPUT: Stream = Stream {
    name: "exec_gives_output_and_exit_code",
    behaviour: "exec: output and exit code, each channel",
    subprotocols: &[V4, V5],
    target: "streams/exec?command=/guest&command=say&command=to+stdout&command=to+stderr&command=7&stdout=true&stderr=true",
    says: Vec::new,
    closes: false,
    without_chance: |_| {},
    came: |channels| {
        channels[&1] == b"to stdout"
            && channels[&2] == b"to stderr"
            && contains(&channels[&STATUS], b"\"message\":\"7\"")
    },
};

pub(super) const STREAMS: [Stream; 7] = [
    OUTPUT,
    Stream {
        name: "exec_refuses_a_command_that_is_not_there",
        behaviour: "exec of a command that is not there",
        target: "streams/exec?command=/no/such/program&stdout=true",
        // Each attempt has an id.
        without_chance: |channels| {
            let status = channels.entry(STATUS).or_default();
            let words = status.split(|byte| *byte == b' ').filter(|word| !word.iter().any(u8::is_ascii_digit));
            *status = words.collect::<Vec<_>>().join(&b' ');
        },
        came: |channels| contains(&channels[&STATUS], b"/no/such/program"),
        ..OUTPUT
    },
    Stream {
        name: "exec_takes_much_input_and_its_end",
        behaviour: "exec: 8 MiB of input, and its end",
        subprotocols: &[V5],
        target: "streams/exec?command=/guest&command=digest&stdin=true&stdout=true",
        says: || vec![([input(&filling(MUCH)), message(&[255], &[0])].concat(), "")],
        came: |channels| channels[&1] == format!("{MUCH} {}\n", digest(&filling(MUCH))).into_bytes(),
        ..OUTPUT
    },
    Stream {
        name: "exec_gives_much_output",
        behaviour: "exec: 8 MiB of output",
        target: "streams/exec?command=/guest&command=fill&command=8388608&stdout=true",
        came: |channels| channels[&1] == filling(MUCH),
        ..OUTPUT
    },
    Stream {
        name: "exec_follows_the_size_of_a_terminal",
        behaviour: "exec with a terminal that changes its size",
        target: "streams/exec?command=/guest&command=size&stdin=true&stdout=true&tty=true",
        says: || {
            vec![
                (message(&[4], br#"{"Width":80,"Height":24}"#), "80 x 24\r\n"),
                (message(&[4], br#"{"Width":132,"Height":50}"#), "132 x 50\r\n"),
                (input(b"\r"), ""),
            ]
        },
        // The terminal may have had another size at first.
        without_chance: |channels| drop(channels.remove(&1)),
        came: |channels| contains(&channels[&STATUS], b"Success"),
        ..OUTPUT
    },
    Stream {
        name: "attach_gives_each_channel",
        behaviour: "attach: each channel",
        target: "attached-by-hand/attach?stdin=true&stdout=true",
        says: || vec![(input(b"a word\n"), "heard a word\n")],
        closes: true,
        came: |channels| channels[&1] == b"heard a word\n",
        ..OUTPUT
    },
    Stream {
        name: "port_forward_gives_each_channel",
        behaviour: "port-forward: each channel",
        subprotocols: &[V4],
        target: "streams/portforward?ports=7000",
        says: || vec![(input(b"there and back"), "and back")],
        closes: true,
        // Each channel begins with the port.
        came: |channels| {
            let port = ECHO.to_le_bytes();
            channels[&0] == [&port[..], b"there and back"].concat() && channels[&1] == port
        },
        ..OUTPUT
    },
];

impl Stream {
    /// As the page has it.
    pub(super) fn representation(&self) -> String {
        format!("WebSocket by hand: {}", self.subprotocols.join(", "))
    }

    /// To a pod that no ring has, and to one of a ring.
    pub(super) async fn run(&self, fixture: &Fixture) {
        let streams = super::of(fixture).await;
        for site in streams.sites() {
            for subprotocol in self.subprotocols {
                let talked = streams.talk(&site, self, subprotocol).await;
                let of = || format!("{subprotocol}, namespace {}", site.namespace);
                talked.with_context(of).unwrap_or_else(|error| panic!("{error:#}"));
            }
        }
    }
}

pub(crate) async fn log_by_websocket(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    for site in streams.sites() {
        let pod = logs::written(&fixture, site.namespace).await;
        for subprotocol in ["binary.k8s.io", "base64.binary.k8s.io"] {
            let mark = streams.mark();
            let ask = websocket(&site, &format!("{pod}/log?follow=true"), subprotocol);
            let [direct, proxied] = streams.both(site.proxy, &ask, &mark, &[], false).await.unwrap();
            let text = |bytes: &[u8]| -> Vec<u8> {
                let decoded = messages(bytes).into_iter().map(|message| match subprotocol {
                    "binary.k8s.io" => message,
                    _ => BASE64_STANDARD.decode(message).unwrap(),
                });
                decoded.flatten().collect()
            };
            assert_eq!(String::from_utf8(text(&proxied)).unwrap(), logs::all(), "{subprotocol}");
            assert!(text(&direct) == text(&proxied), "{subprotocol}");
        }
    }
}

pub(crate) async fn log_by_http(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    for site in streams.sites() {
        let pod = logs::written(&fixture, site.namespace).await;
        for http in [Http::One, Http::Two] {
            for query in ["", "?follow=true", "?tailLines=10", "?timestamps=true&limitBytes=1000"] {
                let ask = Ask::get(path(&site, &format!("{pod}/log{query}")));
                let compared = streams.log(site.proxy, &ask, http).await;
                compared.with_context(|| format!("{} by {}", ask.target, http.name())).unwrap();
            }
        }
    }
}

fn path(site: &Site<'_>, target: &str) -> String {
    format!("/api/v1/namespaces/{}/pods/{target}", site.namespace)
}

fn websocket(site: &Site<'_>, target: &str, subprotocol: &str) -> Ask {
    let ask = Ask::get(path(site, target)).header("Connection", "Upgrade").header("Upgrade", "websocket");
    let ask = ask.header("Sec-WebSocket-Version", "13").header("Sec-WebSocket-Key", KEY);
    ask.header("Sec-WebSocket-Protocol", subprotocol)
}

impl Held<'_> {
    /// Sends it past the proxy and through it, and compares all that passed.
    async fn log(&self, proxy: &Proxy, ask: &Ask, http: Http) -> Result<()> {
        let mark = self.mark();
        let direct = self.direct.endpoint.exchange(http, ask, &mark).await?;
        let proxied = proxy.server.endpoint.exchange(http, ask, &mark).await?;
        let arrived = self.door.take(&mark);
        let [arrived] = &arrived[..] else { anyhow::bail!("{} requests arrived", arrived.len()) };
        ensure!((&arrived.method, &arrived.target) == (&ask.method, &ask.target), "{arrived:#?}");
        arrival(&sent(proxy, ask, &mark)?, &arrived.headers, &proxy.as_seen, &[])?;
        passed_on(arrived, &proxied, Extent::Whole)?;
        answers(&direct, &proxied, Bodies::Exact)?;
        ensure!(proxied.status == http::StatusCode::OK && !proxied.body.is_empty(), "{}", proxied.text());
        Ok(())
    }

    /// On each channel the same has to come past the proxy and through it.
    async fn talk(&self, site: &Site<'_>, stream: &Stream, subprotocol: &str) -> Result<()> {
        let (mark, ask) = (self.mark(), websocket(site, stream.target, subprotocol));
        let both = self.both(site.proxy, &ask, &mark, &(stream.says)(), stream.closes).await?;
        let [direct, proxied] = both.map(|bytes| channels(&bytes));
        ensure!((stream.came)(&direct), "without the proxy: {}", show(&direct));
        ensure!((stream.came)(&proxied), "through the proxy: {}", show(&proxied));
        let [direct, proxied] = [direct, proxied].map(|mut channels| {
            if stream.closes {
                // The kubelet says how it went, or finds that the client has gone already.
                channels.remove(&STATUS);
            }
            (stream.without_chance)(&mut channels);
            channels
        });
        ensure!(direct == proxied, "without the proxy {}, with it {}", show(&direct), show(&proxied));
        Ok(())
    }

    /// All bytes that came, past the proxy and through it, one after the other. Heads are compared as they are written, and
    /// what passed through the proxy byte by byte with what arrived and was answered behind it.
    async fn both(&self, proxy: &Proxy, ask: &Ask, mark: &str, says: &[Step], closes: bool) -> Result<[Vec<u8>; 2]> {
        let of = || format!("{} as {:?}", ask.target, ask.headers.last());
        let session = async |endpoint| {
            let bounded = timeout(DEADLINE, session(endpoint, ask, mark, says, closes)).await;
            bounded.context("no end")?
        };
        let (head, direct) = session(&self.direct.endpoint).await.with_context(of)?;
        let (proxied_head, proxied) = session(&proxy.server.endpoint).await.with_context(of)?;
        ensure!(head == proxied_head && head.status.contains(" 101 "), "{head:#?} became {proxied_head:#?}");
        eventually("the connection has ended", DEADLINE, || async {
            if self.door.open(mark) == 0 { Ok(()) } else { Err("it is open".to_owned()) }
        })
        .await?;
        let arrived = self.door.take(mark);
        let [arrived] = &arrived[..] else { anyhow::bail!("{} requests arrived", arrived.len()) };
        ensure!((&arrived.method, &arrived.target) == (&ask.method, &ask.target), "{arrived:#?}");
        arrival(&sent(proxy, ask, mark)?, &arrived.headers, &proxy.as_seen, &[])?;
        opening(&answer(arrived)?, &proxied_head.answer(Vec::new())?)?;
        let passed = arrived.upgraded.as_ref().context("no upgrade")?;
        let mut said: Vec<_> = says.iter().flat_map(|(says, _)| says).copied().collect();
        said.extend(closes.then_some(CLOSE).iter().flatten());
        ensure!(passed.sent == said, "{}", difference("what the client sends", &said, &passed.sent));
        ensure!(passed.answered == proxied, "{}", difference("what the pod sends", &passed.answered, &proxied));
        Ok([direct, proxied])
    }
}

/// What the client sends to the proxy.
fn sent(proxy: &Proxy, ask: &Ask, mark: &str) -> Result<http::HeaderMap> {
    let (mut sent, endpoint) = (ask.sent(mark)?, &proxy.server.endpoint);
    sent.insert(header::AUTHORIZATION, format!("Bearer {}", endpoint.token()).parse()?);
    sent.insert(header::HOST, endpoint.address().to_string().parse()?);
    Ok(sent)
}

/// The head, and all that came behind it.
async fn session(
    endpoint: &Endpoint,
    ask: &Ask,
    mark: &str,
    says: &[Step],
    closes: bool,
) -> Result<(RawHead, Vec<u8>)> {
    let mut raw = Raw::send(endpoint, ask, mark).await?;
    let head = raw.head().await?;
    ensure!(head.status.contains(" 101 "), "{head:#?}");
    for (says, until) in says {
        raw.write(says).await?;
        raw.until(|received| until.is_empty() || contains(received, until.as_bytes())).await?;
    }
    if closes {
        raw.write(&CLOSE).await?;
    }
    Ok((head, raw.rest().await?))
}

/// A message of a client, of these two parts: binary, in one frame, and masked with nothing (RFC 6455, section 5.2).
fn message(channel: &[u8], text: &[u8]) -> Vec<u8> {
    let length = u16::try_from(channel.len() + text.len()).unwrap();
    let [high, low] = length.to_be_bytes();
    let head = if length < 126 { vec![0x82, 0x80 | low] } else { vec![0x82, 0x80 | 126, high, low] };
    [&head[..], &[0; 4], channel, text].concat()
}

/// Messages on the channel of input.
fn input(text: &[u8]) -> Vec<u8> {
    text.chunks(32 << 10).flat_map(|part| message(&[0], part)).collect()
}

/// The messages of a server: its frames of text and binary.
fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let [first, length, rest @ ..] = bytes {
        let (size, rest) = match *length {
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            127 => (usize::try_from(u64::from_be_bytes(rest[..8].try_into().unwrap())).unwrap(), &rest[8..]),
            short => (usize::from(short), rest),
        };
        let (message, rest) = rest.split_at(size);
        if [1, 2].contains(&(first & 0x0f)) {
            messages.push(message.to_vec());
        }
        bytes = rest;
    }
    messages
}

fn channels(bytes: &[u8]) -> Channels {
    let mut channels = Channels::new();
    for message in messages(bytes) {
        if let [channel, text @ ..] = &message[..] {
            channels.entry(*channel).or_default().extend_from_slice(text);
        }
    }
    channels
}

/// The beginning of each channel, for who reads an error.
fn show(channels: &Channels) -> String {
    let begin = |(channel, text): (&u8, &Vec<u8>)| {
        let begin = String::from_utf8_lossy(&text[..text.len().min(300)]).into_owned();
        format!("{channel}: {} bytes: {begin:?}", text.len())
    };
    channels.iter().map(begin).collect::<Vec<_>>().join(", ")
}
