//! When two answers are the same, and when a request arrived as it was sent.

use anyhow::{Context as _, Result, bail, ensure};
use http::{HeaderMap, HeaderName, header};
use serde_json::Value;

use super::{
    Outcome,
    changes::{self, REFUSAL, REQUEST, RESPONSE},
    client::{Answer, Endpoint},
};
use crate::relay::Recorded;

/// What the moment decides, and not who answers.
const OF_THE_MOMENT: [HeaderName; 1] = [header::DATE];

/// So much of an answer shows what it is.
const SHOWN: usize = 500;

/// What is compared of two bodies.
#[derive(Clone, Copy, Debug)]
pub enum Bodies {
    /// Every byte.
    Exact,
    /// JSON, but for the values at these paths, which are others each time.
    But(&'static [&'static str]),
    /// Every byte but the digits of one number, which are others each time: in forms in which nothing has a path.
    ButANumber,
}

/// What the API server makes up for each object, and each write.
pub const OF_A_WRITE: Bodies = Bodies::But(&[
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.creationTimestamp",
    "metadata.managedFields[].time",
]);

/// How much of an answer was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// So much as the case wanted.
    Begin,
}

/// Whether the headers of a request arrived as they were sent, but for what the list of [`REQUEST`] lets change always, and
/// for those of the list that are `rewritten`. What is sent has the length that the client says: [`super::client::Ask::length`]. `server` is who was asked, with the token of who asks there.
pub fn arrival(sent: &HeaderMap, arrived: &HeaderMap, server: &Endpoint, rewritten: &[&str]) -> Result<()> {
    let is = |name: &str, expected: &str| {
        let value = arrived.get(name).map(http::HeaderValue::as_bytes);
        ensure!(value == Some(expected.as_bytes()), "{name} arrived as {value:?}");
        Ok(())
    };
    is("authorization", &format!("Bearer {}", server.token()))?;
    is("host", &server.address().to_string())?;
    let changes = |name: &str| {
        let listed = REQUEST.iter().find(|change| change.is_of(name));
        listed.is_some_and(|change| change.always || rewritten.contains(&name))
    };
    let named = changes::named(sent);
    let upgrades = sent.contains_key(header::UPGRADE) && !rewritten.contains(&"upgrade");
    let of_connection = |name: &HeaderName| named.contains(name) && name != header::UPGRADE && name != header::TE;
    let stayed = arrived.keys().find(|name| changes::is_left_out(name.as_str()) || of_connection(name));
    ensure!(stayed.is_none(), "{stayed:?} arrived");
    let connection = arrived.get(header::CONNECTION);
    ensure!(connection.is_some() == upgrades && connection.is_none_or(|it| it == "Upgrade"), "{connection:?}");
    let takes_trailers = sent.get_all(header::TE).iter().any(|line| contains(line.as_bytes(), b"trailers"));
    let te = arrived.get(header::TE);
    ensure!(te.is_some() == takes_trailers && te.is_none_or(|it| it == "trailers"), "TE arrived as {te:?}");
    for name in rewritten {
        let value = arrived.get(*name);
        let expected = match *name {
            "accept-encoding" => value.is_some_and(|it| it == "identity"),
            "sec-websocket-extensions" | "upgrade" => value.is_none(),
            "sec-websocket-protocol" => value.is_some_and(|it| !contains(it.as_bytes(), b"bearer")),
            // The case looks at it.
            "accept" => true,
            _ => bail!("the list has no {name}"),
        };
        ensure!(expected, "{name} arrived as {value:?}");
    }
    changes::note(changes::SENT, &REQUEST, sent, arrived);
    headers("the request's", sent, arrived, |name| {
        changes(name) || named.iter().any(|it| it == name && it != header::UPGRADE)
    })
}

/// Whether the client was given what the API server answered: every byte, and every header but for what the list of
/// [`RESPONSE`] lets change.
pub fn passed_on(arrived: &Recorded, read: &Answer, extent: Extent) -> Result<()> {
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
    let named = changes::named(&answered.headers);
    let stayed = named.iter().find(|name| read.headers.contains_key(*name));
    ensure!(stayed.is_none(), "{stayed:?} came");
    changes::note(changes::ANSWERED, &RESPONSE, &answered.headers, &read.headers);
    headers("the API server's", &answered.headers, &read.headers, |name| {
        in_response(name) || named.iter().any(|it| it == name)
    })?;
    if extent == Extent::Whole {
        let trailers = (&answered.trailers, &read.trailers);
        ensure!(trailers.0 == trailers.1, "trailers: {trailers:?}");
    }
    Ok(())
}

/// Whether the head of an answer of the proxy's own is as the API server's, but for what the list of [`REFUSAL`] lets
/// change.
pub fn own_answer(direct: &Answer, proxied: &Answer) -> Result<()> {
    changes::note(changes::OWN, &REFUSAL, &direct.headers, &proxied.headers);
    let own = |name: &str| REFUSAL.iter().any(|change| change.is_of(name));
    headers("the answer's", &direct.headers, &proxied.headers, |name| {
        own(name) || in_response(name) || of_the_moment(name)
    })
}

/// Whether the list says that the proxy changes this header of an answer.
fn in_response(name: &str) -> bool {
    RESPONSE.iter().any(|change| change.is_of(name))
}

/// Whether two answers are the same but for what the list of [`RESPONSE`] lets change.
pub fn answers(direct: &Answer, proxied: &Answer, bodies: Bodies) -> Result<Outcome> {
    let told =
        |answer: &Answer| format!("{}: {}", answer.status, answer.text().chars().take(SHOWN).collect::<String>());
    ensure!(direct.status == proxied.status, "without the proxy {}\nwith it {}", told(direct), told(proxied));
    match bodies {
        Bodies::Exact => {
            ensure!(direct.body == proxied.body, "{}", difference("the body", &direct.body, &proxied.body));
        }
        Bodies::ButANumber => {
            let same = differ_in_a_number(&direct.body, &proxied.body);
            ensure!(same, "{}", difference("the body", &direct.body, &proxied.body));
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
    headers("the answer's", &direct.headers, &proxied.headers, |name| {
        in_response(name) || of_the_moment(name) || loose(name)
    })?;
    ensure!(direct.trailers == proxied.trailers, "trailers: {:?}, {:?}", direct.trailers, proxied.trailers);
    Ok(Outcome::Same)
}

fn of_the_moment(name: &str) -> bool {
    OF_THE_MOMENT.iter().any(|it| it.as_str() == name)
}

/// Whether there is no difference but in the digits of one number.
fn differ_in_a_number(one: &[u8], other: &[u8]) -> bool {
    let differ: Vec<_> = (0..one.len().min(other.len())).filter(|at| one[*at] != other[*at]).collect();
    let (Some(first), Some(last)) = (differ.first(), differ.last()) else { return one == other };
    let digits = |bytes: &[u8]| bytes[*first..=*last].iter().all(u8::is_ascii_digit);
    one.len() == other.len() && digits(one) && digits(other)
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
pub fn difference(what: &str, one: &[u8], other: &[u8]) -> String {
    let at = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let part = |bytes: &[u8]| {
        let (from, to) = (at.saturating_sub(80).min(bytes.len()), (at + 160).min(bytes.len()));
        String::from_utf8_lossy(&bytes[from..to]).into_owned()
    };
    let (length, other_length) = (one.len(), other.len());
    format!("{what} differs at byte {at} of {length} and {other_length}:\n  {}\n  {}", part(one), part(other))
}

/// Whether the part is somewhere in the bytes.
pub fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
