//! What passed, compared: what kubectl sent with what arrived at the API server's door, what came back from there with what
//! kubectl was given, and that with what it is given without the proxy.

use anyhow::{Context as _, Result, bail, ensure};
use http::{StatusCode, header};
use ringside_e2e::{
    compatibility::{
        client::Answer,
        compare::{Bodies, Extent, answers, arrival, difference, passed_on},
    },
    eventually::eventually,
    relay::Recorded,
};

use super::{DEADLINE, Held, Proxy, Site, Way, way::Protocol};

/// So much may still be under way to who has ended: words of the protocol that nobody waits for, such as an end that is
/// confirmed. What was wanted of a session is looked at by its case, to the last byte.
const UNDER_WAY: usize = 64 << 10;

impl Held<'_> {
    /// Compares all that passed by pairs of ways, once nothing passes any more.
    pub(super) async fn assert_alike(&self, site: &Site<'_>, ways: &[Way]) {
        for pair in ways.chunks(2) {
            let [direct, proxied] = pair else { panic!("{} ways", ways.len()) };
            let compared = self.compare(site, direct, proxied).await;
            compared.unwrap_or_else(|error| panic!("{}: {error:#}", proxied.name));
        }
    }

    async fn compare(&self, site: &Site<'_>, direct: &Way, proxied: &Way) -> Result<()> {
        self.all_ended(&[direct, proxied]).await?;
        let mark = &proxied.mark;
        let passed = [direct.front.take(mark), proxied.front.take(mark), self.door.take(mark)].map(in_order);
        let [direct, sent, arrived] = &passed;
        for other in [direct, arrived] {
            ensure!(asked(sent) == asked(other), "{:#?} and {:#?}", asked(sent), asked(other));
        }
        for ((direct, sent), arrived) in direct.iter().zip(sent).zip(arrived) {
            let of = || format!("{} {}", sent.method, sent.target);
            if is_of_pod(sent) {
                opened(sent, proxied.protocol).with_context(of)?;
            }
            one(site.proxy, direct, sent, arrived).with_context(of)?;
        }
        ensure!(sent.iter().any(is_of_pod), "nothing was asked of a pod: {:#?}", asked(sent));
        Ok(())
    }

    async fn all_ended(&self, ways: &[&Way; 2]) -> Result<()> {
        let mark = &ways[0].mark;
        let ended = eventually("the connections have ended", DEADLINE, || async {
            let open = ways.iter().map(|way| way.front.open(mark)).sum::<usize>() + self.door.open(mark);
            if open == 0 { Ok(()) } else { Err(format!("{open} are open")) }
        });
        Ok(ended.await?)
    }
}

/// A request: without the proxy, as it was sent through it, and as it arrived.
fn one(proxy: &Proxy, direct: &Recorded, sent: &Recorded, arrived: &Recorded) -> Result<()> {
    arrival(&sent.headers, &arrived.headers, &proxy.as_seen, &[])?;
    ensure!(sent.body == arrived.body, "{}", difference("the request's body", &sent.body, &arrived.body));
    let (without, given) = (answer(direct)?, answer(sent)?);
    ensure!(without.status == given.status, "without the proxy {}, with it {}", without.status, given.status);
    match (&sent.upgraded, &arrived.upgraded) {
        (None, None) => {
            passed_on(arrived, &given, Extent::Whole)?;
            let moving = sent.target.contains("/pods/") && !is_of_pod(sent);
            let without = if moving { at_the_moment(&without, &given) } else { without };
            answers(&without, &given, Bodies::Exact).map(drop)
        }
        (Some(from), Some(to)) => {
            opening(&answer(arrived)?, &given)?;
            let without = answering(&without, &given);
            opening(&without, &given).context("without the proxy")?;
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

fn last_of_path(sent: &Recorded) -> &str {
    let path = sent.target.split('?').next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
}

/// Whether it is what a node has to answer, and not the API server alone.
fn is_of_pod(sent: &Recorded) -> bool {
    ["exec", "attach", "portforward"].contains(&last_of_path(sent))
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
pub(super) fn answer(passed: &Recorded) -> Result<Answer> {
    let answered = passed.answer.clone().context("no answer")?;
    let (status, headers, trailers) = (answered.status, answered.headers, answered.trailers);
    Ok(Answer { status, headers, body: answered.body.into(), trailers })
}

/// Whether two answers open a session alike: all that they say, of the connection too, because it says what it becomes. (The
/// API server says no date here; the relay before it does, as a server has to where it knows the time.)
pub(super) fn opening(from: &Answer, to: &Answer) -> Result<()> {
    let said = |answer: &Answer| {
        let mut headers = answer.headers.clone();
        headers.remove(header::DATE);
        (answer.status, headers)
    };
    let (from, to) = (said(from), said(to));
    ensure!(from == to, "{from:#?} became {to:#?}");
    Ok(())
}

/// The answer as if the pod were as in the other one: it may have gone on when the other way asks. (Of one way the bodies are
/// compared, byte by byte.)
fn at_the_moment(answer: &Answer, other: &Answer) -> Answer {
    let mut answer = Answer { body: other.body.clone(), ..answer.clone() };
    if let (Some(own), Some(length)) =
        (answer.headers.get_mut(header::CONTENT_LENGTH), other.headers.get(header::CONTENT_LENGTH))
    {
        own.clone_from(length);
    }
    answer
}

/// The answer as if it were one to the other's key. (It depends on nothing else: RFC 6455, section 4.2.2. That each is the
/// right one its own client sees to, and that it is passed on is compared.)
fn answering(answer: &Answer, other: &Answer) -> Answer {
    let mut answer = answer.clone();
    if let (Some(own), Some(key)) =
        (answer.headers.get_mut(header::SEC_WEBSOCKET_ACCEPT), other.headers.get(header::SEC_WEBSOCKET_ACCEPT))
    {
        own.clone_from(key);
    }
    answer
}

/// Every byte, in its order, as far as it was still wanted.
fn passed(what: &str, sent: &[u8], arrived: &[u8]) -> Result<()> {
    let whole = sent.starts_with(arrived) && sent.len() - arrived.len() <= UNDER_WAY;
    ensure!(whole, "{}", difference(what, sent, arrived));
    Ok(())
}
