//! What passed, compared: what kubectl sent with what arrived at the API server's door, and what came back from there with what
//! kubectl was given.

use anyhow::{Context as _, Result, bail, ensure};
use http::{StatusCode, header};
use ringside_e2e::{
    compatibility::{
        client::Answer,
        compare::{Extent, arrival, difference, passed_on},
    },
    eventually::eventually,
    relay::Recorded,
};

use super::{DEADLINE, Proxy, Streams, Way, way::Protocol};

/// So much may still be under way to who has ended: words of the protocol that no client waits for, such as an end that
/// is confirmed. What was wanted of a session is looked at by its case, to the last byte.
const UNDER_WAY: usize = 64 << 10;

impl Streams {
    /// Compares all that passed by these ways, once nothing passes any more.
    pub(super) async fn assert_alike(&self, proxy: &Proxy, ways: &[Way]) {
        for way in ways {
            let compared = self.compare(proxy, way).await;
            compared.unwrap_or_else(|error| panic!("{:?}: {error:#}", way.protocol));
        }
    }

    async fn compare(&self, proxy: &Proxy, way: &Way) -> Result<()> {
        eventually("the connections have ended", DEADLINE, || async {
            let open = way.front.open(&way.mark) + self.door.open(&way.mark);
            if open == 0 { Ok(()) } else { Err(format!("{open} are open")) }
        })
        .await?;
        let [sent, arrived] = [&way.front, &self.door].map(|relay| in_order(relay.take(&way.mark)));
        ensure!(asked(&sent) == asked(&arrived), "{:#?} and {:#?}", asked(&sent), asked(&arrived));
        for (sent, arrived) in sent.iter().zip(&arrived) {
            let of = || format!("{} {}", sent.method, sent.target);
            if is_of_pod(sent) {
                opened(sent, way.protocol).with_context(of)?;
            }
            one(proxy, sent, arrived).with_context(of)?;
        }
        ensure!(sent.iter().any(is_of_pod), "nothing was asked of a pod: {:#?}", asked(&sent));
        Ok(())
    }
}

/// A request: as it was sent through the proxy, and as it arrived.
fn one(proxy: &Proxy, sent: &Recorded, arrived: &Recorded) -> Result<()> {
    arrival(&sent.headers, &arrived.headers, &proxy.as_seen, &[])?;
    ensure!(sent.body == arrived.body, "{}", difference("the request's body", &sent.body, &arrived.body));
    let given = answer(sent)?;
    match (&sent.upgraded, &arrived.upgraded) {
        (None, None) => passed_on(arrived, &given, Extent::Whole),
        (Some(from), Some(to)) => {
            opening(&answer(arrived)?, &given)?;
            passed("what the client sends", &from.sent, &to.sent)?;
            passed("what the pod sends", &to.answered, &from.answered)
        }
        (from, to) => bail!("goes on with another protocol: {from:?} before the proxy, {to:?} behind it"),
    }
}

/// Sorted, as kubectl asks for some of it at once.
fn in_order(mut passed: Vec<Recorded>) -> Vec<Recorded> {
    passed.sort_by(|one, other| one.target.cmp(&other.target));
    passed
}

/// What was asked for.
fn asked(passed: &[Recorded]) -> Vec<(&str, &str)> {
    passed.iter().map(|it| (it.method.as_str(), it.target.as_str())).collect()
}

/// Whether it is what a node has to answer, and not the API server alone.
fn is_of_pod(sent: &Recorded) -> bool {
    let path = sent.target.split('?').next().unwrap_or_default();
    ["/exec", "/attach", "/portforward"].iter().any(|part| path.ends_with(part))
}

/// Whether it went on as kubectl was told, at the first try. (It tries SPDY where WebSocket fails, and says nothing: so all
/// cases would pass with one of the two.)
fn opened(sent: &Recorded, protocol: Protocol) -> Result<()> {
    let (wish, status) = (sent.headers.get(header::UPGRADE), answer(sent)?.status);
    let expected = match protocol {
        Protocol::Spdy => "SPDY/3.1",
        Protocol::WebSocket => "websocket",
    };
    let spoken = wish.is_some_and(|wish| wish == expected) && status == StatusCode::SWITCHING_PROTOCOLS;
    ensure!(spoken, "{wish:?} was wished for, and answered {status}");
    ensure!(sent.upgraded.is_some(), "{sent:#?}");
    Ok(())
}

/// What the client was given.
fn answer(passed: &Recorded) -> Result<Answer> {
    let answered = passed.answer.clone().context("no answer")?;
    let (status, headers, trailers) = (answered.status, answered.headers, answered.trailers);
    Ok(Answer { status, headers, body: answered.body.into(), trailers })
}

/// Whether two answers open a session alike: all that they say, of the connection too, because it says what it becomes. (The
/// API server says no date here; the relay before it does, as a server has to where it knows the time.)
fn opening(from: &Answer, to: &Answer) -> Result<()> {
    let said = |answer: &Answer| {
        let mut headers = answer.headers.clone();
        headers.remove(header::DATE);
        (answer.status, headers)
    };
    let (from, to) = (said(from), said(to));
    ensure!(from == to, "{from:#?} became {to:#?}");
    Ok(())
}

/// Every byte, in its order, as far as it was still wanted.
fn passed(what: &str, sent: &[u8], arrived: &[u8]) -> Result<()> {
    let whole = sent.starts_with(arrived) && sent.len() - arrived.len() <= UNDER_WAY;
    ensure!(whole, "{}", difference(what, sent, arrived));
    Ok(())
}
