//! The demo's command line.

use clap::{Parser, builder::RangedU64ValueParser};

/// Shows an unmodified controller that shares its work among several replicas, on a real Kubernetes API server, while
/// replicas join, restart and die; and checks that no object was worked on twice at once and none was forgotten.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo demo")]
pub struct Arguments {
    /// How many objects there are
    #[arg(long, default_value_t = 300, value_parser = at_least(30))]
    pub objects: usize,
    /// How many shards there are in the beginning; one more joins later
    #[arg(long, default_value_t = 3, value_parser = at_least(2))]
    pub shards: usize,
    /// What decides which object is changed when
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Leave everything running afterwards, to look around with kubectl
    #[arg(long)]
    pub keep: bool,
}

/// Fewer would leave nothing to see: a shard without objects, or nobody to take over.
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
        assert_eq!((arguments.objects, arguments.shards, arguments.keep), (300, 3, false));
    }

    #[test]
    fn refuses_what_shows_nothing() {
        for faulty in [["demo", "--shards", "1"], ["demo", "--objects", "few"], ["demo", "--objects", "5"]] {
            assert!(Arguments::try_parse_from(faulty).is_err(), "{faulty:?}");
        }
    }
}
