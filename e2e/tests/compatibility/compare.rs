//! When two answers are the same, and when a request arrived as it was sent.

use anyhow::{Context as _, Result, bail, ensure};
use http::{HeaderMap, HeaderName, header};
use ringside_e2e::{compatibility::Outcome, relay::Recorded};
use serde_json::Value;

use super::{
    changes::{self, REQUEST, RESPONSE},
    client::{Answer, Ask, Http},
    ground::{Ground, Shard},
    objects::OWNERS,
    query,
};

/// What the moment decides, and not who answers.
const OF_THE_MOMENT: [HeaderName; 1] = [header::DATE];

/// So much of an answer shows what it is.
const SHOWN: usize = 500;

/// What is compared of two bodies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bodies {
    /// Every byte.
    Exact,
    /// JSON, but for the values at these paths, which are others each time.
    But(&'static [&'static str]),
}

/// What the API server makes up for each object, and each write.
pub(crate) const OF_A_WRITE: Bodies = Bodies::But(&[
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.creationTimestamp",
    "metadata.managedFields[].time",
]);

/// What becomes of a request on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rewritten<'a> {
    /// What is put in front of the labelSelector.
    pub(crate) selector: Option<&'a str>,
    /// Headers that the list of [`REQUEST`] lets change.
    pub(crate) headers: &'a [&'a str],
}

/// The API server itself answered the same request otherwise than a moment ago. Of what went through the proxy is known
/// by then that it arrived as it was sent, and came back as the API server answered it.
#[derive(Debug, thiserror::Error)]
#[error("the API server answered twice, and not the same: {0:#}")]
pub(crate) struct Moment(pub(crate) anyhow::Error);

/// How much of an answer was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it.
    Whole,
    /// So much as the case wanted.
    Begin,
}

/// One request, sent past the proxy and through it.
pub(crate) struct Probe<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) http: Http,
    pub(crate) mark: &'a str,
}

impl<'a> Probe<'a> {
    /// By the usual way.
    pub(crate) fn new(ground: &'a Ground, mark: &'a str) -> Self {
        Self { shard: &ground.main, http: Http::Two, mark }
    }

    /// By another version of HTTP to the proxy, or from there to the API server.
    pub(crate) fn by(ground: &'a Ground, mark: &'a str, http: Http, upstream: Http) -> Self {
        Self { shard: ground.by(upstream), http, mark }
    }

    /// The request must arrive as it is and the answer come as it is. It may be sent more than once: no request that
    /// leaves something behind.
    pub(crate) async fn same(&self, ask: &Ask) -> Result<Outcome> {
        self.same_with(ask, Bodies::Exact).await
    }

    pub(crate) async fn same_with(&self, ask: &Ask, bodies: Bodies) -> Result<Outcome> {
        steady(async || {
            let (direct, (proxied, _)) = tokio::try_join!(self.past(ask), self.through(ask, Rewritten::default()))?;
            Ok(answers(&direct, &proxied, bodies).map_err(Moment)?)
        })
        .await
    }

    /// The request must arrive with the shard's selector, and the answer be that of the same request with the selector
    /// written by hand: the intersection of what was asked for and what is the shard's.
    pub(crate) async fn narrowed(&self, ask: &Ask) -> Result<Outcome> {
        steady(async || self.shows_its_own(&self.narrowed_with(ask, Bodies::Exact, &[]).await?)).await
    }

    /// The same for a watch that ends by itself. (Not before all was shown, unless the machine is busy elsewhere.)
    pub(crate) async fn narrowed_watch(&self, ask: &Ask) -> Result<Outcome> {
        steady(async || self.shows_its_own(&self.narrowed_with(ask, Bodies::Exact, &["accept-encoding"]).await?)).await
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
    pub(crate) fn shows_its_own(&self, answer: &Answer) -> Result<Outcome> {
        for name in OWNERS {
            let (there, own) = (contains(&answer.body, name.as_bytes()), name == self.shard.owns);
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
        let token = format!("Bearer {}", self.shard.direct.token());
        let is = |name: &str, expected: &str| {
            let value = arrived.headers.get(name).map(http::HeaderValue::as_bytes);
            ensure!(value == Some(expected.as_bytes()), "{name} arrived as {value:?}");
            Ok(())
        };
        is("authorization", &token)?;
        is("host", &self.shard.relay.address().to_string())?;
        if arrived.headers.contains_key(header::CONTENT_LENGTH) {
            is("content-length", &ask.body.len().to_string())?;
        }
        let sent = ask.sent(self.mark)?;
        let changes = |name: &str| {
            let listed = REQUEST.iter().find(|change| change.is_of(name));
            listed.is_some_and(|change| change.always || rewritten.headers.contains(&name))
        };
        let named = changes::named(&sent);
        let upgrades = sent.contains_key(header::UPGRADE);
        let of_connection = |name: &HeaderName| named.contains(name) && name != header::UPGRADE;
        let stayed = arrived.headers.keys().find(|name| changes::is_left_out(name.as_str()) || of_connection(name));
        ensure!(stayed.is_none(), "{stayed:?} arrived");
        let connection = arrived.headers.get(header::CONNECTION);
        ensure!(connection.is_some() == upgrades && connection.is_none_or(|it| it == "Upgrade"), "{connection:?}");
        for name in rewritten.headers {
            let value = arrived.headers.get(*name);
            let expected = match *name {
                "accept-encoding" => value.is_some_and(|it| it == "identity"),
                "sec-websocket-extensions" => value.is_none(),
                // The case looks at it.
                "accept" | "sec-websocket-protocol" => true,
                _ => bail!("the list has no {name}"),
            };
            ensure!(expected, "{name} arrived as {value:?}");
        }
        // What the client itself sends, with the token of the proxy.
        let mut before = sent.clone();
        before.insert(header::AUTHORIZATION, format!("Bearer {}", self.shard.proxied.token()).parse()?);
        before.insert(header::HOST, self.shard.proxied.address().to_string().parse()?);
        changes::note(changes::SENT, &REQUEST, &before, &arrived.headers);
        // Framing: compared above with what was sent.
        let framing = |name: &str| name == "content-length";
        headers("the request's", &sent, &arrived.headers, |name| {
            changes(name) || framing(name) || named.iter().any(|it| it == name && it != header::UPGRADE)
        })
    }
}

/// Whether the client was given what the API server answered: every byte, and every header but for what the list of
/// [`RESPONSE`] lets change.
pub(crate) fn passed_on(arrived: &Recorded, read: &Answer, extent: Extent) -> Result<()> {
    let answered = arrived.answer.as_ref().context("the API server did not answer")?;
    ensure!(
        answered.status == read.status,
        "the API server answered {}, what came is {}",
        answered.status,
        read.status
    );
    // Of a long answer only the begin is kept: then the lengths tell.
    let known = answered.body.len().min(read.body.len());
    let length = match extent {
        Extent::Whole => answered.length == read.body.len(),
        Extent::Begin => answered.length >= read.body.len(),
    };
    let same = length && answered.body[..known] == read.body[..known];
    ensure!(same, "{}", difference("the body on its way through the proxy", &answered.body, &read.body));
    // What each server adds where it is not there yet.
    let added = |name: &str| ["date", "content-length"].contains(&name) && !answered.headers.contains_key(name);
    let named = changes::named(&answered.headers);
    let stayed = named.iter().find(|name| read.headers.contains_key(*name));
    ensure!(stayed.is_none(), "{stayed:?} came");
    changes::note(changes::ANSWERED, &RESPONSE, &answered.headers, &read.headers);
    headers("the API server's", &answered.headers, &read.headers, |name| {
        in_response(name) || added(name) || named.iter().any(|it| it == name)
    })?;
    if extent == Extent::Whole {
        let trailers = (&answered.trailers, &read.trailers);
        ensure!(trailers.0 == trailers.1, "trailers: {trailers:?}");
    }
    Ok(())
}

/// Whether the list says that the proxy changes this header of an answer.
fn in_response(name: &str) -> bool {
    RESPONSE.iter().any(|change| change.is_of(name))
}

/// Whether two answers are the same but for what the list of [`RESPONSE`] lets change.
pub(crate) fn answers(direct: &Answer, proxied: &Answer, bodies: Bodies) -> Result<Outcome> {
    let told =
        |answer: &Answer| format!("{}: {}", answer.status, answer.text().chars().take(SHOWN).collect::<String>());
    ensure!(direct.status == proxied.status, "without the proxy {}\nwith it {}", told(direct), told(proxied));
    match bodies {
        Bodies::Exact => {
            ensure!(direct.body == proxied.body, "{}", difference("the body", &direct.body, &proxied.body));
        }
        Bodies::But(paths) => {
            let (one, other) = (blanked(&direct.body, paths)?, blanked(&proxied.body, paths)?);
            ensure!(
                one == other,
                "{}",
                difference("the body", one.to_string().as_bytes(), other.to_string().as_bytes())
            );
        }
    }
    for name in &OF_THE_MOMENT {
        ensure!(direct.headers.contains_key(name) == proxied.headers.contains_key(name), "{name} with one answer only");
    }
    let loose = |name: &str| matches!(bodies, Bodies::But(_)) && name == "content-length";
    let moment = |name: &str| OF_THE_MOMENT.iter().any(|it| it.as_str() == name);
    headers("the answer's", &direct.headers, &proxied.headers, |name| {
        in_response(name) || moment(name) || loose(name)
    })?;
    ensure!(direct.trailers == proxied.trailers, "trailers: {:?}, {:?}", direct.trailers, proxied.trailers);
    Ok(Outcome::Same)
}

/// Whether two sets of headers are the same, the order of one name's lines included, but for the names that may differ.
/// (The order of different names means nothing: RFC 9110, section 5.3.)
fn headers(whose: &str, one: &HeaderMap, other: &HeaderMap, may_differ: impl Fn(&str) -> bool) -> Result<()> {
    for name in one.keys().chain(other.keys()).filter(|name| !may_differ(name.as_str())) {
        let lines = |headers: &HeaderMap| -> Vec<_> { headers.get_all(name).iter().cloned().collect() };
        let (before, after) = (lines(one), lines(other));
        ensure!(before == after, "{whose} {name}: {before:?} became {after:?}");
    }
    Ok(())
}

/// The JSON with null for the values at these paths.
fn blanked(json: &[u8], paths: &[&str]) -> Result<Value> {
    fn blank(value: &mut Value, path: &str, paths: &[&str]) {
        if paths.contains(&path) {
            *value = Value::Null;
        }
        match value {
            Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                blank(value, &path, paths);
            }),
            Value::Array(items) => items.iter_mut().for_each(|item| blank(item, &format!("{path}[]"), paths)),
            _ => {}
        }
    }
    let read = serde_json::from_slice(json);
    let mut value = read.with_context(|| format!("no JSON: {}", String::from_utf8_lossy(json)))?;
    blank(&mut value, "", paths);
    Ok(value)
}

/// Where two texts begin to differ.
pub(crate) fn difference(what: &str, one: &[u8], other: &[u8]) -> String {
    let at = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let part = |bytes: &[u8]| {
        let (from, to) = (at.saturating_sub(80).min(bytes.len()), (at + 160).min(bytes.len()));
        String::from_utf8_lossy(&bytes[from..to]).into_owned()
    };
    let (length, other_length) = (one.len(), other.len());
    format!("{what} differs at byte {at} of {length} and {other_length}:\n  {}\n  {}", part(one), part(other))
}

pub(crate) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
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
