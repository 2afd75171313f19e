//! The final table.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, time::Duration};

use super::{Arguments, frame::pod, story::Contrast};
use crate::{
    checker::{Cause, Report, percentile},
    system::System,
};

/// So many faults are named; more would scroll the table away.
const NAMED_FAULTS: usize = 10;

/// The promises.
const KEPT: &str = "no object was ever worked on twice at once, none was taken from a shard that had it, none was forgotten, \
                    and all children are beside their owners";

/// What was found.
pub(super) fn table(arguments: &Arguments, contrast: &Contrast, report: &Report) -> String {
    let mut text = String::from("\nReconciles without Ringside\n");
    for (replica, count) in contrast {
        let _ = writeln!(text, "  {replica:<14}{count:>8}");
    }
    let _ = writeln!(text, "\nWith Ringside, {} objects, seed {}", arguments.objects, arguments.seed);
    let _ = writeln!(text, "  {:<14}{:>8}{:>12}", "shard", "objects", "reconciles");
    for (shard, (objects, reconciles)) in by_shard(report) {
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
    faults(&mut text, report);
    text
}

fn faults(text: &mut String, report: &Report) {
    let _ = writeln!(text, "\n  {:<34}{:>6}", "overlaps", report.overlaps.len());
    for overlap in report.overlaps.iter().take(NAMED_FAULTS) {
        let ((first, since), (second, at)) = (&overlap.first, &overlap.second);
        let _ = writeln!(text, "    {}: {first} since {}, {second} from {}", overlap.uid, millis(*since), millis(*at));
    }
    let _ = writeln!(text, "  {:<34}{:>6}", "taken from a live shard", report.taken.len());
    for taken in report.taken.iter().take(NAMED_FAULTS) {
        let _ = writeln!(text, "    {}: by {} from {} at {}", taken.name, taken.to, taken.from, millis(taken.at));
    }
    let _ = writeln!(text, "  {:<34}{:>6}", "forgotten", report.forgotten.len());
    for forgotten in report.forgotten.iter().take(NAMED_FAULTS) {
        let what =
            forgotten.generation.map_or("without owner".to_owned(), |generation| format!("generation {generation}"));
        let _ = writeln!(text, "    {}: {what} for {}", forgotten.name, millis(forgotten.waited));
    }
    let _ = writeln!(text, "  {:<34}{:>6}", "children apart from their owners", report.apart.len());
    for apart in report.apart.iter().take(NAMED_FAULTS) {
        let shard = |shard: &Option<String>| shard.clone().unwrap_or_else(|| "nobody".to_owned());
        let (child, owner) = (shard(&apart.child_shard), shard(&apart.owner_shard));
        let _ = writeln!(text, "    {} of {}: {child}, its owner {owner}", apart.kind, apart.owner);
    }
    let _ = writeln!(text, "  {:<34}{:>6}", "children that were created twice", report.second_creates);
    let verdict = if report.is_clean() { KEPT } else { "FAILED" };
    let _ = write!(text, "\n  {verdict}");
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

fn by_shard(report: &Report) -> BTreeMap<&str, (usize, usize)> {
    let mut shards: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (shard, objects) in &report.objects {
        shards.entry(shard).or_default().0 += objects;
    }
    for (instance, reconciles) in &report.reconciles {
        shards.entry(pod(instance)).or_default().1 += reconciles;
    }
    shards
}

fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::{Apart, Forgotten, Gap, Overlap, Taken};

    fn arguments() -> Arguments {
        Arguments { objects: 300, shards: 3, seed: 1, keep: false }
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
        let text = table(&arguments(), &[("replica-0".to_owned(), 5)].into(), &report);
        assert!(text.contains("none was forgotten"), "{text}");
        let line =
            |start: &str| text.lines().find(|line| line.trim().starts_with(start)).unwrap_or_default().to_owned();
        assert_eq!(line("shard-0").split_whitespace().collect::<Vec<_>>(), ["shard-0", "9", "5"]);
        assert!(line("shard left gracefully").ends_with("30 ms"), "{text}");
    }

    #[test]
    fn faults_are_named() {
        let report = Report {
            overlaps: vec![Overlap {
                uid: "u-1".to_owned(),
                first: ("a".to_owned(), Duration::ZERO),
                second: ("b".to_owned(), Duration::from_millis(7)),
            }],
            taken: vec![Taken {
                uid: "u-3".to_owned(),
                name: "default/taken".to_owned(),
                from: "shard-0".to_owned(),
                to: "shard-1".to_owned(),
                at: Duration::from_millis(9),
            }],
            forgotten: vec![Forgotten {
                uid: "u-2".to_owned(),
                name: "default/lost".to_owned(),
                generation: Some(4),
                waited: Duration::from_secs(20),
            }],
            apart: vec![Apart {
                kind: "Secret".to_owned(),
                owner: "default/moved".to_owned(),
                owner_shard: Some("shard-1".to_owned()),
                child_shard: None,
            }],
            ..Report::default()
        };
        let text = table(&arguments(), &Contrast::new(), &report);
        for part in [
            "u-1: a since 0 ms, b from 7 ms",
            "default/lost: generation 4 for 20000 ms",
            "default/taken: by shard-1 from shard-0 at 9 ms",
            "Secret of default/moved: nobody, its owner shard-1",
            "FAILED",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
