//! The token that the controller shows to the proxy.

use std::{fmt, hint::black_box};

/// A secret of 256 random bits, in hex.
#[derive(Clone)]
pub struct Token(String);

const BYTES: usize = 32;

impl Token {
    pub(super) fn generate() -> Self {
        let secret: [u8; BYTES] = rand::random();
        Self(secret.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// A token as it was written; anything else is no token.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_ours = text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_ours.then(|| Self(text.to_owned()))
    }

    pub(super) fn secret(&self) -> &str {
        &self.0
    }

    /// Compares in a time that does not depend on where the difference is.
    pub fn matches(&self, offered: &str) -> bool {
        let (mine, theirs) = (self.0.as_bytes(), offered.as_bytes());
        let difference = mine.iter().zip(theirs).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
        mine.len() == theirs.len() && difference == 0
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
            assert!(!token.matches(wrong), "{wrong}");
        }
        assert!(token.matches("abcd"));
        assert!(!format!("{token:?}").contains("abcd"));
    }
}
