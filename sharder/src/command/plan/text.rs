//! A plan as tables for people.

use std::fmt;

use super::forecast::{Forecast, How, MOVED, Whose};

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards = self.shards.iter().map(|(name, it)| {
            let numbers = [it.weight.to_string(), it.now.to_string(), it.then.to_string()];
            [name.to_string(), it.state.to_owned()].into_iter().chain(numbers).collect()
        });
        let (now, then) = self.without;
        let nobody = (now > 0 || then > 0)
            .then(|| vec![NOBODY.to_owned(), String::new(), String::new(), now.to_string(), then.to_string()]);
        table(f, &["SHARD", "STATE", "WEIGHT", "NOW", "THEN"], &shards.chain(nobody).collect::<Vec<_>>(), 2)?;
        if self.has_changes() {
            let ways = self.ways.iter().map(|(way, count)| {
                let how = way.how.for_people().to_owned();
                vec![way.resource.to_string(), way.from.to_string(), way.to.to_string(), count.to_string(), how]
            });
            writeln!(f)?;
            table(f, &["RESOURCE", "FROM", "TO", "OBJECTS", "HOW"], &ways.collect::<Vec<_>>(), 3)?;
        }
        writeln!(f)?;
        if self.is_paused {
            writeln!(f, "The ring is paused: objects of shards that work stay there until it is resumed.")?;
        }
        for problem in &self.problems {
            writeln!(f, "The ring has a problem: {problem}.")?;
        }
        for unread in &self.unread {
            writeln!(f, "Not looked at: {unread}.")?;
        }
        let (assigned, moved) = (self.going(&[How::Assigned]), self.going(&MOVED));
        let stay = self.objects.saturating_sub(assigned + moved + then);
        let follow = self.going(&[How::Follows]);
        write!(
            f,
            "{} objects: {stay} stay, {assigned} to be assigned, {moved} to be moved; {} children: {follow} to follow.",
            self.objects, self.children
        )?;
        match self.going(&[How::Withdrawn, How::Released]) {
            0 => Ok(()),
            leaving => write!(f, "\n{leaving} more have left the ring and lose their labels."),
        }
    }
}

const NOBODY: &str = "(nobody)";

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shard(shard) => shard.fmt(f),
            Self::Nobody => f.write_str(NOBODY),
            Self::Others => f.write_str("(unknown)"),
        }
    }
}

/// Columns from `first_number` on, but for a last one of words, have numbers, which stand at their right.
fn table(f: &mut fmt::Formatter<'_>, head: &[&str], rows: &[Vec<String>], first_number: usize) -> fmt::Result {
    let head: Vec<_> = head.iter().map(|&cell| cell.to_owned()).collect();
    let widths: Vec<_> = (0..head.len())
        .map(|at| rows.iter().chain([&head]).map(|row| row[at].len()).max().unwrap_or_default())
        .collect();
    let numbers = |at: usize| {
        at >= first_number && rows.iter().all(|row| row[at].bytes().all(|b| b.is_ascii_digit() || b == b'.'))
    };
    for row in std::iter::once(&head).chain(rows) {
        let cells = row.iter().enumerate().map(|(at, cell)| {
            let width = widths[at];
            if numbers(at) { format!("{cell:>width$}") } else { format!("{cell:width$}") }
        });
        writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}
