//! What a measurement says while it runs.

use std::{fmt, path::Path};

/// Says on stderr what is being done, behind the name of the command: a run takes minutes.
#[allow(clippy::print_stderr, reason = "progress, beside what was measured")]
pub fn say(what: fmt::Arguments<'_>) {
    let program = std::env::current_exe().unwrap_or_default();
    let name = program.file_stem().map(Path::new).unwrap_or(&program).display();
    eprintln!("bench-{name}: {what}");
}
