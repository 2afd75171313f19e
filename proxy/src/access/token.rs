//! The token that the controller shows to the proxy.

use std::fmt;

use subtle::ConstantTimeEq;

use super::random;

/// A secret of 256 random bits, in hex. It is handed out with a generation at its end, so that a process which read it again can
/// be told from one that did not; every generation of it is right.
#[derive(Clone)]
pub struct Token(String);

/// Before the generation.
const MARK: char = '.';

const BYTES: usize = 32;

impl Token {
    pub(super) fn generate() -> Self {
        Self(random::generate::<BYTES>())
    }

    /// A token as it was written, with its generation; anything else is no token.
    pub(super) fn parse(text: &str) -> Option<(Self, u64)> {
        // Proxies before this one wrote none.
        let (secret, generation) = text.split_once(MARK).unwrap_or((text, "0"));
        random::is_ours::<BYTES>(secret).then_some(())?;
        Some((Self(secret.to_owned()), generation.parse().ok()?))
    }

    /// As it is handed out.
    pub(super) fn of_generation(&self, generation: u64) -> String {
        format!("{}{MARK}{generation}", self.0)
    }

    /// The generation of what is offered, if that is right. Compares in a time that does not depend on where the difference is.
    pub fn generation_of(&self, offered: &[u8]) -> Option<u64> {
        let (secret, rest) = offered.split_at_checked(self.0.len())?;
        let right: bool = self.0.as_bytes().ct_eq(secret).into();
        right.then_some(())?;
        match std::str::from_utf8(rest).ok()? {
            "" => Some(0),
            marked => marked.strip_prefix(MARK)?.parse().ok(),
        }
    }

    /// Whether a text looks like a token of some proxy: one of another proxy, or of a folder that is gone, is no account's.
    pub(crate) fn is_like(offered: &[u8]) -> bool {
        std::str::from_utf8(offered).is_ok_and(|text| Self::parse(text).is_some())
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
        for wrong in ["", "abc", "abce", "abce.0", "bbcd.0", "abcde.0", "abcd.", "abcd.x", "abcd.0x", ".0", "abcd.-1"] {
            assert_eq!(token.generation_of(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(token.generation_of(b"abcd"), Some(0));
        for generation in [0, 7, u64::MAX] {
            assert_eq!(token.generation_of(token.of_generation(generation).as_bytes()), Some(generation));
        }
        assert!(!format!("{token:?}").contains("abcd"));
    }
}
