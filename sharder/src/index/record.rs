//! One object in 48 bytes.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    sync::LazyLock,
};

use super::{family::Children, names::NameId};

/// Where a record is. It stays there until its object is gone, and is another object's afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(pub(crate) u32);

/// A resource of the ring, by its place in the list that the index was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceId(pub(crate) u8);

/// The identity of an object.
///
/// A UUID is kept as it is. Any other text is hashed with a key of this process: it can be compared, and not be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Uid(pub(super) [u64; 2]);

impl Uid {
    /// The identity, and whether it is a UUID in the usual spelling.
    pub(super) fn parse(text: &str) -> (Self, bool) {
        static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
        match parse_uuid(text) {
            Some(uuid) => (Self(halves(uuid)), true),
            None => (Self([KEYS[0].hash_one(text), KEYS[1].hash_one(text)]), false),
        }
    }

    /// What a hash table finds it by.
    pub(super) fn hash(self) -> u64 {
        (self.0[0] ^ self.0[1].rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(20)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [high, low] = self.0;
        let group = |value: u64, shift: u32, bits: u32| (value >> shift) & ((1 << bits) - 1);
        let (a, b, c) = (group(high, 32, 32), group(high, 16, 16), group(high, 0, 16));
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", group(low, 48, 16), group(low, 0, 48))
    }
}

fn halves(uuid: u128) -> [u64; 2] {
    #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
    [(uuid >> 64) as u64, uuid as u64]
}

/// Only what would be written the same again.
fn parse_uuid(text: &str) -> Option<u128> {
    if text.len() != 36 {
        return None;
    }
    text.bytes().enumerate().try_fold(0_u128, |uuid, (at, byte)| match (at, byte) {
        (8 | 13 | 18 | 23, b'-') => Some(uuid),
        (8 | 13 | 18 | 23, _) => None,
        (_, b'0'..=b'9') => Some(uuid << 4 | u128::from(byte - b'0')),
        (_, b'a'..=b'f') => Some(uuid << 4 | u128::from(byte - b'a' + 10)),
        _ => None,
    })
}

/// What an object is in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A root, by the point of its key on the hash ring.
    Root { point: u64 },
    /// A child of a known controller. `link` is the next sibling.
    Child { parent: Slot, link: u32 },
    /// A child of a controller that is not known (yet), by the number of those who wait for the same.
    Waiting { group: u32, link: u32 },
    /// An object of a controlled resource without controller of the ring.
    Lone,
}

const KIND: u16 = 0b11;
const VACANT: u16 = 1 << 2;

/// One fact about an object that is true or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Flag {
    /// It has a drain label.
    Drained = 1 << 3,
    /// It has labels at all.
    HasLabels = 1 << 4,
    /// The list under way has shown it.
    Listed = 1 << 5,
    /// Its uid is a UUID, so its text is known.
    Uuid = 1 << 6,
    /// Its controller may be of a resource of the ring that is not served now.
    ControllerUnknown = 1 << 7,
}

/// Which flags a record has; the upper byte is the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(u16);

/// The shard label of an object: the number of its value. See [`super::names::Interner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShardValue(pub(super) u16);

impl ShardValue {
    /// No label.
    pub(super) const NONE: Self = Self(0);
    /// There were too many values, so which one it is must be read.
    pub(super) const OTHER: Self = Self(u16::MAX);
}

/// One object. Its fields stand by size, so that nothing lies between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) uid: Uid,
    pub(super) version: u64,
    place: u64,
    pub(super) children: Children,
    pub(super) name: NameId,
    /// 24 bits of the namespace and 8 bits of the resource.
    origin: u32,
    pub(super) shard: ShardValue,
    state: State,
}

const _: () = assert!(size_of::<Record>() == 48);

impl Record {
    /// A slot without object; `next` is the next of these.
    pub(super) const fn vacant(next: u32) -> Self {
        let (uid, children, name) = (Uid([0; 2]), Children::NONE, NameId(next));
        let (shard, state) = (ShardValue::NONE, State(VACANT));
        Self { uid, version: 0, place: 0, children, name, origin: 0, shard, state }
    }

    /// An object of which nothing but this is known.
    pub(super) fn new(uid: Uid, name: NameId, namespace: u32, resource: ResourceId) -> Self {
        let (children, origin) = (Children::NONE, namespace << 8 | u32::from(resource.0));
        let (shard, state) = (ShardValue::NONE, State(0));
        let mut record = Self { uid, version: 0, place: 0, children, name, origin, shard, state };
        record.set_place(Place::Lone);
        record
    }

    pub(super) fn is_vacant(&self) -> bool {
        self.state.0 & VACANT != 0
    }

    pub(super) fn resource(&self) -> ResourceId {
        ResourceId(self.origin.to_le_bytes()[0])
    }

    pub(super) fn namespace(&self) -> u32 {
        self.origin >> 8
    }

    pub(super) fn is(&self, flag: Flag) -> bool {
        self.state.0 & flag as u16 != 0
    }

    pub(super) fn set(&mut self, flag: Flag, on: bool) {
        if on {
            self.state.0 |= flag as u16;
        } else {
            self.state.0 &= !(flag as u16);
        }
    }

    /// The group of shards that it is for: 0 for those of no group.
    pub(super) fn group(&self) -> u8 {
        self.state.0.to_le_bytes()[1]
    }

    pub(super) fn set_group(&mut self, group: u8) {
        self.state.0 = self.state.0 & 0xFF | u16::from(group) << 8;
    }

    pub(super) fn place(&self) -> Place {
        #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
        let (first, link) = ((self.place >> 32) as u32, self.place as u32);
        match self.state.0 & KIND {
            0 => Place::Root { point: self.place },
            1 => Place::Child { parent: Slot(first), link },
            2 => Place::Waiting { group: first, link },
            _ => Place::Lone,
        }
    }

    pub(super) fn set_place(&mut self, place: Place) {
        let pair = |first: u32, link: u32| u64::from(first) << 32 | u64::from(link);
        let (kind, value) = match place {
            Place::Root { point } => (0, point),
            Place::Child { parent, link } => (1, pair(parent.0, link)),
            Place::Waiting { group, link } => (2, pair(group, link)),
            Place::Lone => (3, 0),
        };
        self.state.0 = self.state.0 & !KIND | kind;
        self.place = value;
    }

    /// The next sibling.
    pub(super) fn link(&self) -> u32 {
        match self.place() {
            Place::Child { link, .. } | Place::Waiting { link, .. } => link,
            Place::Root { .. } | Place::Lone => Children::NONE.0,
        }
    }

    pub(super) fn set_link(&mut self, new: u32) {
        match self.place() {
            Place::Child { parent, .. } => self.set_place(Place::Child { parent, link: new }),
            Place::Waiting { group, .. } => self.set_place(Place::Waiting { group, link: new }),
            Place::Root { .. } | Place::Lone => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_is_read_back_as_it_was_written() {
        for text in ["00000000-0000-0000-0000-000000000001", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"] {
            let (uid, is_uuid) = Uid::parse(text);
            assert!(is_uuid);
            assert_eq!(uid.to_string(), text);
        }
    }

    #[test]
    fn any_other_uid_is_compared_only() {
        for text in ["", "uid-1", "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6", "f81d4fae07dec-11d0-a765-00a0c91e6bf6"] {
            let (uid, is_uuid) = Uid::parse(text);
            assert!(!is_uuid);
            assert_eq!(Uid::parse(text).0, uid);
            assert_ne!(Uid::parse("uid-2").0, uid);
        }
    }

    #[test]
    fn place_and_flags_keep_apart() {
        let mut record = Record::new(Uid([1, 2]), NameId(3), 0x00FF_FFFF, ResourceId(255));
        record.set(Flag::Drained, true);
        record.set_group(200);
        let places = [
            Place::Root { point: u64::MAX },
            Place::Child { parent: Slot(7), link: u32::MAX },
            Place::Waiting { group: u32::MAX, link: 3 },
            Place::Lone,
        ];
        for place in places {
            record.set_place(place);
            assert_eq!(record.place(), place);
            assert!(record.is(Flag::Drained) && !record.is(Flag::Uuid) && !record.is_vacant());
            assert_eq!(record.group(), 200);
        }
        assert_eq!((record.namespace(), record.resource()), (0x00FF_FFFF, ResourceId(255)));
    }
}
