//! Finds label entries with one of two keys in JSON, in chunks as they come.
//!
//! An entry has the comma and the blanks before it. The first of a map has the comma after it. A map with no other entry stays,
//! and is empty: so a JSON patch that adds one label has a map to add to. Other bytes are no entry: a value that is
//! no plain string, a key within a string (its quotes are escaped there), or an entry with long blanks.

use std::ops::Range;

use memchr::memmem::Finder;

use super::Keys;

/// The longest run of blanks in an entry, in bytes.
const MAX_BLANKS: usize = 256;
/// The longest value of an entry, in bytes: a label's has 63 characters.
const MAX_VALUE: usize = 256;

/// The finder of entries in one JSON text.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// The last byte that was outside of entries.
    last: u8,
}

/// Why no entry is found.
enum Stop {
    /// Another byte stands here than in an entry.
    Other,
    /// The blanks, or the value, are too long.
    TooLong,
    /// More has to come.
    Open,
}

impl Entries {
    /// Reports where entries stand in the next bytes. Returns from where on these have to come again, with more after them.
    pub(super) fn find(&mut self, keys: &Keys, json: &[u8], mut found: impl FnMut(Range<usize>)) -> usize {
        let (mut from, mut open): (_, Option<usize>) = (0, None);
        for (at, end) in positions(keys, json) {
            // It may be the value of an entry that was found.
            let start = if at < from { None } else { self.start(json, from, at) };
            let Some((start, is_first)) = start else { continue };
            match entry_end(json, end, is_first) {
                Ok(end) => {
                    self.pass(&json[from..start]);
                    found(start..end);
                    from = end;
                }
                Err(Stop::Open) => {
                    open = Some(start);
                    break;
                }
                Err(Stop::Other | Stop::TooLong) => {}
            }
        }
        let cut = || from + cut_key(keys, &json[from..]).unwrap_or(json.len() - from);
        let rest = open.or_else(|| self.start(json, from, cut()).map(|(start, _)| start)).unwrap_or(json.len());
        self.pass(&json[from..rest]);
        rest
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    /// Returns where an entry would begin whose key begins at `at`, and whether it is the first of its map. What is before
    /// `from` has passed, or is an entry.
    fn start(&self, json: &[u8], from: usize, at: usize) -> Option<(usize, bool)> {
        let blanks = json[from..at].iter().rev().take_while(|byte| is_blank(**byte)).count();
        let begin = at - blanks;
        match json[from..begin].last().copied() {
            _ if blanks > MAX_BLANKS => None,
            Some(b',') => Some((begin - 1, false)),
            before => (before.unwrap_or(self.last) == b'{').then_some((begin, true)),
        }
    }
}

/// Returns where the keys end that stand in the JSON, quotes and all, by where they begin.
fn positions(keys: &Keys, json: &[u8]) -> Vec<(usize, usize)> {
    let ends = |key| move |at| (at, at + Finder::needle(key).len());
    let mut found: Vec<_> = keys.quoted().flat_map(|key| key.find_iter(json).map(ends(key))).collect();
    found.sort_unstable();
    found
}

/// Returns where a key begins that the JSON ends within.
fn cut_key(keys: &Keys, json: &[u8]) -> Option<usize> {
    let longest = keys.quoted().map(|key| key.needle().len()).max()?;
    let tail = json.len().saturating_sub(longest - 1);
    let at = tail + json[tail..].iter().rposition(|byte| *byte == b'"')?;
    keys.quoted().any(|key| key.needle().starts_with(&json[at..])).then_some(at)
}

/// Returns where an entry ends whose key ends at `at`.
fn entry_end(json: &[u8], at: usize, is_first: bool) -> Result<usize, Stop> {
    let value = behind(json, behind(json, at, b':')?, b'"')?;
    let rest = &json[value..];
    let end = match rest.iter().take(MAX_VALUE + 1).position(|byte| matches!(byte, b'"' | b'\\')) {
        Some(length) if rest[length] == b'"' => value + length + 1,
        Some(_) => return Err(Stop::Other),
        None if rest.len() <= MAX_VALUE => return Err(Stop::Open),
        None => return Err(Stop::TooLong),
    };
    match behind(json, end, b',') {
        _ if !is_first => Ok(end),
        // It is the only one of its map.
        Err(Stop::Other) => Ok(end),
        comma => comma,
    }
}

/// Returns where a byte ends that stands behind blanks, if any.
fn behind(json: &[u8], at: usize, wanted: u8) -> Result<usize, Stop> {
    let blanks = json[at..].iter().take_while(|byte| is_blank(**byte)).count();
    match json.get(at + blanks) {
        _ if blanks > MAX_BLANKS => Err(Stop::TooLong),
        Some(byte) if *byte == wanted => Ok(at + blanks + 1),
        Some(_) => Err(Stop::Other),
        None => Err(Stop::Open),
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\t' | b'\r')
}
