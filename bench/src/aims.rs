//! What was measured beside what is aimed at.

use serde_json::json;

use crate::Table;

/// The lines of a run.
pub struct Aims {
    table: Table,
    failed: Vec<String>,
}

impl Aims {
    /// None yet; `name` is that of the program.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { table: Table::new(name, &["what", "measured", "aim", "verdict"]), failed: Vec::new() }
    }

    /// A figure without an aim.
    pub fn told(&mut self, what: &str, value: f64, unit: &str) {
        self.row(what, &shown(value, unit), "", "");
    }

    /// One that is to be no more than `aim`.
    pub fn at_most(&mut self, what: &str, value: f64, aim: f64, unit: &str) {
        self.row(what, &shown(value, unit), &format!("<= {}", shown(aim, unit)), verdict(value <= aim));
    }

    /// One that is to be no less than `aim`.
    pub fn at_least(&mut self, what: &str, value: f64, aim: f64, unit: &str) {
        self.row(what, &shown(value, unit), &format!(">= {}", shown(aim, unit)), verdict(value >= aim));
    }

    /// What the run does not measure, and why.
    pub fn not_measured(&mut self, what: &str, why: &str) {
        self.row(what, "not measured", why, "");
    }

    /// What could not be measured.
    pub fn failed(&mut self, what: &str, fault: &anyhow::Error) {
        self.row(what, "failed", "", "");
        self.failed.push(format!("{what}: {fault:#}"));
    }

    /// Prints all of it.
    ///
    /// # Errors
    /// When something could not be measured. An aim that is missed is no error.
    pub fn tell(&self) -> anyhow::Result<()> {
        self.table.tell()?;
        anyhow::ensure!(self.failed.is_empty(), "not measured: {}", self.failed.join("; "));
        Ok(())
    }

    fn row(&mut self, what: &str, measured: &str, aim: &str, verdict: &str) {
        self.table.row([json!(what), json!(measured), json!(aim), json!(verdict)]);
    }
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

/// Three digits that count.
fn shown(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        large if large >= 100.0 => 0,
        middle if middle >= 10.0 => 1,
        small if small >= 1.0 || small == 0.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_aim_is_no_error_and_what_failed_is() {
        let mut aims = Aims::new("x");
        aims.at_most("writes", 5.0, 4.0, "");
        assert_eq!(
            (shown(0.0123, "s"), shown(44.83, "s"), shown(712.4, "")),
            ("0.012 s".into(), "44.8 s".into(), "712".into())
        );
        assert!(aims.failed.is_empty());
        aims.failed("a join", &anyhow::anyhow!("no API server"));
        assert_eq!(aims.failed, ["a join: no API server"]);
    }
}
