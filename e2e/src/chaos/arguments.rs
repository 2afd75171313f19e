//! The command line.

use std::time::Duration;

use clap::Parser;

use super::schedule::{Kind, Terms};

/// Lets everything fail that can, at random, beneath shards at work on a real Kubernetes API server; and checks that no object
/// was worked on twice at once, that none was forgotten, and that all comes to rest.
///
/// A seed is one schedule. What came of a run that failed is printed as the history of the objects concerned.
#[derive(Clone, Debug, Parser)]
#[command(name = "chaos")]
pub struct Arguments {
    /// For how long things happen, in minutes
    #[arg(long, default_value_t = 10)]
    pub minutes: u32,
    /// What decides what happens when
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many objects there are, each with a chain of two children
    #[arg(long, default_value_t = 2_000)]
    pub objects: usize,
    /// How many shards there are in the beginning
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=6))]
    pub shards: u8,
    /// Print the schedule, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

impl Arguments {
    /// What they ask for.
    pub fn terms(&self) -> Terms {
        Terms {
            seed: self.seed,
            length: Duration::from_secs(60) * self.minutes,
            kinds: Kind::all().to_vec(),
            rounds: usize::MAX,
            longest: Duration::MAX,
            pauses: 1_000..=8_000,
            shards: self.shards.into(),
            objects: self.objects,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn defaults_are_those_of_the_documentation_and_no_schedule_has_more_shards() {
        let terms = Arguments::try_parse_from(["chaos"]).unwrap().terms();
        assert_eq!((terms.length, terms.objects, terms.shards), (Duration::from_secs(600), 2_000, 5));
        assert!(Arguments::try_parse_from(["chaos", "--shards", "7"]).is_err());
    }
}
