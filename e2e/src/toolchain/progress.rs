//! Progress of long builds, on stderr.

use std::{fmt, io::Write as _};

/// Writes a line to stderr. Not by `eprintln!`: the test harness captures that until a test has failed, and a first
/// `cargo test` would be silent for minutes.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    // Where no process reads, nothing is lost.
    let _ = writeln!(std::io::stderr(), "ringside-e2e: {line}");
}
