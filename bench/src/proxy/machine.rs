//! On what it was measured, and with which versions.

use std::{fs, process::Command};

use serde_json::json;

use super::ways::{Way, find};
use crate::{Table, load};

/// The machine and the versions, with the load that it had at the beginning.
#[must_use]
pub fn machine(load_before: &str) -> Table {
    let mut table = Table::new("proxy-machine", &["of", "is"]);
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut row = |of: &str, is: &str| table.row([json!(of), json!(is.trim())]);
    row("processors", &format!("{processors} x {}", model()));
    row("kernel", &kernel);
    row("load before", load_before);
    row("load after", &load());
    row("ringside", env!("CARGO_PKG_VERSION"));
    for way in [Way::Nginx, Way::Haproxy] {
        let name = way.program().unwrap_or_default();
        row(name, &version(name).unwrap_or_else(|| "not installed".to_owned()));
    }
    table
}

fn model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

/// The first line that it says.
fn version(program: &str) -> Option<String> {
    let output = Command::new(find(program)?).arg("-v").output().ok()?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Some(String::from_utf8_lossy(&text).lines().next()?.to_owned())
}
