//! A watch by WebSocket: each event is one text message of JSON, unmasked as all that servers send (RFC 6455).

use super::{Event, json::JsonEvent};

/// Bytes of the longest header of an unmasked frame: two, and eight of an extended length.
const MAX_HEADER: usize = 10;

/// The messages that a server sends.
#[derive(Debug, Default)]
pub(super) struct Messages {
    event: JsonEvent,
    state: State,
    /// Whether the last frame of a message is still to come.
    within: bool,
}

#[derive(Debug)]
enum State {
    /// So much of a frame's header.
    Header(Vec<u8>),
    /// A frame of which `left` bytes are still to come.
    Payload { left: u64, frame: Frame },
}

#[derive(Clone, Copy, Debug)]
enum Frame {
    /// A ping, a pong, a close: it may stand between the frames of a message.
    Control,
    /// A part of a message, the last one or not.
    Text { last: bool },
}

impl Default for State {
    fn default() -> Self {
        Self::Header(Vec::new())
    }
}

impl Messages {
    /// Returns whether the bytes were understood.
    pub(super) fn feed(&mut self, mut bytes: &[u8], found: &mut impl FnMut(Event)) -> bool {
        while let Some((first, rest)) = bytes.split_first() {
            match &mut self.state {
                State::Header(header) => {
                    header.push(*first);
                    bytes = rest;
                    match parse(header) {
                        Parsed::Incomplete => continue,
                        Parsed::Bad => return false,
                        Parsed::Frame(left, frame) => self.state = State::Payload { left, frame },
                    }
                }
                State::Payload { left, frame } => {
                    let take = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    if matches!(frame, Frame::Text { .. }) {
                        self.event.feed(&bytes[..take]);
                    }
                    *left -= take as u64;
                    bytes = &bytes[take..];
                }
            }
            if let State::Payload { left: 0, frame } = self.state {
                self.state = State::default();
                if let Frame::Text { last } = frame {
                    self.within = !last;
                }
                if matches!(frame, Frame::Text { last: true }) {
                    self.event.end().into_iter().for_each(&mut *found);
                }
            }
        }
        true
    }

    /// Whether a message of ours may stand here: between two frames, and in no message of several frames.
    pub(super) fn at_border(&self) -> bool {
        matches!(&self.state, State::Header(header) if header.is_empty()) && !self.within
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.event.kept()
    }
}

enum Parsed {
    Incomplete,
    Frame(u64, Frame),
    Bad,
}

/// RFC 6455, section 5.2.
fn parse(header: &[u8]) -> Parsed {
    let [first, second, extended @ ..] = header else { return Parsed::Incomplete };
    let (last, reserved, opcode) = (first & 0x80 != 0, first & 0x70, first & 0x0f);
    let (masked, length) = (second & 0x80 != 0, second & 0x7f);
    let frame = match opcode {
        0 | 1 => Frame::Text { last },
        8..=10 => Frame::Control,
        // Binary messages hold other representations.
        _ => return Parsed::Bad,
    };
    if reserved != 0 || masked || header.len() > MAX_HEADER {
        return Parsed::Bad;
    }
    let wanted = match length {
        126 => 2,
        127 => 8,
        short => return Parsed::Frame(short.into(), frame),
    };
    if extended.len() < wanted {
        return Parsed::Incomplete;
    }
    Parsed::Frame(extended.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)), frame)
}
