//! Gives each `DELETED` of a watch in JSON a deletionTimestamp, for a client that ends nothing without one.
//!
//! kopf ends timers and daemons of an object that is marked as deleted, and at a `DELETED` without a mark it forgets the object
//! and leaves them running. An object that leaves the shard is not marked.

use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::MAX_KEPT;

/// How an API server begins a `DELETED`: it writes the type first.
const DELETED: &[u8] = br#"{"type":"DELETED""#;

/// Adds a deletionTimestamp to each `DELETED` event of a watch in JSON. Changes no byte of another event, and holds
/// nothing of it back but its type.
#[derive(Debug, Default)]
pub struct Marker {
    /// Of an event that is a `DELETED`, or may be one.
    held: Vec<u8>,
    /// Whether the event under way is none.
    passes: bool,
}

impl Marker {
    /// What the client gets of the next piece.
    pub fn pass(&mut self, piece: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(self.held.len() + piece.len());
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.take(part, &mut out);
        }
        out.into()
    }

    /// Takes what a line has in a piece.
    fn take(&mut self, part: &[u8], out: &mut Vec<u8>) {
        let is_end = part.ends_with(b"\n");
        if self.passes {
            out.extend_from_slice(part);
        } else {
            self.held.extend_from_slice(part);
            let compared = self.held.len().min(DELETED.len());
            let may_be_deleted = self.held[..compared] == DELETED[..compared];
            if may_be_deleted && self.held.len() <= MAX_KEPT {
                if is_end {
                    out.extend(marked(&std::mem::take(&mut self.held), Timestamp::now()));
                }
                return;
            }
            out.append(&mut self.held);
        }
        self.passes = !is_end;
    }

    /// Whether the client got nothing yet of the event under way.
    pub fn withholds(&self) -> bool {
        !self.held.is_empty()
    }

    /// The memory that is held back, in bytes.
    pub fn kept(&self) -> usize {
        self.held.capacity()
    }
}

/// The same event with a deletionTimestamp, unless it has one. What is no JSON stays as it is.
pub(crate) fn marked(line: &[u8], now: Timestamp) -> Vec<u8> {
    let Ok(mut event) = serde_json::from_slice::<Value>(line) else { return line.to_vec() };
    let Some(Value::Object(metadata)) = event.pointer_mut("/object/metadata") else { return line.to_vec() };
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    metadata.entry("deletionTimestamp").or_insert(Value::String(time));
    let mut line = event.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn line(event_type: &str, metadata: &Value) -> String {
        // As an API server writes it: the type first.
        format!("{{\"type\":\"{event_type}\",\"object\":{}}}\n", json!({"kind": "Thing", "metadata": metadata}))
    }

    /// What the client gets, piece by piece.
    fn shown(pieces: &[&[u8]]) -> Vec<u8> {
        let mut marker = Marker::default();
        let shown: Vec<_> = pieces.iter().flat_map(|piece| marker.pass(piece)).collect();
        assert!(!marker.withholds());
        shown
    }

    #[test]
    fn a_deleted_gets_a_mark_and_keeps_the_one_it_has() {
        let now: Timestamp = "2026-11-02T10:11:12Z".parse().unwrap();
        for (was, is) in [
            (json!({"name": "a"}), "2026-11-02T10:11:12Z"),
            (json!({"name": "a", "deletionTimestamp": "2026-11-01T00:00:00Z"}), "2026-11-01T00:00:00Z"),
        ] {
            let event: Value = serde_json::from_slice(&marked(line("DELETED", &was).as_bytes(), now)).unwrap();
            assert_eq!(event["object"]["metadata"], json!({"name": "a", "deletionTimestamp": is}));
            assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("DELETED"), &json!("Thing")));
        }
    }

    #[test]
    fn what_has_no_metadata_stays_as_it_is() {
        for line in ["{\"type\":\"DELETED\"\n", "{\"type\":\"DELETED\",\"object\":{}}\n", "{\"type\":\"DELETED\"}\n"] {
            assert_eq!(shown(&[line.as_bytes()]), line.as_bytes());
        }
    }

    #[test]
    fn an_event_that_is_too_long_passes_without_a_mark() {
        let long = line("DELETED", &json!({"name": "a".repeat(MAX_KEPT)}));
        assert!(shown(&[long.as_bytes()]) == long.as_bytes());
    }

    proptest! {
        /// Wherever the pieces end, each `DELETED` has a mark, and no byte of another event has changed.
        #[test]
        fn pieces_make_no_difference(
            types in prop::collection::vec(prop::sample::select(&["ADDED", "MODIFIED", "DELETED", "BOOKMARK"][..]), 0..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let lines: Vec<_> = types.iter().map(|it| line(it, &json!({"name": "a"}))).collect();
            let sent = lines.concat().into_bytes();
            let mut cuts: Vec<_> = cuts.iter().map(|at| at.index(sent.len() + 1)).collect();
            cuts.extend([0, sent.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|ends| &sent[ends[0]..ends[1]]).collect();
            let shown = String::from_utf8(shown(&pieces)).unwrap();
            prop_assert_eq!(shown.lines().count(), lines.len());
            for ((line, event_type), shown) in lines.iter().zip(types).zip(shown.lines()) {
                if event_type == "DELETED" {
                    prop_assert!(shown.contains("deletionTimestamp"));
                } else {
                    prop_assert_eq!(shown, line.trim_end());
                }
            }
        }
    }
}
