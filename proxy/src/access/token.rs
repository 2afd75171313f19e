//! The token that the controller shows to the proxy.

use std::fmt;

use subtle::ConstantTimeEq;

use super::random;

/// A secret of 256 random bits, in hex.
#[derive(Clone)]
pub struct Token(String);

const BYTES: usize = 32;

impl Token {
    pub(super) fn generate() -> Self {
        Self(random::generate::<BYTES>())
    }

    /// A token as it was written; anything else is no token.
    pub(super) fn parse(text: &str) -> Option<Self> {
        random::is_ours::<BYTES>(text).then(|| Self(text.to_owned()))
    }

    pub(super) fn secret(&self) -> &str {
        &self.0
    }

    /// Compares in a time that does not depend on where the difference is.
    pub fn matches(&self, offered: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(offered).into()
    }

    /// A token for tests of other rooms.
    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_matches() {
        let token = Token::of("abcd");
        for wrong in ["", "abc", "abce", "bbcd", "abcde"] {
            assert!(!token.matches(wrong.as_bytes()), "{wrong}");
        }
        assert!(token.matches(b"abcd"));
        assert!(!format!("{token:?}").contains("abcd"));
    }
}
