//! Checks decoders of watch frames. The input is a watch's bytes and how they are split.

use bytes::Bytes;
use ringside_proxy::frames::{Event, EventFilter, EventSet, Frames, Kind, MAX_KEPT};

/// More than the head of an event in which its type must stand, behind the longest header of a WebSocket frame.
const MAX_HELD: usize = 64;

/// Feeds the same bytes at once, byte by byte and in the pieces that the input names, and checks that the same is found,
/// and that no more is kept than came, nor than is allowed. The same with a sieve, of which the same must pass: bytes of the
/// input, in its order.
pub fn check(input: &[u8], new: impl Fn() -> Frames) {
    split(input, |bytes, pieces| feed(new(), bytes, pieces));
    for set in [EventSet::Events, EventSet::DeletedOnly] {
        split(input, |bytes, pieces| filtered((new(), set), bytes, pieces));
    }
}

/// Runs it on the same bytes split in each way; it must come to the same.
///
/// The first byte says how many lengths of pieces follow, the rest is the watch.
pub fn split<T: PartialEq + std::fmt::Debug>(input: &[u8], run: impl Fn(&[u8], &[usize]) -> T) {
    let Some((count, rest)) = input.split_first() else { return };
    let (pieces, bytes) = rest.split_at(usize::from(count % 8).min(rest.len()));
    let pieces: Vec<usize> = pieces.iter().map(|length| usize::from(*length).max(1)).collect();
    let whole = run(bytes, &[bytes.len().max(1)]);
    assert_eq!(whole, run(bytes, &[1]));
    if !pieces.is_empty() {
        assert_eq!(whole, run(bytes, &pieces));
    }
}

/// The bytes in pieces of these lengths, again and again.
pub fn cut<'a>(mut bytes: &'a [u8], pieces: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    pieces.iter().cycle().map_while(move |piece| {
        let (now, rest) = bytes.split_at((*piece).min(bytes.len()));
        bytes = rest;
        (!now.is_empty()).then_some(now)
    })
}

/// Whether it is what is left of the other when some bytes are taken out.
pub fn is_part(part: &[u8], whole: &[u8]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|byte| whole.any(|it| it == byte))
}

/// Events, whether the rest is not understood, and the event that would end the watch there.
type Found = (Vec<Event>, bool, Option<Bytes>);

fn feed(mut frames: Frames, bytes: &[u8], pieces: &[usize]) -> Found {
    let (mut events, mut fed) = (Vec::new(), 0);
    for piece in cut(bytes, pieces) {
        frames.feed(piece, |event| events.push(event));
        fed += piece.len();
        // A buffer doubles, and the smallest one that a Vec makes is a few bytes.
        assert!(frames.kept() <= (2 * MAX_KEPT).min(2 * fed + 64), "{} bytes are kept of {fed}", frames.kept());
    }
    (events, frames.is_opaque(), frames.expired(""))
}

/// What passed, how much is held back, and what was found.
fn filtered((mut frames, set): (Frames, EventSet), bytes: &[u8], pieces: &[usize]) -> (Vec<u8>, usize, Found) {
    let (mut filtered, mut passed, mut events, mut fed) = (EventFilter::new(set), Vec::new(), Vec::new(), 0);
    for piece in cut(bytes, pieces) {
        passed.extend(filtered.pass(&mut frames, Bytes::copy_from_slice(piece), |event| events.push(event)));
        fed += piece.len();
        assert!(filtered.held() <= MAX_HELD.min(fed), "{} bytes are held of {fed}", filtered.held());
        assert!(passed.len() + filtered.held() <= fed, "more passed than came");
    }
    assert!(is_part(&passed, bytes), "what passed is not what came");
    // A sieve takes out bookmarks, and nothing else, or all but departures.
    let is_whole = set == EventSet::Events && !events.iter().any(|event| event.kind == Kind::Bookmark);
    let is_told = |event: &Event| matches!(event.kind, Kind::Deleted | Kind::Other);
    assert!(set == EventSet::Events || events.iter().all(is_told), "{events:?} are told");
    if is_whole && filtered.held() == 0 && !filtered.withholds() {
        assert_eq!(passed.len(), bytes.len(), "there is no bookmark, and something is gone");
    }
    (passed, filtered.held(), (events, frames.is_opaque(), frames.expired("")))
}
