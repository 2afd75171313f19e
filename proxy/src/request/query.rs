//! The query of a request, read so strictly that the API server can't read it otherwise.
//!
//! Go's `URL.Query()` drops pairs that it can't decode and keeps the first of several values; a proxy that
//! decided differently would narrow one selector and let another one through. So both are refused here.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::path::decode;

/// Why a query is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadQuery {
    /// A pair that can't be decoded.
    #[error("the query parameter '{0}' is not valid percent-encoded UTF-8")]
    Encoding(String),
    /// Go refuses `;` and other servers take it for `&`.
    #[error("the query parameter '{0}' contains ';', which must be encoded as %3B")]
    Semicolon(String),
    /// More than one value for a parameter that has one.
    #[error("the query parameter '{0}' is given more than once")]
    Repeated(&'static str),
}

/// A query as pairs, each in the form that it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<Pair>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
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
    /// When a pair can't be decoded without doubt.
    pub fn parse(raw: &str) -> Result<Self, BadQuery> {
        raw.split('&').filter(|pair| !pair.is_empty()).map(Pair::parse).collect::<Result<_, _>>().map(Self)
    }

    /// The first value of a parameter: the one that the API server uses.
    pub fn first(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|pair| pair.key == key).map(|pair| pair.value.as_str())
    }

    /// The only value of a parameter.
    ///
    /// # Errors
    /// When there are several.
    pub fn only(&self, key: &'static str) -> Result<Option<&str>, BadQuery> {
        let several = self.0.iter().filter(|pair| pair.key == key).count() > 1;
        if several { Err(BadQuery::Repeated(key)) } else { Ok(self.first(key)) }
    }

    /// A flag as the API server reads it: set unless absent, `0` or `false`
    /// (`Convert_Slice_string_To_bool` of k8s.io/apimachinery).
    pub fn flag(&self, key: &str) -> bool {
        self.first(key).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// The query with `key` set to `value` and everything else as it came.
    pub fn with(&self, key: &str, value: &str) -> String {
        let mut query = String::new();
        for pair in self.0.iter().filter(|pair| pair.key != key) {
            query.push_str(&pair.raw);
            query.push('&');
        }
        // Writing to a String can't fail.
        let _ = write!(query, "{key}={}", utf8_percent_encode(value, &VALUE));
        query
    }
}

impl Pair {
    fn parse(raw: &str) -> Result<Self, BadQuery> {
        if raw.contains(';') {
            return Err(BadQuery::Semicolon(raw.to_owned()));
        }
        let (key, value) = raw.split_once('=').unwrap_or((raw, ""));
        let part = |text: &str| decode(&text.replace('+', " ")).ok_or_else(|| BadQuery::Encoding(raw.to_owned()));
        Ok(Self { key: part(key)?, value: part(value)?, raw: raw.to_owned() })
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
    fn a_second_value_is_noticed_however_its_key_is_written() {
        let query = Query::parse("labelSelector=a&label%53elector=b").unwrap();
        assert_eq!(query.only("labelSelector"), Err(BadQuery::Repeated("labelSelector")));
        assert_eq!(query.with("labelSelector", "c"), "labelSelector=c");
    }

    proptest! {
        #[test]
        fn what_is_set_is_what_is_read(key in "[a-zA-Z]{1,8}", value in "\\PC{0,40}", other in "[a-z=&%+;]{0,20}") {
            if let Ok(query) = Query::parse(&other) {
                let written = query.with(&key, &value);
                let read = Query::parse(&written).unwrap();
                prop_assert_eq!(read.only("x").is_ok(), query.only("x").is_ok() || key == "x");
                prop_assert_eq!(read.first(&key), Some(value.as_str()));
            }
        }
    }
}
