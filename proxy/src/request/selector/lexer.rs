//! The words and signs of a label selector.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
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
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(SPACE);
    while let Some(first) = rest.chars().next().filter(|first| *first != NUL) {
        let (token, length) = match first {
            ',' => (Token::Comma, 1),
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '>' => (Token::Greater, 1),
            '<' => (Token::Less, 1),
            '=' if rest.starts_with("==") => (Token::Equals, 2),
            '=' => (Token::Equals, 1),
            '!' if rest.starts_with("!=") => (Token::NotEquals, 2),
            '!' => (Token::Not, 1),
            _ => {
                let ends = |c: char| c == NUL || SPACE.contains(&c) || SPECIAL.contains(&c);
                let end = rest.find(ends).unwrap_or(rest.len());
                (Token::Word(&rest[..end]), end)
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

impl fmt::Display for Token<'_> {
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
