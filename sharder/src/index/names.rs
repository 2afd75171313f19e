//! Names of objects in an arena, and texts that many objects share, by number.

use std::{collections::HashMap, sync::Arc};

/// The size of a block, in units.
const BLOCK_UNITS: usize = (1 << 20) / UNIT;
/// Names begin at multiples of this many bytes.
const UNIT: usize = 8;
/// The length stands before the text.
const LENGTH: usize = 2;

/// Where a name begins, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NameId(pub(super) u32);

impl NameId {
    fn block(self) -> usize {
        self.0 as usize / BLOCK_UNITS
    }

    fn offset(self) -> usize {
        self.0 as usize % BLOCK_UNITS * UNIT
    }
}

/// The names of all objects, in blocks of a megabyte. A name that goes leaves a gap for one of its size.
#[derive(Default)]
pub(super) struct Names {
    blocks: Vec<Box<[u8]>>,
    /// How many units of the last block are in use.
    used: usize,
    /// Gaps by their size in units.
    gaps: Vec<Vec<NameId>>,
}

impl Names {
    /// Keeps a name. One of over 65,535 bytes is cut: no API server stores such a name.
    pub(super) fn add(&mut self, name: &str) -> NameId {
        let name = &name.as_bytes()[..name.len().min(usize::from(u16::MAX))];
        let units = units_of(name.len());
        let id = match self.gaps.get_mut(units).and_then(Vec::pop) {
            Some(id) => id,
            None => self.bump(units),
        };
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes();
        let bytes = &mut self.blocks[id.block()][id.offset()..];
        bytes[..LENGTH].copy_from_slice(&length);
        bytes[LENGTH..LENGTH + name.len()].copy_from_slice(name);
        id
    }

    fn bump(&mut self, units: usize) -> NameId {
        if self.blocks.is_empty() || self.used + units > BLOCK_UNITS {
            self.blocks.push(vec![0; BLOCK_UNITS * UNIT].into());
            self.used = 0;
        }
        let id = (self.blocks.len() - 1) * BLOCK_UNITS + self.used;
        self.used += units;
        NameId(u32::try_from(id).unwrap_or(u32::MAX))
    }

    pub(super) fn get(&self, id: NameId) -> &str {
        let Some(block) = self.blocks.get(id.block()) else { return "" };
        let bytes = &block[id.offset()..];
        let length = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        std::str::from_utf8(&bytes[LENGTH..LENGTH + length]).unwrap_or_default()
    }

    /// Makes room for another name.
    pub(super) fn remove(&mut self, id: NameId) {
        let units = units_of(self.get(id).len());
        if self.gaps.len() <= units {
            self.gaps.resize_with(units + 1, Vec::new);
        }
        self.gaps[units].push(id);
    }

    /// How many bytes all of that takes up.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let gaps: usize = self.gaps.iter().map(|gaps| gaps.capacity() * size_of::<NameId>()).sum();
        self.blocks.len() * BLOCK_UNITS * UNIT + gaps
    }
}

fn units_of(length: usize) -> usize {
    (LENGTH + length).div_ceil(UNIT)
}

/// Texts by number, from 1 on, for as long as objects use them.
pub(super) struct Interner {
    texts: Vec<Text>,
    by_text: HashMap<Arc<str>, u32>,
    free: Vec<u32>,
    limit: u32,
}

struct Text {
    text: Arc<str>,
    uses: u32,
}

impl Interner {
    /// None yet, and at most `limit` at once.
    pub(super) fn new(limit: u32) -> Self {
        Self { texts: Vec::new(), by_text: HashMap::new(), free: Vec::new(), limit }
    }

    /// The number of the text, which is used once more; none where there are too many.
    pub(super) fn acquire(&mut self, text: &str) -> Option<u32> {
        if let Some(number) = self.by_text.get(text) {
            self.texts[*number as usize - 1].uses += 1;
            return Some(*number);
        }
        let new = Text { text: text.into(), uses: 1 };
        let number = match self.free.pop() {
            Some(number) => number,
            None => u32::try_from(self.texts.len() + 1).ok().filter(|number| *number <= self.limit)?,
        };
        self.by_text.insert(new.text.clone(), number);
        match self.texts.get_mut(number as usize - 1) {
            Some(place) => *place = new,
            None => self.texts.push(new),
        }
        Some(number)
    }

    /// The text is used once less.
    pub(super) fn release(&mut self, number: u32) {
        let Some(known) = number.checked_sub(1).and_then(|at| self.texts.get_mut(at as usize)) else { return };
        known.uses = known.uses.saturating_sub(1);
        if known.uses == 0 && self.by_text.remove(&known.text).is_some() {
            self.free.push(number);
        }
    }

    pub(super) fn find(&self, text: &str) -> Option<u32> {
        self.by_text.get(text).copied()
    }

    /// The text; empty for 0.
    pub(super) fn get(&self, number: u32) -> &str {
        number.checked_sub(1).and_then(|at| self.texts.get(at as usize)).map_or("", |known| &known.text)
    }

    /// The texts in use.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.by_text.keys().map(|text| &**text)
    }

    /// How many bytes all of that takes up, by and large.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.texts.iter().map(|known| known.text.len() + 64).sum()
    }
}
