//! WebSocket messages, to a client that is expected to read JSON and to one that asked for protobuf.

use http::{HeaderMap, HeaderValue, header};
use ringside_proxy::frames::Frames;

use super::frames;

/// Panics when a promise is broken.
pub fn run(input: &[u8]) {
    frames::check(input, || negotiated("application/json"));
    frames::check(input, || negotiated("application/vnd.kubernetes.protobuf"));
}

/// The decoder as the proxy makes it: until the first message, what the handshake asked for is what the client reads.
fn negotiated(accept: &'static str) -> Frames {
    let asked = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
    let answered = HeaderMap::from_iter([(header::UPGRADE, HeaderValue::from_static("websocket"))]);
    Frames::of_handshake(&asked, &answered)
}
