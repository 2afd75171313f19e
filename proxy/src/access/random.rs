//! Random texts, and whether a text that was kept is one of them, and whole.

/// So many random bytes, in hex.
pub(super) fn generate<const BYTES: usize>() -> String {
    let bytes: [u8; BYTES] = rand::random();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a text is one that was made here.
pub(super) fn is_ours<const BYTES: usize>(text: &str) -> bool {
    text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
