//! WebSocket messages, to a client that is expected to read JSON and to one that asked for protobuf; and the answers to the
//! proxy's own pings between them.
#![no_main]

use http::{HeaderMap, HeaderValue, header};
use libfuzzer_sys::fuzz_target;
use ringside_proxy::frames::Frames;

fuzz_target!(|input: &[u8]| {
    ringside_fuzz::frames(input, || negotiated("application/json"));
    ringside_fuzz::frames(input, || negotiated("application/vnd.kubernetes.protobuf"));
    ringside_fuzz::split(input, ringside_fuzz::pongs);
});

/// The decoder as the proxy makes it: until the first message, what the handshake asked for is what the client reads.
fn negotiated(accept: &'static str) -> Frames {
    let asked = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
    let answered = HeaderMap::from_iter([(header::UPGRADE, HeaderValue::from_static("websocket"))]);
    Frames::of_handshake(&asked, &answered)
}
