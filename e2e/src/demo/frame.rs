//! What the live view shows at one moment, as text.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

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

impl Frame {
    /// A block of lines, to be drawn over the last one.
    pub(super) fn block(&self) -> String {
        let mut text = format!("{}  {}\n\n", clock(self.elapsed), self.chapter);
        let _ =
            writeln!(text, "{:<14}{:<12}{:>9}{:>13}{:>13}", "replica", "Lease", "objects", "moving away", "reconciles");
        for (name, lease, [objects, moving, reconciles]) in self.rows() {
            let _ = writeln!(text, "{name:<14}{lease:<12}{objects:>9}{moving:>13}{reconciles:>13}");
        }
        let _ = write!(text, "\n{}\n", self.figures());
        text
    }

    /// One line, for a log.
    pub(super) fn line(&self) -> String {
        let mut text = format!("{}  {} |", clock(self.elapsed), self.chapter);
        for (name, lease, [objects, ..]) in self.rows() {
            let _ = write!(text, " {name} {lease} {objects},");
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

    /// Each replica that has a Lease, owns something, or has worked: its name, its Lease, and its objects, those of them that
    /// move away, and its reconciles.
    fn rows(&self) -> Vec<(&str, &str, [usize; 3])> {
        let Picture { shards, owned, draining, .. } = &self.picture;
        let reconciles = by_pod(&self.reconciles);
        let counted = owned.keys().chain(draining.keys()).chain(shards.keys()).map(String::as_str);
        let names: BTreeSet<&str> = counted.chain(reconciles.keys().copied()).collect();
        let of = |counts: &BTreeMap<String, usize>, name: &str| counts.get(name).copied().unwrap_or_default();
        let rows = names.into_iter().map(|name| {
            let worked = reconciles.get(name).copied().unwrap_or_default();
            (name, shards.get(name).map_or("-", String::as_str), [of(owned, name), of(draining, name), worked])
        });
        rows.collect()
    }
}

/// Counts the reconciles of a Pod's lives together.
pub(super) fn by_pod(reconciles: &BTreeMap<String, usize>) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for (instance, reconciles) in reconciles {
        *counts.entry(instance.split('.').next().unwrap_or(instance)).or_default() += reconciles;
    }
    counts
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
        assert_eq!(frame.rows(), [("gone", "-", [0, 0, 1]), ("shard-1", "ready", [7, 2, 7])]);
    }

    #[test]
    fn a_line_is_one_line_and_says_all_and_a_block_ends_with_the_figures() {
        let (line, block) = (frame().line(), frame().block());
        assert!(!line.contains('\n') && block.ends_with("overlaps 0\n"), "{line}, {block}");
        for part in ["01:23", "a shard joins", "shard-1 ready 7", "moves in progress 2", "overlaps 0"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}
