//! The query of a request, read as the API server reads it.
//!
//! Go's `URL.Query()` drops pairs that it can't decode, and the API server takes the first of several values. Other
//! servers decide differently, so the proxy writes a narrowed query again: without the pairs that count for nothing,
//! and with one value where there can be only one. Then no server on the way can read another selector than the proxy
//! did.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::path::{decode, is_whole};

/// Why a query is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadQuery {
    /// From some number of parameters on Go reads none at all.
    #[error("the query has {0} parameters, {MAX_PARAMETERS} at most can be read for sure")]
    TooMany(usize),
}

/// The most parameters. Of a query with more than 10,000 Go's `url.ParseQuery` reads none (`defaultMaxParams`), the
/// selector neither, and the API server ignores the error. Below that by far, for what the proxy adds and for limits that
/// are set lower.
const MAX_PARAMETERS: usize = 1_000;

/// A query as pairs, each in the form that it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<QueryPair>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct QueryPair {
    raw: String,
    key: String,
    value: String,
}

/// What must be encoded in a value: everything but the characters that RFC 3986 calls unreserved.
const VALUE: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

impl Query {
    /// Reads the part of a URL behind the question mark.
    ///
    /// # Errors
    /// When it has too many parameters, counted as Go does: empty ones too.
    pub fn parse(raw: &str) -> Result<Self, BadQuery> {
        let pairs = || raw.split('&');
        let count = pairs().count();
        if count > MAX_PARAMETERS {
            return Err(BadQuery::TooMany(count));
        }
        Ok(Self(pairs().filter(|pair| !pair.is_empty()).filter_map(QueryPair::parse).collect()))
    }

    /// The first value of a parameter: the one that the API server uses.
    pub fn first(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|pair| pair.key == key).map(|pair| pair.value.as_str())
    }

    /// A flag as the API server reads it: set unless absent, `0` or `false`
    /// (`Convert_Slice_string_To_bool` of k8s.io/apimachinery).
    pub fn flag(&self, key: &str) -> bool {
        self.first(key).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Drops all values of each of these parameters but the first.
    pub fn keep_first(&mut self, keys: &[&str]) {
        for key in keys {
            let mut seen = false;
            self.0.retain(|pair| pair.key != *key || !std::mem::replace(&mut seen, true));
        }
    }

    /// Drops all values of these parameters.
    pub fn remove(&mut self, keys: &[&str]) {
        self.0.retain(|pair| !keys.contains(&pair.key.as_str()));
    }

    /// Sets a parameter, at the end, in place of all its values.
    pub fn set(&mut self, key: &str, value: &str) {
        self.remove(&[key]);
        let raw = format!("{}={}", utf8_percent_encode(key, &VALUE), utf8_percent_encode(value, &VALUE));
        self.0.push(QueryPair { raw, key: key.to_owned(), value: value.to_owned() });
    }

    /// The query with `key` set to `value` and everything else as it came.
    pub fn with(&self, key: &str, value: &str) -> String {
        let mut query = self.clone();
        query.set(key, value);
        query.to_string()
    }
}

impl fmt::Display for Query {
    /// As it is written behind the question mark.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, QueryPair { raw, .. }) in self.0.iter().enumerate() {
            write!(f, "{}{raw}", if number == 0 { "" } else { "&" })?;
        }
        Ok(())
    }
}

impl QueryPair {
    /// `None` for what `URL.Query()` drops: a semicolon, or percent-encoding that is not whole.
    ///
    /// Bytes that are no UTF-8 become U+FFFD: no name or number that the proxy looks for has it.
    fn parse(raw: &str) -> Option<Self> {
        if raw.contains(';') || !is_whole(raw) {
            return None;
        }
        let (key, value) = raw.split_once('=').unwrap_or((raw, ""));
        let part = |text: &str| decode(&text.replace('+', " "));
        Some(Self { key: part(key), value: part(value), raw: raw.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_rest_of_a_query_stays_as_it_came() {
        let query = Query::parse("fieldSelector=a%3Db&labelSelector=x&limit=500&continue=a+b").unwrap();
        assert_eq!(
            query.with("labelSelector", "a=b,!c/d"),
            "fieldSelector=a%3Db&limit=500&continue=a+b&labelSelector=a%3Db%2C%21c%2Fd"
        );
        assert_eq!(query.first("continue"), Some("a b"));
    }

    #[test]
    fn of_several_values_the_first_counts_however_its_key_is_written() {
        let mut query =
            Query::parse("label%53elector=b&labelSelector=a&watch=0&dryRun=All&dryRun=All&watch=1").unwrap();
        assert_eq!((query.first("labelSelector"), query.flag("watch")), (Some("b"), false));
        query.keep_first(&["watch"]);
        assert_eq!(query.with("labelSelector", "c"), "watch=0&dryRun=All&dryRun=All&labelSelector=c");
    }

    #[test]
    fn what_go_drops_is_not_passed_on() {
        for dropped in
            ["labelSelector=%zz", "labelSelector=%f", "labelSelector=a;b", "a;labelSelector=b", "labelSelector%"]
        {
            let query = Query::parse(&format!("{dropped}&x=1")).unwrap();
            assert_eq!((query.first("labelSelector"), query.with("y", "")), (None, "x=1&y=".to_owned()), "{dropped}");
        }
        assert_eq!(Query::parse("labelSelector=%ff").unwrap().first("labelSelector"), Some("\u{fffd}"));
    }

    #[test]
    fn more_parameters_than_go_reads_are_refused() {
        let with = |empty: usize| Query::parse(&format!("{}labelSelector=a", "&".repeat(empty)));
        assert_eq!(with(MAX_PARAMETERS - 1).unwrap().first("labelSelector"), Some("a"));
        assert_eq!(with(MAX_PARAMETERS), Err(BadQuery::TooMany(MAX_PARAMETERS + 1)));
    }

    proptest! {
        #[test]
        fn what_is_set_is_what_is_read(key in "[a-zA-Z]{1,8}", value in "\\PC{0,40}", other in "[a-z=&%+;]{0,20}") {
            let query = Query::parse(&other).unwrap();
            let written = query.with(&key, &value);
            let read = Query::parse(&written).unwrap();
            prop_assert_eq!(read.0.iter().filter(|pair| pair.key == key).count(), 1);
            prop_assert_eq!(read.first(&key), Some(value.as_str()));
            for pair in query.0.iter().filter(|pair| pair.key != key) {
                prop_assert_eq!(read.first(&pair.key), query.first(&pair.key));
            }
        }
    }
}
