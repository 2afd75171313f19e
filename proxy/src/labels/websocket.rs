//! Removes label entries from the messages of a watch by WebSocket: each frame is held until it is whole, as its length
//! stands before it.

use bytes::Bytes;

use super::{Filter, Keys};
use crate::{frames::with_length, stages::upgrade::borders::Borders};

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
/// In the first byte of a frame, and in the second.
const LAST: u8 = 0x80;
const MASKED: u8 = 0x80;

/// The messages that a server sends, unmasked.
#[derive(Debug)]
pub struct Messages {
    borders: Borders,
    /// The frame under way.
    frame: Vec<u8>,
    filter: Filter,
    /// Whether the message under way is text: JSON.
    is_text: bool,
}

impl Messages {
    /// Creates the filter for a connection on which nothing was sent.
    pub fn new(keys: Keys) -> Self {
        Self { borders: Borders::new(), frame: Vec::new(), filter: Filter::new(keys), is_text: false }
    }

    /// Returns what passes of the next bytes: frames that are whole.
    pub fn pass(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut passed = Vec::with_capacity(bytes.len());
        while !bytes.is_empty() {
            let (frame, rest) = bytes.split_at(self.borders.advance(bytes));
            self.frame.extend_from_slice(frame);
            bytes = rest;
            if self.borders.at_border() || self.borders.is_closed() {
                let frame = std::mem::take(&mut self.frame);
                self.whole(frame, &mut passed);
            }
        }
        passed
    }

    /// A frame is whole.
    fn whole(&mut self, frame: Vec<u8>, passed: &mut Vec<u8>) {
        let opcode = frame.first().map_or(0, |first| first & 0x0f);
        if matches!(opcode, TEXT | BINARY) {
            self.is_text = opcode == TEXT;
        }
        let is_json = matches!(opcode, CONTINUATION | TEXT) && self.is_text && !self.borders.is_closed();
        let header = match frame.get(1).filter(|_| is_json) {
            Some(126) => 4,
            Some(127) => 10,
            Some(short) if short & MASKED == 0 => 2,
            _ => return passed.extend(frame),
        };
        let (first, is_last) = (frame[0], frame[0] & LAST != 0);
        let mut payload = self.filter.push(Bytes::from(frame).slice(header..)).to_vec();
        if is_last {
            payload.extend(self.filter.end());
        }
        passed.extend(with_length(first, &payload));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringside_ring::RingLabels;

    use super::*;

    fn passed(bytes: &[u8], chunk: usize) -> Vec<u8> {
        let keys = Keys::of(&RingLabels { shard: "s".into(), drain: "d".into() });
        let mut messages = Messages::new(keys);
        bytes.chunks(chunk).flat_map(|chunk| messages.pass(chunk)).collect()
    }

    #[test]
    fn entries_are_removed_and_lengths_are_right() {
        let (short, medium, long) = ("a".repeat(100), "a".repeat(200), "a".repeat(70_000));
        let event = |labels: &str, text: &str| format!(r#"{{"labels":{{{labels}}},"x":"{text}"}}"#).into_bytes();
        for text in ["", &short, &medium, &long] {
            let (with, without) = (event(r#""s":"me","a":"b""#, text), event(r#""a":"b""#, text));
            let (ping, binary) = (with_length(0x89, b"ping"), with_length(0x82, &with));
            let sent = [&with_length(0x81, &with)[..], &ping, &binary, &with_length(0x81, &with)].concat();
            let expected = [&with_length(0x81, &without)[..], &ping, &binary, &with_length(0x81, &without)].concat();
            for chunk in [1, 3, 4096, sent.len()] {
                assert!(passed(&sent, chunk) == expected, "{} in chunks of {chunk}", text.len());
            }
        }
    }

    #[test]
    fn a_message_of_several_frames_stays_one_and_what_is_cut_off_does_not_pass() {
        let frames =
            [with_length(0x01, br#"{"l":{"a":"b","#), with_length(0x89, b""), with_length(0x80, br#""s":"x"}}"#)];
        let expected = [with_length(0x01, br#"{"l":{"a":"b""#), with_length(0x89, b""), with_length(0x80, b"}}")];
        assert_eq!(passed(&frames.concat(), 1), expected.concat());
        let close = [0x88, 2, 0x03, 0xe8];
        assert_eq!(passed(&close, 1), close);
        assert_eq!(passed(b"\x81\x04{", 1), b"");
    }
}
