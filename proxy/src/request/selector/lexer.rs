//! The words and signs of a label selector.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SelectorToken<'a> {
    /// A key, a value, or the operators `in` and `notin`, which only their place tells from values.
    Word(&'a str),
    Comma,
    Open,
    Close,
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
}

/// Splits a selector. Nothing can fail here: an odd word is refused where it is used.
///
/// Go's lexer reads a NUL wherever the text ends: one that follows a word or a sign directly is skipped, and any other
/// is the end of the selector.
pub(super) fn tokens(text: &str) -> Vec<SelectorToken<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(SPACE);
    while let Some(first) = rest.chars().next().filter(|first| *first != NUL) {
        let (token, length) = match first {
            ',' => (SelectorToken::Comma, 1),
            '(' => (SelectorToken::Open, 1),
            ')' => (SelectorToken::Close, 1),
            '>' => (SelectorToken::Greater, 1),
            '<' => (SelectorToken::Less, 1),
            '=' if rest.starts_with("==") => (SelectorToken::Equals, 2),
            '=' => (SelectorToken::Equals, 1),
            '!' if rest.starts_with("!=") => (SelectorToken::NotEquals, 2),
            '!' => (SelectorToken::Not, 1),
            _ => {
                let ends = |c: char| c == NUL || SPACE.contains(&c) || SPECIAL.contains(&c);
                let end = rest.find(ends).unwrap_or(rest.len());
                (SelectorToken::Word(&rest[..end]), end)
            }
        };
        tokens.push(token);
        rest = &rest[length..];
        rest = rest.strip_prefix(NUL).unwrap_or(rest).trim_start_matches(SPACE);
    }
    tokens
}

const NUL: char = '\0';
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
const SPECIAL: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];

impl fmt::Display for SelectorToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Word(word) => word,
            Self::Comma => ",",
            Self::Open => "(",
            Self::Close => ")",
            Self::Not => "!",
            Self::Equals => "=",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
        })
    }
}
