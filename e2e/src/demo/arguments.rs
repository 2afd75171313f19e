//! The demo's command line.

use std::time::Duration;

use clap::{Parser, builder::RangedU64ValueParser};

use ringside_launcher::Release;

use crate::toolchain::Operator;

/// Shows an unmodified controller that shares its work among several replicas, on a real Kubernetes API server, while
/// replicas join, restart and die; and checks that no object was worked on twice at once and none was forgotten.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo demo")]
pub struct Arguments {
    /// How many objects there are; 300 by default, and 60 for another operator than that in Go
    #[arg(long, value_parser = at_least(30))]
    objects: Option<usize>,
    /// How many shards there are in the beginning; one more joins later
    #[arg(long, default_value_t = 3, value_parser = at_least(2))]
    pub shards: usize,
    /// What decides which object is changed when
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The language of the controller: go (controller-runtime), python (kopf), java (Java Operator SDK), rust (kube), node
    /// (@kubernetes/client-node)
    #[arg(long, value_enum, default_value_t)]
    pub operator: Operator,
    /// The minor version of Kubernetes to run on, such as 1.31; the latest by default, or what RINGSIDE_KUBERNETES says
    #[arg(long, value_name = "MINOR", value_parser = is_built)]
    pub kubernetes: Option<String>,
    /// Leave everything running afterwards, to look around with kubectl
    #[arg(long)]
    pub keep: bool,
}

impl Arguments {
    /// How many objects there are: as many as replicas in that language work on in time, with all of them on one machine.
    pub fn objects(&self) -> usize {
        self.objects.unwrap_or(if self.operator == Operator::Go { 300 } else { 60 })
    }

    /// The time between two changes of objects: steady work, and time for people to follow.
    pub(super) fn update_interval(&self) -> Duration {
        Duration::from_millis(if self.operator == Operator::Go { 50 } else { 200 })
    }
}

/// Only what can be built here.
fn is_built(minor: &str) -> Result<String, String> {
    Release::named(minor).map(|_| minor.to_owned())
}

/// Fewer would leave nothing to see: a shard without objects, or none to take over.
fn at_least(least: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let arguments = Arguments::try_parse_from(["demo"]).unwrap();
        assert_eq!((arguments.objects(), arguments.shards, arguments.keep), (300, 3, false));
        assert_eq!(arguments.operator, Operator::Go);
        let other = Arguments::try_parse_from(["demo", "--operator", "python"]).unwrap();
        assert_eq!((other.operator, other.objects()), (Operator::Python, 60));
    }

    #[test]
    fn refuses_what_shows_nothing() {
        for faulty in [
            ["demo", "--shards", "1"],
            ["demo", "--objects", "few"],
            ["demo", "--objects", "5"],
            ["demo", "--operator", "c"],
            ["demo", "--kubernetes", "1.12"],
        ] {
            assert!(Arguments::try_parse_from(faulty).is_err(), "{faulty:?}");
        }
    }
}
