//! Label selectors, by the grammar of `labels.Parse` in k8s.io/apimachinery.
//!
//! What the API server would refuse is refused, and every key and value is checked as strictly as it does it. What is
//! joined with ours and sent on is the parsed selector, printed: of the client's text nothing can be left that
//! a server reads differently (Go's lexer, for one, takes a NUL for the end of the text).

use std::{collections::BTreeMap, fmt};

mod lexer;

use lexer::{SelectorToken, tokens};

/// A label selector: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Exists,
    DoesNotExist,
    Equals(String),
    NotEquals(String),
    In(Vec<String>),
    NotIn(Vec<String>),
    GreaterThan(i64),
    LessThan(i64),
}

/// Why a text is no label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseSelector {
    /// The text does not follow the grammar.
    #[error("found {found}, expected {expected}")]
    Unexpected {
        /// What stands there.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// A key that no label can have.
    #[error("'{0}' is not a label key")]
    Key(String),
    /// A value that no label can have.
    #[error("'{0}' is not a label value")]
    Value(String),
}

/// The most characters of a key's part before the slash (RFC 1123 subdomain).
const MAX_PREFIX: usize = 253;
/// The most characters of a label's name and value.
const MAX_NAME: usize = 63;

impl Selector {
    /// Parses a selector as it stands in a query, after percent-decoding.
    ///
    /// # Errors
    /// When the API server would refuse it.
    pub fn parse(text: &str) -> Result<Self, ParseSelector> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        let mut requirements = Vec::new();
        if parser.peek().is_none() {
            return Ok(Self::default());
        }
        loop {
            requirements.push(parser.requirement()?);
            match parser.next() {
                None => return Ok(Self(requirements)),
                Some(SelectorToken::Comma) => {}
                Some(other) => return Err(unexpected(Some(other), "',' or the end")),
            }
        }
    }

    /// Whether an object with these labels is selected, as `Requirement.Matches` of k8s.io/apimachinery decides it.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels.get(&requirement.key).map(String::as_str)))
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Requirement {
    fn matches(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|label| label.parse::<i64>().ok());
        match &self.condition {
            Condition::Exists => label.is_some(),
            Condition::DoesNotExist => label.is_none(),
            Condition::Equals(value) => label == Some(value),
            Condition::NotEquals(value) => label != Some(value),
            Condition::In(values) => label.is_some_and(|label| values.iter().any(|value| value == label)),
            Condition::NotIn(values) => label.is_none_or(|label| values.iter().all(|value| value != label)),
            Condition::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Condition::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

struct Parser<'a> {
    tokens: Vec<SelectorToken<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<SelectorToken<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<SelectorToken<'a>> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, ParseSelector> {
        let negated = self.peek() == Some(SelectorToken::Not);
        if negated {
            self.at += 1;
        }
        let key = match self.next() {
            Some(SelectorToken::Word(key)) => label_key(key)?,
            other => return Err(unexpected(other, "a label key")),
        };
        let condition = if negated { Condition::DoesNotExist } else { self.condition()? };
        Ok(Requirement { key, condition })
    }

    fn condition(&mut self) -> Result<Condition, ParseSelector> {
        match self.peek() {
            None | Some(SelectorToken::Comma) => return Ok(Condition::Exists),
            Some(_) => {}
        }
        match self.next() {
            Some(SelectorToken::Equals) => Ok(Condition::Equals(self.exact_value()?)),
            Some(SelectorToken::NotEquals) => Ok(Condition::NotEquals(self.exact_value()?)),
            Some(SelectorToken::Greater) => Ok(Condition::GreaterThan(self.number()?)),
            Some(SelectorToken::Less) => Ok(Condition::LessThan(self.number()?)),
            Some(SelectorToken::Word("in")) => Ok(Condition::In(self.values()?)),
            Some(SelectorToken::Word("notin")) => Ok(Condition::NotIn(self.values()?)),
            other => Err(unexpected(other, "one of =, ==, !=, in, notin, >, <")),
        }
    }

    /// A value; `key=` means the empty one.
    fn exact_value(&mut self) -> Result<String, ParseSelector> {
        match self.peek() {
            None | Some(SelectorToken::Comma) => Ok(String::new()),
            Some(SelectorToken::Word(value)) => {
                self.at += 1;
                label_value(value)
            }
            other => Err(unexpected(other, "a label value")),
        }
    }

    fn number(&mut self) -> Result<i64, ParseSelector> {
        let value = self.exact_value()?;
        value.parse().map_err(|_| ParseSelector::Value(value))
    }

    /// `(a,b)`; an empty value between commas counts.
    fn values(&mut self) -> Result<Vec<String>, ParseSelector> {
        if self.next() != Some(SelectorToken::Open) {
            return Err(unexpected(self.tokens.get(self.at - 1).copied(), "'('"));
        }
        let mut values = Vec::new();
        loop {
            values.push(match self.peek() {
                Some(SelectorToken::Word(value)) => {
                    self.at += 1;
                    label_value(value)?
                }
                _ => String::new(),
            });
            match self.next() {
                Some(SelectorToken::Comma) => {}
                Some(SelectorToken::Close) => return Ok(values),
                other => return Err(unexpected(other, "',' or ')'")),
            }
        }
    }
}

fn unexpected(found: Option<SelectorToken<'_>>, expected: &'static str) -> ParseSelector {
    let found = found.map_or_else(|| "the end".to_owned(), |token| format!("'{token}'"));
    ParseSelector::Unexpected { found, expected }
}

fn label_key(key: &str) -> Result<String, ParseSelector> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_ok = prefix.is_none_or(|prefix| prefix.len() <= MAX_PREFIX && prefix.split('.').all(is_dns_label));
    if prefix_ok && !name.is_empty() && is_name(name) {
        Ok(key.to_owned())
    } else {
        Err(ParseSelector::Key(key.to_owned()))
    }
}

fn label_value(value: &str) -> Result<String, ParseSelector> {
    if is_name(value) { Ok(value.to_owned()) } else { Err(ParseSelector::Value(value.to_owned())) }
}

/// `(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?`, at most 63 characters.
fn is_name(name: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let edge = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    name.len() <= MAX_NAME && name.bytes().all(inside) && edge(name.bytes().next()) && edge(name.bytes().next_back())
}

fn is_dns_label(label: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inside)
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.condition {
            Condition::Exists => write!(f, "{key}"),
            Condition::DoesNotExist => write!(f, "!{key}"),
            Condition::Equals(value) => write!(f, "{key}={value}"),
            Condition::NotEquals(value) => write!(f, "{key}!={value}"),
            Condition::In(values) => write!(f, "{key} in ({})", values.join(",")),
            Condition::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            Condition::GreaterThan(number) => write!(f, "{key}>{number}"),
            Condition::LessThan(number) => write!(f, "{key}<{number}"),
        }
    }
}

#[cfg(test)]
mod tests;
