//! What the live view shows at one moment, as text.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use crate::observer::Picture;

/// A moment of the demo.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub(super) elapsed: Duration,
    /// What is going on, in words.
    pub(super) chapter: String,
    pub(super) picture: Picture,
    /// Reconciles so far, by instance.
    pub(super) reconciles: BTreeMap<String, usize>,
    pub(super) per_second: usize,
    /// Objects whose newest generation was not worked on yet.
    pub(super) pending: usize,
    pub(super) unowned: usize,
    pub(super) overlaps: usize,
}

/// A replica in the view.
#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    lease: String,
    objects: usize,
    moving: usize,
    reconciles: usize,
}

impl Frame {
    /// A block of lines, to be drawn over the last one.
    pub(super) fn block(&self) -> String {
        let mut text = format!("{}  {}\n\n", clock(self.elapsed), self.chapter);
        let _ =
            writeln!(text, "{:<14}{:<12}{:>9}{:>13}{:>13}", "replica", "Lease", "objects", "moving away", "reconciles");
        for (name, row) in self.rows() {
            let Row { lease, objects, moving, reconciles } = row;
            let _ = writeln!(text, "{name:<14}{lease:<12}{objects:>9}{moving:>13}{reconciles:>13}");
        }
        let _ = write!(text, "\n{}\n", self.figures());
        text
    }

    /// One line, for a log.
    pub(super) fn line(&self) -> String {
        let mut text = format!("{}  {} |", clock(self.elapsed), self.chapter);
        for (name, row) in self.rows() {
            let _ = write!(text, " {name} {} {},", row.lease, row.objects);
        }
        let _ = write!(text, " | {}", self.figures());
        text
    }

    fn figures(&self) -> String {
        format!(
            "moves in progress {}, without owner {}, to be worked on {}, reconciles/s {}, overlaps {}",
            self.picture.draining.values().sum::<usize>(),
            self.unowned,
            self.pending,
            self.per_second,
            self.overlaps
        )
    }

    /// Everybody who has a Lease, owns something, or has worked.
    fn rows(&self) -> BTreeMap<&str, Row> {
        let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
        for (shard, state) in &self.picture.shards {
            rows.entry(shard).or_default().lease.clone_from(state);
        }
        for (shard, objects) in &self.picture.owned {
            rows.entry(shard).or_default().objects = *objects;
        }
        for (shard, moving) in &self.picture.draining {
            rows.entry(shard).or_default().moving = *moving;
        }
        for (instance, reconciles) in &self.reconciles {
            rows.entry(pod(instance)).or_default().reconciles += reconciles;
        }
        for row in rows.values_mut().filter(|row| row.lease.is_empty()) {
            "-".clone_into(&mut row.lease);
        }
        rows
    }
}

/// The Pod of an instance: its lives are counted together.
pub(super) fn pod(instance: &str) -> &str {
    instance.split('.').next().unwrap_or(instance)
}

fn clock(elapsed: Duration) -> String {
    format!("{:02}:{:02}", elapsed.as_secs() / 60, elapsed.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        Frame {
            elapsed: Duration::from_secs(83),
            chapter: "a shard joins".to_owned(),
            picture: Picture {
                shards: [("shard-1".to_owned(), "ready".to_owned())].into(),
                owned: [("shard-1".to_owned(), 7)].into(),
                draining: [("shard-1".to_owned(), 2)].into(),
                unassigned: 0,
            },
            reconciles: [("shard-1".to_owned(), 3), ("shard-1.2".to_owned(), 4), ("gone".to_owned(), 1)].into(),
            per_second: 5,
            ..Frame::default()
        }
    }

    #[test]
    fn lives_of_a_pod_are_one_row() {
        let frame = frame();
        let row = Row { lease: "ready".to_owned(), objects: 7, moving: 2, reconciles: 7 };
        assert_eq!(frame.rows()["shard-1"], row);
        assert_eq!(frame.rows()["gone"].lease, "-");
    }

    #[test]
    fn a_line_is_one_line_and_says_all() {
        let line = frame().line();
        assert!(!line.contains('\n'));
        for part in ["01:23", "a shard joins", "shard-1 ready 7", "moves in progress 2", "overlaps 0"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }

    #[test]
    fn a_block_ends_with_the_figures() {
        assert!(frame().block().ends_with("overlaps 0\n"));
    }
}
