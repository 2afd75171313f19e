//! What `cleanup` has to say, as a table for people.

use std::fmt;

use ringside_ring::RingName;

use crate::cleanup::{Tallies, Tally, belongings::Belonging};

/// What became of a ring.
#[derive(Debug)]
pub struct Report {
    pub(super) ring: RingName,
    pub(super) dry_run: bool,
    pub(super) had_ring: bool,
    pub(super) belongings: Vec<Belonging>,
    pub(super) tallies: Tallies,
}

impl Report {
    /// What is printed, and the exit code.
    pub fn said(&self) -> (String, u8) {
        (self.to_string(), u8::from(!self.is_clean()))
    }

    /// Whether nothing is left that should be gone.
    pub fn is_clean(&self) -> bool {
        self.belongings.iter().all(|belonging| belonging.fault.is_none()) && self.tallies.values().all(Tally::is_clean)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = if self.dry_run { "there" } else { "removed" };
        if self.had_ring {
            writeln!(f, "ClusterRing {}: {done}", self.ring)?;
        }
        for Belonging { resource, name, fault } in &self.belongings {
            writeln!(f, "{resource} {name}: {}", fault.as_deref().unwrap_or(done))?;
        }
        let rows: Vec<_> = self.tallies.iter().filter(|(_, tally)| tally.found > 0 || !tally.is_clean()).collect();
        let width =
            rows.iter().map(|(resource, _)| resource.to_string().len()).max().unwrap_or(0).max("RESOURCE".len());
        let left = |tally: &Tally| if self.dry_run { tally.found } else { tally.left };
        writeln!(f, "{:width$}  {:>8}  {:>8}", "RESOURCE", "LABELLED", "LEFT")?;
        for (resource, tally) in &rows {
            write!(f, "{:width$}  {:>8}  {:>8}", resource.to_string(), tally.found, left(tally))?;
            match &tally.fault {
                Some(fault) => writeln!(f, "  {fault}")?,
                None => writeln!(f)?,
            }
        }
        let sum = |number: &dyn Fn(&Tally) -> usize| self.tallies.values().map(number).sum::<usize>();
        write!(f, "{:width$}  {:>8}  {:>8}", "all", sum(&|tally| tally.found), sum(&left))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringside_ring::cluster_ring::GroupResource;

    use super::*;

    fn report(dry_run: bool) -> Report {
        let id = |resource: &str| GroupResource { group: String::new(), resource: resource.into() };
        let tallies = [
            (id("configmaps"), Tally { found: 1200, taken: 1200, ..Tally::default() }),
            (id("pods"), Tally::default()),
            (id("secrets"), Tally { found: 3, taken: 1, left: 2, fault: Some("missing permission".to_owned()) }),
        ];
        let belonging = Belonging { resource: id("policies"), name: "p".into(), fault: None };
        let ring = "example".parse().unwrap();
        Report { ring, dry_run, had_ring: true, belongings: vec![belonging], tallies: tallies.into() }
    }

    #[test]
    fn it_says_how_many_and_what_is_left() {
        let wanted = "ClusterRing example: removed\npolicies p: removed\n\
            RESOURCE    LABELLED      LEFT\n\
            configmaps      1200         0\n\
            secrets            3         2  missing permission\n\
            all             1203         2";
        assert_eq!(report(false).to_string(), wanted);
        assert!(!report(false).is_clean());
    }

    #[test]
    fn a_dry_run_leaves_all_and_is_clean_when_it_could_look_everywhere() {
        let mut report = report(true);
        assert!(report.to_string().ends_with("all             1203      1203"), "{report}");
        report.tallies.retain(|_, tally| tally.fault.is_none());
        assert!(report.is_clean());
    }
}
