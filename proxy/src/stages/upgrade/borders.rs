//! Where the frames of a WebSocket end (RFC 6455, section 5.2), in either direction and whatever is in them.
//!
//! Judges nothing, and finds borders in any bytes. What a server sends on a watch is read in [`crate::frames`].

/// Bytes of the longest header: two, eight of an extended length, four of a masking key.
const MAX_HEADER: usize = 14;
const CLOSE: u8 = 8;

/// What one side of a connection has sent so far.
#[derive(Debug)]
pub(crate) struct Borders(BorderState);

#[derive(Debug)]
enum BorderState {
    /// So much of a frame's header.
    Header([u8; MAX_HEADER], usize),
    /// A frame of which `left` bytes are still to come.
    Payload { left: u64, close: bool },
    /// The endpoint that sent a close frame may send no frame any more (section 5.5.1).
    Closed,
}

const BORDER: BorderState = BorderState::Header([0; MAX_HEADER], 0);

impl Borders {
    /// Of a connection on which nothing was sent.
    pub(crate) fn new() -> Self {
        Self(BORDER)
    }

    /// Whether the proxy may insert a frame here.
    pub(crate) fn at_frame_boundary(&self) -> bool {
        matches!(self.0, BorderState::Header(_, 0))
    }

    /// Whether the end was said.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.0, BorderState::Closed)
    }

    /// Takes what was sent next.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        while let [first, rest @ ..] = bytes {
            match &mut self.0 {
                BorderState::Header(header, known) => {
                    header[*known] = *first;
                    *known += 1;
                    bytes = rest;
                    if let Some(left) = length(&header[..*known]) {
                        self.0 = BorderState::Payload { left, close: header[0] & 0x0f == CLOSE };
                    }
                }
                BorderState::Payload { left, .. } => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= taken as u64;
                    bytes = &bytes[taken..];
                }
                BorderState::Closed => return,
            }
            if let BorderState::Payload { left: 0, close } = self.0 {
                self.0 = if close { BorderState::Closed } else { BORDER };
            }
        }
    }
}

/// How long a frame's payload is, once its header is whole.
fn length(header: &[u8]) -> Option<u64> {
    let [_, second, rest @ ..] = header else { return None };
    let (masked, short) = (second & 0x80 != 0, second & 0x7f);
    let extended = match short {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let key = if masked { 4 } else { 0 };
    let long = || rest[..extended].iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
    (rest.len() == extended + key).then(|| if extended == 0 { short.into() } else { long() })
}
