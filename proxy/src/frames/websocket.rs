//! A watch by WebSocket (RFC 6455): each event is one message, text for JSON and binary for protobuf, whichever
//! subprotocol was agreed (`HandleWS` in k8s.io/apiserver: the handshake repeats what the client named, the messages
//! stay the same). Messages are unmasked, as all that servers send.

use super::{Kind, MalformedFrame, Step, event::Partial};
use crate::request::representation::Encoding;

/// Bytes of the longest header of an unmasked frame: two, and eight of an extended length.
const MAX_HEADER: usize = 10;
/// The longest payload of a control frame (section 5.5).
const MAX_CONTROL: u64 = 125;

/// The messages that a server sends.
#[derive(Debug)]
pub(super) struct Messages {
    /// The message under way, or the next one, in the encoding of the last one.
    event: Partial,
    /// Whether a message is under way: its last frame is still to come.
    within: bool,
    state: MessagesState,
}

#[derive(Debug)]
enum MessagesState {
    /// So much of a frame's header.
    Header([u8; MAX_HEADER], usize),
    /// A frame of which `left` bytes are still to come.
    Payload { left: u64, frame: Frame },
    /// The server said that it sends nothing more.
    Closed,
}

const BORDER: MessagesState = MessagesState::Header([0; MAX_HEADER], 0);

#[derive(Clone, Copy, Debug)]
enum Frame {
    /// A ping or a pong: it may stand between the frames of a message.
    Control,
    Close,
    /// A part of a message, the last one or not; with the encoding if it is the first one.
    Data {
        first: Option<Encoding>,
        last: bool,
    },
}

impl Messages {
    /// `encoding` is what the client is expected to understand until the first message shows it.
    pub(super) fn new(encoding: Encoding) -> Self {
        Self { event: Partial::new(encoding), within: false, state: BORDER }
    }

    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<(usize, Step), MalformedFrame> {
        let Some(first) = bytes.first() else { return Ok((0, Step::More)) };
        let (taken, step) = match &mut self.state {
            MessagesState::Header(header, known) => {
                header[*known] = *first;
                *known += 1;
                let step = match parse(&header[..*known])? {
                    // Of a message in one frame the type follows.
                    Some((left, frame @ Frame::Data { first: Some(_), last: true })) => {
                        self.begin(left, frame)?;
                        Step::More
                    }
                    Some((left, frame)) => {
                        self.begin(left, frame)?;
                        Step::Known(Kind::Other)
                    }
                    None => Step::More,
                };
                (1, step)
            }
            MessagesState::Payload { left, frame } => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                let (taken, step) = match frame {
                    Frame::Data { .. } => self.event.take(&bytes[..most]),
                    Frame::Control | Frame::Close => (most, Step::More),
                };
                *left -= taken as u64;
                (taken, step)
            }
            MessagesState::Closed => return Ok((bytes.len(), Step::Known(Kind::Other))),
        };
        let MessagesState::Payload { left: 0, frame } = self.state else { return Ok((taken, step)) };
        self.state = if matches!(frame, Frame::Close) { MessagesState::Closed } else { BORDER };
        match frame {
            Frame::Data { last: true, .. } => Ok((taken, Step::End(self.event.end()?))),
            Frame::Control | Frame::Close if !self.within => Ok((taken, Step::End(None))),
            _ => Ok((taken, step)),
        }
    }

    /// A frame begins, where it may (section 5.4).
    fn begin(&mut self, left: u64, frame: Frame) -> Result<(), MalformedFrame> {
        if let Frame::Data { first, last } = frame {
            if first.is_some() == self.within {
                return Err(MalformedFrame);
            }
            if let Some(encoding) = first {
                self.event = Partial::new(encoding);
            }
            self.within = !last;
        }
        self.state = MessagesState::Payload { left, frame };
        Ok(())
    }

    /// Returns a decoder of the same encoding for another connection.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.event.encoding())
    }

    /// In which encoding a message of ours may stand here: between two frames, and in no message of several frames.
    pub(super) fn border(&self) -> Option<Encoding> {
        (matches!(self.state, MessagesState::Header(_, 0)) && !self.within).then(|| self.event.encoding())
    }

    /// Whether it stands there, or the server has said that it sends nothing more.
    pub(super) fn at_frame_boundary(&self) -> bool {
        self.border().is_some() || self.is_closed()
    }

    /// Whether the server has said that it sends nothing more.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, MessagesState::Closed)
    }

    pub(super) fn kept(&self) -> usize {
        self.event.kept()
    }
}

/// Reads the header of a frame, once all of it is there. Returns its length, that of the payload, and in which encoding the
/// payload is an event: none where it is a control frame, or a part of a message.
///
/// # Errors
/// When no server sends that.
pub(crate) fn message_head(bytes: &[u8]) -> Result<Option<(u64, u64, Option<Encoding>)>, MalformedFrame> {
    for size in 2..=MAX_HEADER.min(bytes.len()) {
        if let Some((length, frame)) = parse(&bytes[..size])? {
            let encoding = if let Frame::Data { first, last: true } = frame { first } else { None };
            return Ok(Some((size as u64, length, encoding)));
        }
    }
    Ok(None)
}

/// The length and kind of a frame, once its header is there (section 5.2).
fn parse(header: &[u8]) -> Result<Option<(u64, Frame)>, MalformedFrame> {
    let [first, second, extended @ ..] = header else { return Ok(None) };
    let (last, reserved, opcode) = (first & 0x80 != 0, first & 0x70, first & 0x0f);
    let (masked, length) = (second & 0x80 != 0, second & 0x7f);
    let frame = match opcode {
        0 => Frame::Data { first: None, last },
        1 => Frame::Data { first: Some(Encoding::Json), last },
        2 => Frame::Data { first: Some(Encoding::Protobuf), last },
        8 => Frame::Close,
        9 | 10 => Frame::Control,
        _ => return Err(MalformedFrame),
    };
    if reserved != 0 || masked {
        return Err(MalformedFrame);
    }
    // An extended length must need its form.
    let (wanted, least) = match length {
        126 => (2, 126),
        127 => (8, 1 << 16),
        _ => (0, 0),
    };
    if extended.len() < wanted {
        return Ok(None);
    }
    let long = extended.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
    let length = if wanted == 0 { length.into() } else { long };
    let is_control = !matches!(frame, Frame::Data { .. });
    if length < least || length >> 63 != 0 || (is_control && (!last || length > MAX_CONTROL)) {
        return Err(MalformedFrame);
    }
    Ok(Some((length, frame)))
}
