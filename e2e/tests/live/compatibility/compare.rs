//! A request by two ways: past the proxy and through it.

use anyhow::{Context as _, Result, ensure};
use http::{StatusCode, header};
pub(crate) use ringside_e2e::compatibility::compare::{
    Bodies, Extent, OF_A_WRITE, answers, arrival, contains, difference, own_answer, passed_on,
};
use ringside_e2e::{compatibility::Outcome, relay::Recorded};

use super::{
    client::{Answer, Ask, Http},
    fixture::Fixture,
    objects::OWNERS,
    query,
    shard::Shard,
};

/// What becomes of a request on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rewritten<'a> {
    /// What is put in front of the labelSelector.
    pub(crate) selector: Option<&'a str>,
    /// Headers that the list of `changes.rs` lets change.
    pub(crate) headers: &'a [&'a str],
}

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
pub(crate) struct Probe<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) http: Http,
    pub(crate) mark: &'a str,
}

impl<'a> Probe<'a> {
    /// By the usual way.
    pub(crate) fn new(fixture: &'a Fixture, mark: &'a str) -> Self {
        Self { shard: &fixture.main, http: Http::Two, mark }
    }

    /// By another version of HTTP to the proxy, or from there to the API server.
    pub(crate) fn by(fixture: &'a Fixture, mark: &'a str, http: Http, upstream: Http) -> Self {
        Self { shard: fixture.by(upstream), http, mark }
    }

    /// The request must arrive as it is and the answer come as it is, which is one of what was asked for. It may be sent
    /// more than once: no request that leaves something behind.
    pub(crate) async fn same(&self, ask: &Ask) -> Result<Outcome> {
        self.same_with(ask, Bodies::Exact).await
    }

    pub(crate) async fn same_with(&self, ask: &Ask, bodies: Bodies) -> Result<Outcome> {
        self.compared(ask, bodies, Expected::Done).await
    }

    /// The same of what the API server answers with this status: where it refuses, mostly.
    pub(crate) async fn same_as(&self, ask: &Ask, status: StatusCode) -> Result<Outcome> {
        self.compared(ask, Bodies::Exact, Expected::Status(status)).await
    }

    async fn compared(&self, ask: &Ask, bodies: Bodies, expected: Expected) -> Result<Outcome> {
        steady(async || {
            let (direct, (proxied, _)) = tokio::try_join!(self.past(ask), self.through(ask, Rewritten::default()))?;
            expected.check(&direct)?;
            Ok(answers(&direct, &proxied, bodies).map_err(Moment)?)
        })
        .await
    }

    /// The request must arrive with the shard's selector, and the answer be that of the same request with the selector
    /// written by hand: the intersection of what was asked for and what is the shard's.
    pub(crate) async fn narrowed(&self, ask: &Ask) -> Result<Outcome> {
        steady(async || self.shows_its_own(&self.narrowed_with(ask, Bodies::Exact, &[]).await?.body)).await
    }

    /// The same for a watch that ends by itself. (Not before all was shown, unless the machine is busy elsewhere.)
    pub(crate) async fn narrowed_watch(&self, ask: &Ask) -> Result<Outcome> {
        steady(async || self.shows_its_own(&self.narrowed_with(ask, Bodies::Exact, &["accept-encoding"]).await?.body))
            .await
    }

    /// The same without a look at the names in the answer.
    pub(crate) async fn narrowed_with(&self, ask: &Ask, bodies: Bodies, headers: &'a [&'a str]) -> Result<Answer> {
        let by_hand = Ask { target: query::narrowed(&ask.target, &self.shard.selector), ..ask.clone() };
        let rewritten = self.narrowing(headers);
        // At the same time: a Table says how old an object is.
        let (direct, (proxied, _)) = tokio::try_join!(self.past(&by_hand), self.through(ask, rewritten))?;
        answers(&direct, &proxied, bodies).map_err(Moment)?;
        ensure!(proxied.status.is_success(), "{}: {}", proxied.status, proxied.text());
        Ok(proxied)
    }

    /// What a selector written by hand can't show: that it selects at all.
    pub(crate) fn shows_its_own(&self, body: &[u8]) -> Result<Outcome> {
        for name in OWNERS {
            let (there, own) = (contains(body, name.as_bytes()), name == self.shard.owns);
            ensure!(there == own, "objects named {name}: {}", if there { "shown" } else { "not shown" });
        }
        Ok(Outcome::Narrowed)
    }

    /// What becomes of a request that is narrowed.
    pub(crate) fn narrowing(&self, headers: &'a [&'a str]) -> Rewritten<'a> {
        Rewritten { selector: Some(&self.shard.selector), headers }
    }

    /// Sends it past the proxy.
    pub(crate) async fn past(&self, ask: &Ask) -> Result<Answer> {
        self.shard.direct.exchange(self.http, ask, self.mark).await.context("without the proxy")
    }

    /// What the client speaks with the relay, without the proxy: its own version, where the relay offers it.
    pub(crate) fn of_relay(&self) -> Http {
        if self.shard.upstream == Http::One { Http::One } else { self.http }
    }

    /// Asks for an answer by script, past the proxy and through it. Both must be the same, and arrive once.
    pub(crate) async fn scripted(&self, ask: &Ask, rewritten: Rewritten<'_>) -> Result<Outcome> {
        let direct =
            self.shard.scripted.exchange(self.of_relay(), ask, self.mark).await.context("without the proxy")?;
        let (proxied, _) = self.through(ask, rewritten).await?;
        answers(&direct, &proxied, Bodies::Exact)
    }

    /// Sends it through the proxy, and compares what arrives with what was sent, and what comes back with what was
    /// answered.
    pub(crate) async fn through(&self, ask: &Ask, rewritten: Rewritten<'_>) -> Result<(Answer, Recorded)> {
        self.shard.relay.take(self.mark);
        let answer = self.shard.proxied.exchange(self.http, ask, self.mark).await.context("through the proxy")?;
        let arrived = self.arrived()?;
        self.check_arrival(ask, &arrived, rewritten)?;
        passed_on(&arrived, &answer, Extent::Whole)?;
        Ok((answer, arrived))
    }

    /// Sends it through the proxy; what arrived is not looked at.
    pub(crate) async fn exchanged(&self, ask: &Ask) -> Result<(Answer, Vec<Recorded>)> {
        let answer = self.shard.proxied.exchange(self.http, ask, self.mark).await.context("through the proxy")?;
        Ok((answer, self.shard.relay.take(self.mark)))
    }

    /// The one request of this case that arrived since the last look.
    pub(crate) fn arrived(&self) -> Result<Recorded> {
        let mut arrived = self.shard.relay.take(self.mark);
        ensure!(arrived.len() == 1, "{} requests arrived at the API server: {arrived:#?}", arrived.len());
        arrived.pop().context("a request")
    }

    pub(crate) fn check_arrival(&self, ask: &Ask, arrived: &Recorded, rewritten: Rewritten<'_>) -> Result<()> {
        ensure!(arrived.method == ask.method, "{} arrived as {}", ask.method, arrived.method);
        match rewritten.selector {
            Some(selector) => query::check_narrowed(&ask.target, &arrived.target, selector)?,
            None => ensure!(arrived.target == ask.target, "{} arrived as {}", ask.target, arrived.target),
        }
        // Who refuses a request may do so before all of its body is there.
        let refused = arrived.answer.as_ref().is_some_and(|answer| !answer.status.is_success());
        let whole = arrived.body == ask.body || refused && ask.body.starts_with(&arrived.body);
        ensure!(whole, "{}", difference("the body", &ask.body, &arrived.body));
        let mut sent = ask.sent(self.mark)?;
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

/// Tries again where two answers of the API server differed because time passed between them: a Table says how old an
/// object is, and a watch of a second may end early on a busy machine. What the proxy did wrong is never tried again.
pub(crate) async fn steady<F: Future<Output = Result<Outcome>>>(mut attempt: impl FnMut() -> F) -> Result<Outcome> {
    /// The chance that a second begins between two answers is small, but a second may begin twice.
    const ATTEMPTS: usize = 3;
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Err(error) if error.is::<Moment>() => tracing::warn!(error = format!("{error:#}"), "compared once more"),
            compared => return compared,
        }
    }
    attempt().await
}
