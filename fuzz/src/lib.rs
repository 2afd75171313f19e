//! What the fuzz targets for watch frames have in common: the input is a watch's bytes and how they are split.

use bytes::Bytes;
use ringside_proxy::frames::{Event, Frames, MAX_KEPT};

/// Feeds the same bytes at once, byte by byte and in the pieces that the input names, and checks that the same is found,
/// and that no more is kept than came, nor than is allowed.
///
/// The first byte says how many lengths of pieces follow, the rest is the watch.
pub fn frames(input: &[u8], new: impl Fn() -> Frames) {
    let Some((count, rest)) = input.split_first() else { return };
    let (pieces, bytes) = rest.split_at(usize::from(count % 8).min(rest.len()));
    let pieces: Vec<usize> = pieces.iter().map(|length| usize::from(*length).max(1)).collect();
    let whole = feed(new(), bytes, &[bytes.len().max(1)]);
    assert_eq!(whole, feed(new(), bytes, &[1]));
    if !pieces.is_empty() {
        assert_eq!(whole, feed(new(), bytes, &pieces));
    }
}

/// Events, whether the rest is not understood, and the event that would end the watch there.
type Found = (Vec<Event>, bool, Option<Bytes>);

fn feed(mut frames: Frames, bytes: &[u8], pieces: &[usize]) -> Found {
    let (mut events, mut fed) = (Vec::new(), 0);
    for piece in pieces.iter().cycle() {
        if fed == bytes.len() {
            break;
        }
        let end = (fed + piece).min(bytes.len());
        frames.feed(&bytes[fed..end], |event| events.push(event));
        fed = end;
        // A buffer doubles, and the smallest one that a Vec makes is a few bytes.
        assert!(frames.kept() <= (2 * MAX_KEPT).min(2 * fed + 64), "{} bytes are kept of {fed}", frames.kept());
    }
    (events, frames.is_opaque(), frames.expired(""))
}
