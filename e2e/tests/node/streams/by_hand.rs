//! Clients that are not kubectl: those that speak WebSocket with the pod's channels in its messages, as most libraries do, and
//! those that read logs by HTTP. Written by hand, so that heads are compared as they are written, and answers to one key.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::header;
use ringside_e2e::{
    compatibility::{
        client::{Ask, Endpoint, Http},
        compare::{Bodies, Extent, answers, arrival, contains, passed_on},
        raw::{Raw, RawHead},
    },
    eventually::eventually,
};
use tokio::time::timeout;

use super::{
    DEADLINE, ECHO, Held, POD, Proxy, Site, logs,
    passage::{answer, opening},
    start_pod_in,
};
use crate::Shared;

/// An example of RFC 6455; everybody answers to the same.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Ends a connection from the client's side: a masked frame without a reason (RFC 6455, section 5.5.1).
const CLOSE: [u8; 6] = [0x88, 0x80, 0, 0, 0, 0];

/// The channel of exec and attach on which the kubelet says at the end how it went.
const STATUS: u8 = 3;

/// The bytes of each channel, in the order of their messages.
type Channels = BTreeMap<u8, Vec<u8>>;

/// What is said on a connection once it is a WebSocket.
struct Talk {
    subprotocol: &'static str,
    /// Frames.
    says: Vec<u8>,
    /// The client ends it when this has come; without it the other side does.
    until: Option<&'static [u8]>,
}

pub(crate) async fn exec(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let command = "command=/guest&command=say&command=to+stdout&command=to+stderr&command=7&stdout=true&stderr=true";
    for site in streams.sites() {
        for subprotocol in ["v4.channel.k8s.io", "v5.channel.k8s.io"] {
            let talk = Talk { subprotocol, says: Vec::new(), until: None };
            let channels = streams.talk(&site, &format!("{POD}/exec?{command}"), talk).await.unwrap();
            let said = (&channels[&1][..], &channels[&2][..]);
            assert_eq!(said, (&b"to stdout"[..], &b"to stderr"[..]), "{subprotocol}");
            assert!(contains(&channels[&3], b"\"message\":\"7\""), "{subprotocol}: {channels:?}");
        }
        // Only the last of the subprotocols can say that no more input comes.
        let says = [message(&[0], b"some input"), message(&[255], &[0])].concat();
        let talk = Talk { subprotocol: "v5.channel.k8s.io", says, until: None };
        let target = format!("{POD}/exec?command=/guest&command=digest&stdin=true&stdout=true");
        let channels = streams.talk(&site, &target, talk).await.unwrap();
        assert_eq!(channels[&1], format!("10 {}\n", super::digest(b"some input")).into_bytes());
    }
}

pub(crate) async fn attach(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    for site in streams.sites() {
        let pod = "attach-by-hand";
        start_pod_in(&shared.node, site.namespace, pod, "stdin: true", "[echo]").await.unwrap();
        for subprotocol in ["v4.channel.k8s.io", "v5.channel.k8s.io"] {
            let talk = Talk { subprotocol, says: message(&[0], b"a word\n"), until: Some(b"heard a word\n") };
            let channels = streams.talk(&site, &format!("{pod}/attach?stdin=true&stdout=true"), talk).await.unwrap();
            assert_eq!(channels[&1], b"heard a word\n", "{subprotocol}");
        }
    }
}

pub(crate) async fn port_forward(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    for site in streams.sites() {
        let says = message(&[0], b"there and back");
        let talk = Talk { subprotocol: "v4.channel.k8s.io", says, until: Some(b"and back") };
        let channels = streams.talk(&site, &format!("{POD}/portforward?ports={ECHO}"), talk).await.unwrap();
        // Each channel begins with the port.
        let port = ECHO.to_le_bytes();
        assert_eq!((&channels[&0][..], &channels[&1][..]), (&[&port[..], b"there and back"].concat()[..], &port[..]));
    }
}

pub(crate) async fn log_by_websocket(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    for site in streams.sites() {
        let pod = logs::written(&shared, site.namespace).await;
        for subprotocol in ["binary.k8s.io", "base64.binary.k8s.io"] {
            let mark = streams.mark();
            let ask = websocket(&site, &format!("{pod}/log?follow=true"), subprotocol);
            let [direct, proxied] = streams.both(site.proxy, &ask, &mark, &[], None).await.unwrap();
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

pub(crate) async fn log_by_http(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    for site in streams.sites() {
        let pod = logs::written(&shared, site.namespace).await;
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

    /// What came on each channel, the same past the proxy and through it.
    async fn talk(&self, site: &Site<'_>, target: &str, talk: Talk) -> Result<Channels> {
        let (mark, ask) = (self.mark(), websocket(site, target, talk.subprotocol));
        let both = self.both(site.proxy, &ask, &mark, &talk.says, talk.until).await?;
        let [direct, proxied] = both.map(|bytes| {
            let mut channels = channels(&bytes);
            if talk.until.is_some() {
                // The kubelet says how it went, or finds that the client has gone already.
                channels.remove(&STATUS);
            }
            channels
        });
        ensure!(direct == proxied, "{target}: without the proxy {direct:?}, with it {proxied:?}");
        Ok(proxied)
    }

    /// All bytes that came, past the proxy and through it, one after the other. Heads are compared as they are written, and
    /// what passed through the proxy byte by byte with what arrived and was answered behind it.
    async fn both(
        &self,
        proxy: &Proxy,
        ask: &Ask,
        mark: &str,
        says: &[u8],
        until: Option<&[u8]>,
    ) -> Result<[Vec<u8>; 2]> {
        let of = || format!("{} as {:?}", ask.target, ask.headers.last());
        let session = async |endpoint| {
            let bounded = timeout(DEADLINE, session(endpoint, ask, mark, says, until)).await;
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
        let said = [says, if until.is_some() { &CLOSE } else { &[] }].concat();
        ensure!(passed.sent == said, "{said:?} arrived as {:?}", passed.sent);
        ensure!(passed.answered == proxied, "{:?} came as {proxied:?}", passed.answered);
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
    says: &[u8],
    until: Option<&[u8]>,
) -> Result<(RawHead, Vec<u8>)> {
    let mut raw = Raw::send(endpoint, ask, mark).await?;
    let head = raw.head().await?;
    ensure!(head.status.contains(" 101 "), "{head:#?}");
    raw.write(says).await?;
    if let Some(until) = until {
        raw.until(|received| contains(received, until)).await?;
        raw.write(&CLOSE).await?;
    }
    Ok((head, raw.rest().await?))
}

/// A message of a client, of these two parts: binary, in one frame, and masked with nothing (RFC 6455, section 5.2).
fn message(channel: &[u8], text: &[u8]) -> Vec<u8> {
    let length = u8::try_from(channel.len() + text.len()).unwrap();
    assert!(length < 126, "the length of a longer message is written otherwise");
    [&[0x82, 0x80 | length, 0, 0, 0, 0], channel, text].concat()
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
