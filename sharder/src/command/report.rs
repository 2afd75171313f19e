//! What `cleanup` has to say, as a table for people.

use std::fmt;

use ringside_ring::{RingName, cluster_ring::GroupResource};
use serde_json::{Value, json};

use crate::cleanup::{
    Tallies, Tally,
    belongings::{Belonging, Outcome},
    templates::Holder,
};

/// What became of a ring.
#[derive(Debug)]
pub struct Report {
    pub(super) ring: RingName,
    pub(super) dry_run: bool,
    pub(super) had_ring: bool,
    pub(super) belongings: Vec<Belonging>,
    pub(super) tallies: Tallies,
    /// The objects that labels of others are copied from, or that select by them.
    pub(super) templates: Vec<Holder>,
}

impl Report {
    /// Whether nothing is left that should be gone.
    pub fn is_clean(&self) -> bool {
        self.belongings.iter().all(|belonging| belonging.outcome.is_clean())
            && self.tallies.values().all(Tally::is_clean)
            && self.templates.is_empty()
    }

    /// The same as a JSON object.
    pub fn json(&self) -> Value {
        let belonging = |it: &Belonging| {
            let (kept, fault) = match &it.outcome {
                Outcome::Removed => (None, None),
                Outcome::Kept(why) => (Some(*why), None),
                Outcome::Failed(why) => (None, Some(why)),
            };
            json!({"resource": it.resource.to_string(), "name": it.name, "kept": kept, "fault": fault})
        };
        let tally = |(resource, it): (&GroupResource, &Tally)| {
            json!({"resource": resource.to_string(), "labelled": it.found, "left": self.left(it), "copies": it.copies,
                "fault": it.fault})
        };
        let template =
            |it: &Holder| json!({"resource": it.resource.to_string(), "name": it.place, "fields": it.fields});
        json!({
            "ring": self.ring.to_string(),
            "dryRun": self.dry_run,
            "hadRing": self.had_ring,
            "clean": self.is_clean(),
            "managed": self.belongings.iter().map(belonging).collect::<Vec<_>>(),
            "resources": self.tallies.iter().map(tally).collect::<Vec<_>>(),
            "templates": self.templates.iter().map(template).collect::<Vec<_>>(),
        })
    }

    /// How many objects of a resource have labels now.
    fn left(&self, tally: &Tally) -> usize {
        if self.dry_run { tally.found } else { tally.left + tally.copies.values().sum::<usize>() }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = if self.dry_run { "there" } else { "removed" };
        if self.had_ring {
            writeln!(f, "{} {}: {done}", self.ring.kind(), self.ring.name())?;
        }
        for Belonging { resource, name, outcome } in &self.belongings {
            let outcome = match outcome {
                Outcome::Removed => done,
                Outcome::Kept(why) => why,
                Outcome::Failed(why) => why,
            };
            writeln!(f, "{resource} {name}: {outcome}")?;
        }
        let rows: Vec<_> = self.tallies.iter().filter(|(_, tally)| tally.found > 0 || !tally.is_clean()).collect();
        let width =
            rows.iter().map(|(resource, _)| resource.to_string().len()).max().unwrap_or(0).max("RESOURCE".len());
        writeln!(f, "{:width$}  {:>8}  {:>8}", "RESOURCE", "LABELLED", "LEFT")?;
        for (resource, tally) in &rows {
            write!(f, "{:width$}  {:>8}  {:>8}", resource.to_string(), tally.found, self.left(tally))?;
            match &tally.fault {
                Some(fault) => writeln!(f, "  {fault}")?,
                None => writeln!(f)?,
            }
        }
        let sum = |number: &dyn Fn(&Tally) -> usize| self.tallies.values().map(number).sum::<usize>();
        write!(f, "{:width$}  {:>8}  {:>8}", "all", sum(&|tally| tally.found), sum(&|tally| self.left(tally)))?;
        for (resource, tally) in &rows {
            for (kind, count) in &tally.copies {
                write!(f, "\ncopies left: {count} {resource} controlled by {kind}, not known to be of the ring")?;
            }
        }
        for Holder { resource, place, fields, .. } in &self.templates {
            let remedy = match fields.iter().any(|field| field.to_lowercase().contains("selector")) {
                true => "a selector may be immutable: delete the object, and create it without the label",
                false => "take the label out of it where it is written",
            };
            let fields = fields.join(", ");
            write!(f, "\ntemplate: {resource} {place}: the ring's label is in {fields}, and so in copies: {remedy}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn report(dry_run: bool) -> Report {
        let id = |resource: &str| GroupResource { group: String::new(), resource: resource.into() };
        let fault = Some("missing permission".to_owned());
        let secrets = Tally { found: 3, taken: 1, left: 2, fault, ..Tally::default() };
        let tallies = [
            (id("configmaps"), Tally { found: 1200, taken: 1200, ..Tally::default() }),
            (id("pods"), Tally::default()),
            (id("secrets"), secrets),
        ];
        let belonging = Belonging { resource: id("policies"), name: "p".into(), outcome: Outcome::Removed };
        let ring = "example".parse().unwrap();
        Report {
            ring,
            dry_run,
            had_ring: true,
            belongings: vec![belonging],
            tallies: tallies.into(),
            templates: Vec::new(),
        }
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
    fn copies_and_where_they_come_from_are_left_and_named() {
        for dry_run in [true, false] {
            let mut report = report(dry_run);
            report.tallies.clear();
            let fields = ["spec.selector.matchLabels", "spec.template.metadata.labels"].map(str::to_owned).into();
            let resource = GroupResource { group: "apps".into(), resource: "deployments".into() };
            let place = "default/db".to_owned();
            report.templates.push(Holder { resource, uid: "u".into(), place, fields, controller: None });
            assert!(!report.is_clean());
            let text = report.to_string();
            let named = "template: deployments.apps default/db: the ring's label is in spec.selector.matchLabels, spec";
            assert!(text.contains(named) && text.contains("create it without the label"), "{text}");
            report.templates.clear();
            let pods = GroupResource { group: String::new(), resource: "pods".into() };
            let copies = [("ReplicaSet".to_owned(), 3)].into();
            report.tallies.insert(pods, Tally { found: 5, taken: 2, copies, ..Tally::default() });
            let text = report.to_string();
            assert!(!report.is_clean() && text.contains("copies left: 3 pods controlled by ReplicaSet"), "{text}");
            assert!(dry_run || text.contains("all              5         3"), "{text}");
        }
    }

    #[test]
    fn a_dry_run_leaves_all_and_is_clean_when_it_could_look_everywhere() {
        let mut report = report(true);
        assert!(report.to_string().ends_with("all             1203      1203"), "{report}");
        report.tallies.retain(|_, tally| tally.fault.is_none());
        assert!(report.is_clean());
        let json = report.json();
        assert_eq!((&json["resources"][0]["left"], &json["clean"]), (&json!(1200), &json!(true)));
    }
}
