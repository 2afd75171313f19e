//! Protobuf events behind their lengths.

use ringside_proxy::frames::Frames;

use super::frames;

/// Panics when a promise is broken.
pub fn run(input: &[u8]) {
    frames::check(input, Frames::protobuf);
}
