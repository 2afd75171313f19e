//! Whether the bytes of an object name the sharder, piece by piece.
//!
//! API servers keep in `managedFields` who wrote which fields, by the beginning of the writer's `User-Agent`. What the webhook
//! labels counts as written by its creator. So the sharder is named in what it assigned or moved, and not in what was created
//! with its label.

use memchr::memmem;

/// The sharder among the writers of an object's fields.
const SHARDER: &[u8] = b"ringside-sharder";
/// So much of it may stand at the end of a piece.
const PART: usize = SHARDER.len() - 1;

/// Whether the sharder was named in the bytes so far.
#[derive(Debug, Default)]
pub(super) struct Mentions {
    found: bool,
    /// The last bytes.
    last: [u8; PART],
    length: u8,
}

impl Mentions {
    /// Looks at the next bytes.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        if self.found {
            return;
        }
        let length = usize::from(self.length);
        let (mut border, head) = ([0; 2 * PART], bytes.len().min(PART));
        border[..length].copy_from_slice(&self.last[..length]);
        border[length..length + head].copy_from_slice(&bytes[..head]);
        let border = &border[..length + head];
        self.found = is_in(border) || is_in(bytes);
        let tail = if bytes.len() >= PART { bytes } else { border };
        let tail = &tail[tail.len().saturating_sub(PART)..];
        self.last[..tail.len()].copy_from_slice(tail);
        self.length = u8::try_from(tail.len()).unwrap_or(u8::MAX);
    }

    /// Whether it was named.
    pub(super) fn found(&self) -> bool {
        self.found
    }
}

fn is_in(bytes: &[u8]) -> bool {
    memmem::find(bytes, SHARDER).is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            Just(SHARDER.to_vec()),
            (0..PART).prop_map(|at| SHARDER[..at].to_vec()),
            prop::collection::vec(any::<u8>(), 0..20)
        ];
        prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn it_is_found_however_the_bytes_are_cut(text in text(), mut cuts in prop::collection::vec(0..120usize, 0..8)) {
            cuts.retain(|cut| *cut <= text.len());
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut mentions = Mentions::default();
            cuts.windows(2).for_each(|cut| mentions.take(&text[cut[0]..cut[1]]));
            prop_assert_eq!(mentions.found(), is_in(&text));
        }
    }
}
