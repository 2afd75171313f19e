//! A request by two ways: past the proxy and through it.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use http::{StatusCode, header};
pub(crate) use ringside_e2e::compatibility::compare::{
    Bodies, Extent, OF_A_WRITE, answers, arrival, contains, difference, own_answer, passed_on,
};
use ringside_e2e::{
    compatibility::Outcome,
    relay::{Recorded, Script},
};

use super::{
    client::{Answer, Ask, Http},
    fixture::Fixture,
    objects::OWNERS,
    query,
    shard::Shard,
};

/// What becomes of a request on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rewritten {
    /// Whether the shard's selector is put in front of the labelSelector.
    pub(crate) selects: bool,
    /// Headers that the list of `changes.rs` lets change.
    pub(crate) headers: &'static [&'static str],
    /// Parameters that are left out, each with what that list calls it.
    pub(crate) left_out: &'static [(&'static str, &'static str)],
}

/// Nothing.
pub(crate) const AS_SENT: Rewritten = Rewritten { selects: false, headers: &[], left_out: &[] };
/// What becomes of a request that asks for an upgrade where none may be.
pub(crate) const PLAIN: Rewritten = Rewritten { headers: &["upgrade"], ..AS_SENT };
/// What becomes of a request for what the ring shards.
pub(crate) const SELECTED: Rewritten = Rewritten { selects: true, ..AS_SENT };
/// What becomes of a watch of that.
pub(crate) const WATCHED: Rewritten = Rewritten { headers: &["accept-encoding"], ..SELECTED };

/// What the API server answers without the proxy. Two refusals are equal too, and show nothing of what a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// What was asked for.
    Done,
    /// This, which the case is about.
    Status(StatusCode),
}

impl Expected {
    pub(crate) fn check(self, direct: &Answer) -> Result<()> {
        let met = match self {
            Self::Done => direct.status.is_success(),
            Self::Status(status) => direct.status == status,
        };
        ensure!(met, "without the proxy {}, not {self:?}: {}", direct.status, direct.text());
        Ok(())
    }
}

/// The API server itself answered the same request otherwise than a moment ago. Of what went through the proxy is known
/// by then that it arrived as it was sent, and came back as the API server answered it.
#[derive(Debug, thiserror::Error)]
#[error("the API server answered twice, and not the same: {0:#}")]
pub(crate) struct Moment(pub(crate) anyhow::Error);

/// One request, sent past the proxy and through it.
#[derive(Clone)]
pub(crate) struct Probe {
    pub(crate) fixture: Arc<Fixture>,
    pub(crate) shard: Arc<Shard>,
    pub(crate) http: Http,
    pub(crate) mark: String,
}

impl Probe {
    /// One that speaks a version of HTTP with a proxy that speaks one with the API server.
    pub(crate) fn by(fixture: Arc<Fixture>, mark: String, (http, upstream): (Http, Http)) -> Self {
        Self { shard: fixture.by(upstream).clone(), fixture, http, mark }
    }

    /// The same for another shard.
    pub(crate) fn of(self, shard: &Arc<Shard>) -> Self {
        Self { shard: shard.clone(), ..self }
    }

    /// The request must arrive as it is and the answer come as it is, which is one of what was asked for. It may be sent
    /// more than once: no request that leaves something behind.
    pub(crate) async fn same(&self, ask: &Ask) -> Result<Outcome> {
        self.same_with(ask, Bodies::Exact, Expected::Done).await
    }

    /// The same of what the API server answers with this status: where it refuses, mostly.
    pub(crate) async fn same_as(&self, ask: &Ask, status: StatusCode) -> Result<Outcome> {
        self.same_with(ask, Bodies::Exact, Expected::Status(status)).await
    }

    pub(crate) async fn same_with(&self, ask: &Ask, bodies: Bodies, expected: Expected) -> Result<Outcome> {
        steady(async |_| self.compared(ask, AS_SENT, bodies, expected).await.map(|_| Outcome::Same)).await
    }

    /// The request must arrive with the shard's selector, and the answer be that of the same request with the selector
    /// written by hand: the intersection of what was asked for and what is the shard's. Of a watch, to its end.
    pub(crate) async fn narrowed(&self, ask: &Ask, rewritten: Rewritten) -> Result<Outcome> {
        steady(async |times| {
            let answer = self.narrowed_with(&lasting(ask, times), rewritten, Bodies::Exact).await?;
            Ok(self.shows_its_own(&answer.body).map_err(Moment)?)
        })
        .await
    }

    /// The same without a look at the names in the answer.
    pub(crate) async fn narrowed_with(&self, ask: &Ask, rewritten: Rewritten, bodies: Bodies) -> Result<Answer> {
        self.compared(ask, rewritten, bodies, Expected::Done).await
    }

    /// Compares the answers to what is asked by hand and to what the proxy makes of the request; returns the latter's.
    async fn compared(&self, ask: &Ask, rewritten: Rewritten, bodies: Bodies, expected: Expected) -> Result<Answer> {
        let by_hand = if rewritten.selects { self.by_hand(ask) } else { ask.clone() };
        // At the same time: a Table says how old an object is.
        let (direct, (proxied, _)) = tokio::try_join!(self.past(&by_hand), self.through(ask, rewritten))?;
        expected.check(&direct)?;
        answers(&direct, &proxied, bodies).map_err(Moment)?;
        Ok(proxied)
    }

    /// The request in the words of a client that selects the shard's objects itself.
    pub(crate) fn by_hand(&self, ask: &Ask) -> Ask {
        Ask { target: query::narrowed(&ask.target, &self.shard.selector), ..ask.clone() }
    }

    /// What a selector written by hand can't show: that it selects at all.
    pub(crate) fn shows_its_own(&self, body: &[u8]) -> Result<Outcome> {
        for name in OWNERS {
            let (there, own) = (contains(body, name.as_bytes()), name == self.shard.owns);
            ensure!(there == own, "objects named {name}: {}", if there { "shown" } else { "not shown" });
        }
        Ok(Outcome::Narrowed)
    }

    /// Sends it past the proxy.
    pub(crate) async fn past(&self, ask: &Ask) -> Result<Answer> {
        self.shard.direct.exchange(self.http, ask, &self.mark).await.context("without the proxy")
    }

    /// What the client speaks with the relay, without the proxy: its own version, where the relay offers it.
    pub(crate) fn of_relay(&self) -> Http {
        if self.shard.upstream == Http::One { Http::One } else { self.http }
    }

    /// Has the relay answer so from now on, in place of the API server.
    pub(crate) fn script(&self, script: Script) {
        self.shard.relay.answer(&self.mark, script);
    }

    /// Asks for an answer by script, past the proxy.
    pub(crate) async fn past_by_script(&self, ask: &Ask) -> Result<Answer> {
        let direct = self.shard.scripted.exchange(self.of_relay(), ask, &self.mark).await.context("without the proxy");
        self.take();
        direct
    }

    /// Asks for an answer by script, past the proxy and through it. Both must be the same, and arrive once.
    pub(crate) async fn scripted(&self, ask: &Ask, rewritten: Rewritten) -> Result<Outcome> {
        let direct = self.past_by_script(ask).await?;
        answers(&direct, &self.through(ask, rewritten).await?.0, Bodies::Exact)
    }

    /// Sends it through the proxy, and compares what arrives with what was sent, and what comes back with what was
    /// answered.
    pub(crate) async fn through(&self, ask: &Ask, rewritten: Rewritten) -> Result<(Answer, Recorded)> {
        self.take();
        let answer = self.proxied(ask).await?;
        let arrived = self.arrived_as(ask, rewritten)?;
        // One comes a minute, to the proxy alone where its client asks for none.
        let has_bookmark = |body: &[u8]| contains(body, b"BOOKMARK");
        let withheld = arrived.answer.as_ref().is_some_and(|it| has_bookmark(&it.body)) && !has_bookmark(&answer.body);
        let passed = passed_on(&arrived, &answer, Extent::Whole);
        passed.map_err(|error| if withheld { Moment(error).into() } else { error })?;
        Ok((answer, arrived))
    }

    /// Sends it through the proxy; what arrives is looked at later, or not.
    pub(crate) async fn proxied(&self, ask: &Ask) -> Result<Answer> {
        self.shard.proxied.exchange(self.http, ask, &self.mark).await.context("through the proxy")
    }

    /// Sends it through the proxy, which must not send it on.
    pub(crate) async fn unforwarded(&self, ask: &Ask) -> Result<Answer> {
        self.take();
        let answer = self.proxied(ask).await?;
        self.nothing_arrived().map(|()| answer)
    }

    /// All requests of this case that arrived since the last look.
    pub(crate) fn take(&self) -> Vec<Recorded> {
        self.shard.relay.take(&self.mark)
    }

    pub(crate) fn nothing_arrived(&self) -> Result<()> {
        let arrived = self.take();
        ensure!(arrived.is_empty(), "it arrived at the API server: {arrived:#?}");
        Ok(())
    }

    /// The one request of this case that arrived since the last look.
    pub(crate) fn arrived(&self) -> Result<Recorded> {
        let mut arrived = self.take();
        ensure!(arrived.len() == 1, "{} requests arrived at the API server: {arrived:#?}", arrived.len());
        arrived.pop().context("a request")
    }

    /// The same, compared with what was sent.
    pub(crate) fn arrived_as(&self, ask: &Ask, rewritten: Rewritten) -> Result<Recorded> {
        let arrived = self.arrived()?;
        self.check_arrival(ask, &arrived, rewritten).map(|()| arrived)
    }

    pub(crate) fn check_arrival(&self, ask: &Ask, arrived: &Recorded, rewritten: Rewritten) -> Result<()> {
        ensure!(arrived.method == ask.method, "{} arrived as {}", ask.method, arrived.method);
        if rewritten.selects {
            query::check_narrowed(&ask.target, &arrived.target, &self.shard.selector, rewritten.left_out)?;
        } else {
            ensure!(arrived.target == ask.target, "{} arrived as {}", ask.target, arrived.target);
        }
        // Who refuses a request may do so before all of its body is there.
        let refused = arrived.answer.as_ref().is_some_and(|answer| !answer.status.is_success());
        let whole = arrived.body == ask.body || refused && ask.body.starts_with(&arrived.body);
        ensure!(whole, "{}", difference("the body", &ask.body, &arrived.body));
        let mut sent = ask.sent(&self.mark)?;
        // That there is no body may be said, and need not be (RFC 9110, section 8.6): by HTTP/2 libraries say it.
        let said = arrived.headers.contains_key(header::CONTENT_LENGTH);
        if let Some(length) = ask.length().filter(|length| *length > 0 || said) {
            sent.insert(header::CONTENT_LENGTH, length.into());
        }
        // What the client itself sends, with the token of the proxy.
        sent.insert(header::AUTHORIZATION, format!("Bearer {}", self.shard.proxied.token()).parse()?);
        sent.insert(header::HOST, self.shard.proxied.address().to_string().parse()?);
        arrival(&sent, &arrived.headers, &self.shard.scripted, rewritten.headers)
    }
}

/// The same request; if it is a watch of a second, one that lasts so many times as long.
pub(crate) fn lasting(ask: &Ask, times: u32) -> Ask {
    Ask { target: ask.target.replace("timeoutSeconds=1", &format!("timeoutSeconds={times}")), ..ask.clone() }
}

/// Tries again where two answers of the API server differed because time passed between them: a Table says how old an
/// object is, and on a busy machine a watch of a second may end before all was shown. What the proxy did wrong is never
/// tried again. Each attempt is given how many times as long a watch is to last.
pub(crate) async fn steady<F: Future<Output = Result<Outcome>>>(mut attempt: impl FnMut(u32) -> F) -> Result<Outcome> {
    /// The chance that a second begins between two answers is small, but a second may begin twice.
    const TIMES: [u32; 2] = [1, 5];
    for times in TIMES {
        match attempt(times).await {
            Err(error) if error.is::<Moment>() => tracing::warn!(error = format!("{error:#}"), "compared once more"),
            compared => return compared,
        }
    }
    attempt(25).await
}
