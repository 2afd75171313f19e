//! What came of all cases: the last that a run says.

use std::{collections::BTreeMap, fmt, time::Duration};

/// How many of the slowest cases are named.
const NAMED_SLOWEST: usize = 10;

/// What came of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    Ignored,
}

/// What came of the cases so far.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) passed: usize,
    pub(super) failed: Vec<String>,
    /// Reasons, each with the number of cases.
    pub(super) ignored: BTreeMap<String, usize>,
    /// Cases that ran again alone, how late the machine had been, and what came of it.
    pub(super) again: Vec<(String, Duration, Outcome)>,
    /// How long each attempt took.
    pub(super) took: Vec<(Duration, String)>,
}

/// What was measured of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub(super) cores: usize,
    /// How late work was that takes 4 ms: in the median second, in one of a hundred, and in the worst.
    pub(super) late: [Duration; 3],
    /// The least and the most that could run at once.
    pub(super) at_once: (usize, usize),
    pub(super) took: Duration,
}

impl Verdict {
    /// Says all of it.
    pub(super) fn say(&self, f: &mut impl fmt::Write, machine: &Machine) -> fmt::Result {
        // Where nothing ran, nothing of the machine is to be told.
        if !self.took.is_empty() {
            self.say_measured(f, machine)?;
        }
        for (name, late, outcome) in &self.again {
            let late = late.as_millis();
            let outcome = if *outcome == Outcome::Passed { "passed only alone" } else { "failed alone, too" };
            writeln!(f, "{outcome}; the machine was late by {late} ms when it failed: {name}")?;
        }
        for (reason, cases) in &self.ignored {
            writeln!(f, "ignored, {cases}: {reason}")?;
        }
        for name in &self.failed {
            writeln!(f, "failed: {name}")?;
        }
        let ignored: usize = self.ignored.values().sum();
        let (failed, seconds) = (self.failed.len(), machine.took.as_secs());
        writeln!(f, "live cases: {} passed, {failed} failed, {ignored} ignored; {seconds} s", self.passed)
    }

    /// Says what took longest, and how the machine was.
    fn say_measured(&self, f: &mut impl fmt::Write, machine: &Machine) -> fmt::Result {
        let mut took: Vec<_> = self.took.iter().collect();
        took.sort_unstable_by(|one, other| other.cmp(one));
        writeln!(f, "the slowest:")?;
        for (took, name) in took.into_iter().take(NAMED_SLOWEST) {
            writeln!(f, "{:>7.1} s  {name}", took.as_secs_f64())?;
        }
        let [median, hundredth, worst] = machine.late.map(|late| late.as_millis());
        let (least, most) = machine.at_once;
        writeln!(
            f,
            "the machine: {} cores; a timer with 4 ms of work was late by {median} ms in the median second, {hundredth} ms in 1 of 100, {worst} ms \
             in the worst; {least} to {most} cases could run at once",
            machine.cores
        )
    }
}
