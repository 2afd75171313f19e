//! Finds label entries with one of two keys in Kubernetes objects in protobuf.
//!
//! Only the fields on the way to `metadata.labels` are entered, all others are skipped unread. So an entry is hidden there and
//! nowhere else, whatever bytes an object holds. Field numbers are those of [`crate::wire`].

use prost::{
    Message as _,
    encoding::{WireType, decode_key, decode_varint},
};

use super::Keys;
use crate::{
    frames::MalformedFrame,
    wire::{MAGIC, TypeMeta},
};

/// The longest field that is read as a whole, in bytes: a label or the type of an object. Those of an API server have less
/// than 512.
const MAX_WHOLE: u64 = 1 << 10;
/// The longest tag and varint of a field, in bytes.
const MAX_HEAD: usize = 20;
/// The tag of the field that stands for a hidden entry, 1000: no message of Kubernetes has that number.
const SKIPPED: [u8; 2] = [0xc2, 0x3e];

/// A message on the way to labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// `metav1.WatchEvent`.
    Event,
    /// `runtime.RawExtension`.
    Extension,
    /// `runtime.Unknown`.
    Envelope {
        /// Whether it holds a list, as far as its type is known.
        is_list: bool,
    },
    /// An object, or a list.
    Object { is_list: bool },
    /// `metav1.ObjectMeta`.
    Metadata,
}

/// What a message has next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// A field of so many bytes, in which nothing is to hide.
    Other(u64),
    /// A message of so many bytes, after a head of so many.
    Within { head: u64, message: Message, length: u64 },
    /// The type of the object in this envelope, of so many bytes.
    Kind { size: u64, is_list: bool },
    /// A label to hide, of so many bytes: all of them are here.
    Hidden(usize),
    /// Nothing is known until more comes.
    Open,
}

/// Returns the next field of a message of which `left` bytes are to come, and `bytes` are here.
///
/// # Errors
/// When it is no such message.
pub(super) fn field(message: Message, bytes: &[u8], left: u64, keys: &Keys) -> Result<Field, MalformedFrame> {
    let Some((tag, wire_type, head, length)) = head(bytes) else {
        let may_come = bytes.len() < MAX_HEAD && (bytes.len() as u64) < left;
        return if may_come { Ok(Field::Open) } else { Err(MalformedFrame) };
    };
    let size = length.checked_add(head as u64).filter(|size| *size <= left).ok_or(MalformedFrame)?;
    if wire_type != WireType::LengthDelimited {
        return Ok(Field::Other(size));
    }
    let within = |message| Field::Within { head: head as u64, message, length };
    // All of it is here, or the rest is still to come.
    let value = &bytes[head..];
    let whole = usize::try_from(length).ok().and_then(|length| value.get(..length)).filter(|_| size <= MAX_WHOLE);
    let is_cut = whole.is_none() && size <= MAX_WHOLE;
    Ok(match (message, tag) {
        (Message::Event, 2) => within(Message::Extension),
        (Message::Extension, 1) if length >= MAGIC.len() as u64 => match value.get(..MAGIC.len()) {
            None => Field::Open,
            Some(MAGIC) => Field::Within {
                head: (head + MAGIC.len()) as u64,
                message: Message::Envelope { is_list: false },
                length: length - MAGIC.len() as u64,
            },
            // JSON, where the API server has the object in no other form.
            Some(_) => Field::Other(size),
        },
        (Message::Envelope { .. }, 1) | (Message::Metadata, 11) if is_cut => Field::Open,
        (Message::Envelope { .. }, 1) => {
            let type_meta = whole.and_then(|whole| TypeMeta::decode(whole).ok()).unwrap_or_default();
            Field::Kind { size, is_list: type_meta.kind.ends_with("List") }
        }
        (Message::Envelope { is_list }, 2) => within(Message::Object { is_list }),
        (Message::Object { .. }, 1) => within(Message::Metadata),
        (Message::Object { is_list: true }, 2) => within(Message::Object { is_list: false }),
        (Message::Metadata, 11) => match whole {
            Some(entry) if key(entry).is_some_and(|key| keys.have(key)) => Field::Hidden(head + entry.len()),
            _ => Field::Other(size),
        },
        _ => Field::Other(size),
    })
}

/// Returns the number and the type of the field that the bytes begin with, the length of its tag with what says how long its
/// value is, and that of the value. `None` where that is not here, or no field of Kubernetes.
fn head(bytes: &[u8]) -> Option<(u32, WireType, usize, u64)> {
    let mut rest = bytes;
    let (tag, wire_type) = decode_key(&mut rest).ok()?;
    let length = match wire_type {
        WireType::LengthDelimited => decode_varint(&mut rest).ok()?,
        WireType::Varint => decode_varint(&mut rest).ok().map(|_| 0)?,
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::StartGroup | WireType::EndGroup => return None,
    };
    Some((tag, wire_type, bytes.len() - rest.len(), length))
}

/// Returns the key of an entry of a map: the last one, as decoders do.
fn key(mut entry: &[u8]) -> Option<&[u8]> {
    let mut key = &entry[..0];
    while !entry.is_empty() {
        let (tag, wire_type, head, length) = head(entry)?;
        let (value, rest) = entry[head..].split_at_checked(usize::try_from(length).ok()?)?;
        if (tag, wire_type) == (1, WireType::LengthDelimited) {
            key = value;
        }
        entry = rest;
    }
    Some(key)
}

/// Makes a field of [`Field::Hidden`] one of zeros that decoders skip.
pub(super) fn hide(field: &mut [u8]) {
    let (tag, rest) = field.split_at_mut(SKIPPED.len());
    tag.copy_from_slice(&SKIPPED);
    rest.fill(0);
    // Its length has one byte, or two.
    match u8::try_from(rest.len() - 1) {
        Ok(length @ ..0x80) => rest[0] = length,
        _ => {
            let length = rest.len() - 2;
            [rest[0], rest[1]] = [0x80 | length & 0x7f, length >> 7].map(|part| u8::try_from(part).unwrap_or_default());
        }
    }
}
