//! The verdict as text.

use std::{collections::BTreeMap, fmt};

use super::{Ended, Verdict};
use crate::{
    chaos::schedule::Kind,
    checker::{Gap, Report},
};

impl Verdict {
    fn faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: BTreeMap<Kind, (usize, usize)> = BTreeMap::new();
        for one in &self.injected {
            let (times, hit) = kinds.entry(one.fault.kind).or_default();
            *times += 1;
            *hit += one.hit.as_ref().copied().unwrap_or_default();
        }
        writeln!(f, "  {:<20}{:>6}{:>10}", "fault", "times", "hit")?;
        for (kind, (times, hit)) in kinds {
            writeln!(f, "  {:<20}{times:>6}{hit:>10}", format!("{kind:?}"))?;
        }
        for one in self.missed() {
            let why = one.hit.as_ref().err().map_or("it hit nothing", String::as_str);
            writeln!(f, "  NOT HAPPENED {:.1} s  {}: {why}", one.at.as_secs_f64(), one.fault)?;
        }
        Ok(())
    }

    fn promises(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { report, writes, .. } = self;
        let others = [
            ("overlaps", self.overlaps.len()),
            ("overlaps of a reconcile silent for longer than the grace", self.excused.len()),
            ("Leases taken before their time", self.early.len()),
            ("objects taken when their drain was overdue", self.overdue.len()),
            ("forgotten", report.forgotten.len()),
            ("creates refused because of owners that were gone", writes.of_the_gone),
            ("creates refused of what it had made within 1 s itself", writes.just_made),
            ("children moved with owners whose drain was overdue", self.forced.len()),
            ("children that a policy kept from their owners", self.refused.len()),
            ("children apart from their owner at the end", report.apart.len()),
            ("writes of former owners that the fence kept out", writes.kept_out),
            ("writes of shards of which nothing is known", writes.unknown),
        ];
        for (what, count) in writes.faults().map(|(what, found)| (what, found.len())).into_iter().chain(others) {
            writeln!(f, "  {what:<60}{count:>6}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.faults(f)?;
        writeln!(f, "  controllers that no longer led ended, and others: {} times", self.revived.len())?;
        self.failed()
            .try_for_each(|Ended { name, said }| writeln!(f, "  {name} ENDED BY ITSELF, after it said: {said}"))?;
        let reconciles: usize = self.report.reconciles.values().sum();
        let (moves, writes) = (self.writes.handovers.len(), self.writes.by_shards);
        writeln!(
            f,
            "\n  {} changes, {reconciles} reconciles, {moves} moves acknowledged, {writes} writes judged",
            self.changes
        )?;
        self.promises(f)?;
        for judged in &self.excused {
            let ((first, since), (second, at)) = (&judged.overlap.first, &judged.overlap.second);
            writeln!(
                f,
                "    excused: {} {first} since {since:?}, {second} from {at:?}, silent {:?}",
                judged.name, judged.silent
            )?;
        }
        if let Some(Gap { name, cause, from, until, .. }) = self.longest() {
            let until = until.map_or("no end".to_owned(), |until| format!("{:.1?}", until.saturating_sub(*from)));
            writeln!(f, "  longest without owner: {name} from {:.1} s for {until}, {cause:?}", from.as_secs_f64())?;
        }
        match &self.unsettled {
            Some(unrest) => writeln!(f, "  NOT AT REST: {unrest}")?,
            None => writeln!(f, "  all came to rest")?,
        }
        if !self.is_clean() {
            let Report { forgotten, apart, .. } = &self.report;
            writeln!(f, "{:#?}", (&self.overlaps, &self.early, forgotten, apart))?;
            for (what, found) in self.writes.faults().into_iter().filter(|(_, found)| !found.is_empty()) {
                writeln!(f, "{what}: {found:#?}")?;
            }
        }
        self.histories.iter().try_for_each(|history| writeln!(f, "{history}"))?;
        write!(f, "  {}", if self.is_clean() { "all promises were kept" } else { "FAILED" })
    }
}
