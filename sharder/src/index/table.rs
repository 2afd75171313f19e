//! All records: in chunks that never move, by slot, and found by uid.

use hashbrown::HashTable;

use super::record::{Record, ResourceId, Slot, Uid};

/// Records in a chunk.
const CHUNK: usize = 4096;
/// No slot.
const NONE: u32 = u32::MAX;

/// The records.
pub(super) struct Table {
    chunks: Vec<Box<[Record]>>,
    /// The first free slot.
    free: u32,
    /// The slots of each resource, by uid.
    lookup: Vec<HashTable<u32>>,
}

impl Table {
    /// None yet, of so many resources.
    pub(super) fn new(resources: usize) -> Self {
        Self { chunks: Vec::new(), free: NONE, lookup: (0..resources).map(|_| HashTable::new()).collect() }
    }

    /// The record, if the slot has one.
    pub(super) fn get(&self, Slot(slot): Slot) -> Option<&Record> {
        let record = self.chunks.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)?;
        (!record.is_vacant()).then_some(record)
    }

    /// The record of a slot that is known to have one.
    pub(super) fn at(&self, Slot(slot): Slot) -> &Record {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    pub(super) fn at_mut(&mut self, Slot(slot): Slot) -> &mut Record {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    pub(super) fn find(&self, resource: ResourceId, uid: Uid) -> Option<Slot> {
        let lookup = self.lookup.get(usize::from(resource.0))?;
        lookup.find(uid.hash(), |slot| self.at(Slot(*slot)).uid == uid).copied().map(Slot)
    }

    pub(super) fn insert(&mut self, record: Record) -> Slot {
        if self.free == NONE {
            self.add_chunk();
        }
        let slot = Slot(self.free);
        self.free = self.at(slot).name.0;
        *self.at_mut(slot) = record;
        let chunks = &self.chunks;
        let hash = |slot: &u32| chunks[*slot as usize / CHUNK][*slot as usize % CHUNK].uid.hash();
        self.lookup[usize::from(record.resource().0)].insert_unique(record.uid.hash(), slot.0, hash);
        slot
    }

    fn add_chunk(&mut self) {
        let first = u32::try_from(self.chunks.len() * CHUNK).unwrap_or(NONE);
        let next = |at: u32| if at as usize + 1 == CHUNK { NONE } else { first + at + 1 };
        self.chunks.push((0..).take(CHUNK).map(|at| Record::vacant(next(at))).collect());
        self.free = first;
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let Record { uid, .. } = *self.at(slot);
        let resource = self.at(slot).resource();
        if let Ok(entry) = self.lookup[usize::from(resource.0)].find_entry(uid.hash(), |known| *known == slot.0) {
            entry.remove();
        }
        *self.at_mut(slot) = Record::vacant(self.free);
        self.free = slot.0;
    }

    /// How many chunks there are, so that a walk over all records can be interrupted after each.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The records of a chunk.
    pub(super) fn in_chunk(&self, chunk: usize) -> impl Iterator<Item = (Slot, &Record)> {
        let first = u32::try_from(chunk * CHUNK).unwrap_or(NONE);
        let records = self.chunks.get(chunk).into_iter().flatten();
        (first..).map(Slot).zip(records).filter(|(_, record)| !record.is_vacant())
    }

    /// All records.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &Record)> {
        (0..self.chunks()).flat_map(|chunk| self.in_chunk(chunk))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.chunks.iter_mut().flatten().filter(|record| !record.is_vacant())
    }

    /// How many objects of a resource there are.
    #[cfg(test)]
    pub(super) fn len(&self, resource: ResourceId) -> usize {
        self.lookup.get(usize::from(resource.0)).map_or(0, HashTable::len)
    }

    /// How many bytes all of that takes up.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let lookup: usize = self.lookup.iter().map(HashTable::allocation_size).sum();
        self.chunks.len() * CHUNK * size_of::<Record>() + lookup
    }
}
