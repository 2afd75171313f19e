//! The id of this instance, for a shard Lease: no secret, but nobody else's.

pub(super) const FILE: &str = "instance";

/// 128 random bits, in hex.
const BYTES: usize = 16;

pub(super) fn generate() -> String {
    let id: [u8; BYTES] = rand::random();
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a text is one that was written here, and whole.
pub(super) fn is_ours(text: &str) -> bool {
    text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
