//! The bodies that read with the proxy's parsers.

pub mod accept;
pub mod election;
pub mod frames;
pub mod frames_json;
pub mod frames_protobuf;
pub mod frames_websocket;
pub mod labels;
pub mod ownership;
pub mod path;
pub mod query;
pub mod selector;

/// The input as text, up to the first byte that is none.
fn text(input: &[u8]) -> &str {
    input.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}
