//! The final table.

use std::{collections::BTreeSet, fmt::Write as _, path::Path, time::Duration};

use super::{Arguments, frame::by_pod, story::Contrast};
use crate::{
    checker::{Cause, Report, Verdict, percentile},
    system::System,
};

/// So many faults are named; more would scroll the table away.
const NAMED_FAULTS: usize = 10;

/// The promises.
const KEPT: &str = "no object was ever worked on twice at once, none was taken from a shard that had it, none was forgotten, \
                    and all children are beside their owners";

/// Whether they were kept. What the replicas without Ringside wrote stands in the audit log as well: of it nothing was lost.
pub(super) fn is_clean(report: &Report, writes: &Verdict) -> bool {
    report.is_clean() && writes.lost.is_empty()
}

/// What was found.
pub(super) fn table(arguments: &Arguments, contrast: &Contrast, report: &Report, writes: &Verdict) -> String {
    let mut text = String::from("\nReconciles without Ringside\n");
    for (replica, count) in contrast {
        let _ = writeln!(text, "  {replica:<14}{count:>8}");
    }
    let _ = writeln!(text, "\nWith Ringside, {} objects, seed {}", arguments.objects(), arguments.seed);
    let _ = writeln!(text, "  {:<14}{:>8}{:>12}", "shard", "objects", "reconciles");
    let reconciles = by_pod(&report.reconciles);
    let shards: BTreeSet<&str> = report.objects.keys().map(String::as_str).chain(reconciles.keys().copied()).collect();
    for shard in shards {
        let objects = report.objects.get(shard).copied().unwrap_or_default();
        let reconciles = reconciles.get(shard).copied().unwrap_or_default();
        let _ = writeln!(text, "  {shard:<14}{objects:>8}{reconciles:>12}");
    }
    let _ =
        writeln!(text, "\n  {:<30}{:>8}{:>10}{:>10}{:>10}", "time without owner", "times", "median", "99 %", "longest");
    for (cause, name) in [
        (Cause::Created, "new"),
        (Cause::Unassigned, "moved from a live shard"),
        (Cause::Released, "shard left gracefully"),
        (Cause::Dead, "shard died"),
    ] {
        let times = report.times_without_owner(cause);
        let value = |percent| percentile(&times, percent).map_or_else(|| "-".to_owned(), millis);
        let _ = writeln!(text, "  {name:<30}{:>8}{:>10}{:>10}{:>10}", times.len(), value(50), value(99), value(100));
    }
    faults(&mut text, report, writes);
    text
}

fn faults(text: &mut String, report: &Report, writes: &Verdict) {
    let overlaps = report.overlaps.iter().map(|overlap| {
        let ((first, since), (second, at)) = (&overlap.first, &overlap.second);
        format!("{}: {first} since {}, {second} from {}", overlap.uid, millis(*since), millis(*at))
    });
    let taken = writes.lost.iter().map(|one| {
        let to = one.owner.as_deref().unwrap_or("no shard");
        format!("{}: by {to} from {} at {}", one.object, one.shard, one.answered)
    });
    let forgotten = report.forgotten.iter().map(|one| {
        let what = one.generation.map_or("without owner".to_owned(), |generation| format!("generation {generation}"));
        format!("{}: {what} for {}", one.name, millis(one.waited))
    });
    let apart = report.apart.iter().map(|one| {
        let [child, owner] = [&one.child_shard, &one.owner_shard].map(|shard| shard.as_deref().unwrap_or("no shard"));
        format!("{} of {}: {child}, its owner {owner}", one.kind, one.owner)
    });
    text.push('\n');
    told(text, "overlaps", overlaps);
    told(text, "taken from a live shard", taken);
    told(text, "forgotten", forgotten);
    told(text, "children apart from their owners", apart);
    let _ = writeln!(text, "  {:<34}{:>6}", "children that were created twice", report.second_creates);
    let verdict = if is_clean(report, writes) { KEPT } else { "FAILED" };
    let _ = write!(text, "\n  {verdict}");
}

/// Adds how many faults of a kind there are, and names some of them.
fn told(text: &mut String, kind: &str, faults: impl ExactSizeIterator<Item = String>) {
    let _ = writeln!(text, "  {kind:<34}{:>6}", faults.len());
    faults.take(NAMED_FAULTS).for_each(|fault| *text += &format!("    {fault}\n"));
}

/// How to go on with a system that is left running.
pub(super) fn look_around(system: &System, kubectl: &Path) -> String {
    format!(
        "\nEverything goes on until Ctrl-C. To look around:\n\n  export KUBECONFIG={}\n  {} get websites --show-labels\n\nThe logs are in {}.",
        system.control_plane().kubeconfig_path().display(),
        kubectl.display(),
        system.dir().display()
    )
}

fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::checker::{Gap, samples};

    fn arguments() -> Arguments {
        Arguments::parse_from(["demo"])
    }

    #[test]
    fn a_clean_run_says_so() {
        let gap = Gap {
            uid: "u".to_owned(),
            name: "default/a".to_owned(),
            cause: Cause::Released,
            from: Duration::from_millis(100),
            until: Some(Duration::from_millis(130)),
        };
        let report = Report {
            gaps: vec![gap],
            reconciles: [("shard-0".to_owned(), 3), ("shard-0.2".to_owned(), 2)].into(),
            objects: [("shard-0".to_owned(), 9)].into(),
            ..Report::default()
        };
        let text = table(&arguments(), &[("replica-0".to_owned(), 5)].into(), &report, &Verdict::default());
        assert!(text.contains("none was forgotten"), "{text}");
        let line =
            |start: &str| text.lines().find(|line| line.trim().starts_with(start)).unwrap_or_default().to_owned();
        assert_eq!(line("shard-0").split_whitespace().collect::<Vec<_>>(), ["shard-0", "9", "5"]);
        assert!(line("shard left gracefully").ends_with("30 ms"), "{text}");
    }

    #[test]
    fn faults_are_named() {
        let report = Report {
            overlaps: vec![samples::overlap()],
            forgotten: vec![samples::forgotten("default/lost")],
            apart: vec![samples::apart("default/moved")],
            ..Report::default()
        };
        let writes = Verdict { lost: vec![samples::landed("default/taken")], ..Verdict::default() };
        let text = table(&arguments(), &Contrast::new(), &report, &writes);
        for part in [
            "u: a.1 since 0 ms, b.2 from 7 ms",
            "default/lost: generation 4 for 20000 ms",
            "websites default/taken: by b from a at 1970-01-01T00:00:00Z",
            "Secret of default/moved: no shard, its owner b",
            "FAILED",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!is_clean(&Report::default(), &writes) && is_clean(&Report::default(), &Verdict::default()));
    }
}
