//! `docs/dev/compatibility.md`: what the live tests saw of the API through the proxy, behaviour by representation.
//!
//! Each test target owns a section of the page, between a `begin` and an `end` comment with the section's name. Its
//! last step makes the section from what its tests saw and compares it with the page, or writes it where the
//! environment says so: [`Task::of_process`]. So the page can't say what no test has seen.
//!
//! The rooms below are what such tests share, and fail as tests do: with words for people.

pub mod changes;
pub mod client;
pub mod compare;
pub mod own_requests;
pub mod raw;

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result, bail};

/// Set to anything: sections are written instead of compared.
const WRITE: &str = "RINGSIDE_WRITE_COMPATIBILITY";

/// So many differing lines show what is wrong with a page.
const SHOWN: usize = 20;

/// What a test saw when it asked the API server through the proxy and without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No difference.
    Same,
    /// The objects of the shard, and else no difference.
    Narrowed,
    /// A difference that is meant, and why.
    Changed(&'static str),
    /// A difference that is not meant to stay, and why it is there.
    Gap(&'static str),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("same"),
            Self::Narrowed => f.write_str("narrowed"),
            Self::Changed(reason) => write!(f, "changed: {reason}"),
            Self::Gap(reason) => write!(f, "**gap**: {reason}"),
        }
    }
}

/// One line of what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What was asked of the API, such as `list in pages`.
    pub behaviour: String,
    /// In which form, such as `protobuf` or `HTTP/2`.
    pub representation: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// Collects rows from tests that run side by side, in the order of the table of tests.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Vec<(usize, Row)>>);

impl Ledger {
    /// Adds the row of the test at this place in the table.
    pub fn note(&self, place: usize, row: Row) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((place, row));
    }

    /// All rows, in order.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        rows.sort_by_key(|(place, _)| *place);
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

/// Rows as a Markdown table. Representations of one behaviour that came to the same share a line.
pub fn table(rows: &[Row]) -> String {
    let mut lines: Vec<(&str, Vec<&str>, Outcome)> = Vec::new();
    for row in rows {
        match lines.iter_mut().find(|line| line.0 == row.behaviour && line.2 == row.outcome) {
            Some(line) => line.1.push(&row.representation),
            None => lines.push((&row.behaviour, vec![&row.representation], row.outcome)),
        }
    }
    let mut table = "| behaviour | representation | through the proxy |\n| --- | --- | --- |\n".to_owned();
    for (behaviour, representations, outcome) in lines {
        table.push_str(&format!("| {behaviour} | {} | {outcome} |\n", representations.join("; ")));
    }
    table
}

/// What to do with sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Fail where the page says something else.
    Compare,
    /// Write the page.
    Write,
}

impl Task {
    /// As the environment of this process says.
    pub fn of_process() -> Self {
        if env::var_os(WRITE).is_some() { Self::Write } else { Self::Compare }
    }
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/dev/compatibility.md")
}

/// A part of the page that one test target writes.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its name in the comments around it.
    pub name: &'static str,
    /// The test target that sees what stands in it.
    pub test: &'static str,
}

impl Section {
    /// Compares or writes what stands in the section: Markdown, such as a heading and a [`table`].
    pub fn settle(&self, text: &str, task: Task) -> Result<()> {
        self.settle_in(&page(), text, task)
    }

    /// Fails where the section has no such row, unless it is to be written.
    pub fn check(&self, row: &Row, task: Task) -> Result<()> {
        self.check_in(&page(), row, task)
    }

    fn check_in(&self, path: &Path, row: &Row, task: Task) -> Result<()> {
        let page = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let (_, text, _) = self.split(path, &page)?;
        let Row { behaviour, representation, outcome } = row;
        let (begin, end) = (format!("| {behaviour} | "), format!(" | {outcome} |"));
        let forms = |line: &str| Some(format!("; {}; ", line.strip_prefix(&begin)?.strip_suffix(&end)?));
        let is_there = text.lines().filter_map(forms).any(|forms| forms.contains(&format!("; {representation}; ")));
        if is_there || task == Task::Write {
            return Ok(());
        }
        bail!("{}\nno line of the section says so: {behaviour}, {representation}: {outcome}", self.remedy(path))
    }

    fn remedy(&self, path: &Path) -> String {
        let Self { name, test } = self;
        let command = format!("{WRITE}=1 cargo test -p ringside-tests --test {test}");
        format!("the section `{name}` of {} does not say what was seen; write it again:\n  {command}", path.display())
    }

    fn settle_in(&self, path: &Path, text: &str, task: Task) -> Result<()> {
        let page = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let (before, was, after) = self.split(path, &page)?;
        let text = format!("\n{}\n", text.trim());
        if was == text {
            return Ok(());
        }
        if task == Task::Write {
            return fs::write(path, [before, &text, after].concat())
                .with_context(|| format!("write {}", path.display()));
        }
        bail!("{}\n{}", self.remedy(path), difference(was, &text))
    }

    /// What stands before the section's text, the text, and what stands behind it.
    fn split<'a>(&self, path: &Path, page: &'a str) -> Result<(&'a str, &'a str, &'a str)> {
        let (begin, end) = (format!("<!-- begin {} -->\n", self.name), format!("<!-- end {} -->\n", self.name));
        let from = page.find(&begin).map(|at| at + begin.len());
        let found = from.and_then(|from| Some((from, from + page[from..].find(&end)?)));
        let Some((from, to)) = found else {
            bail!("{} has no lines `{}` and `{}`, in this order", path.display(), begin.trim(), end.trim());
        };
        Ok((&page[..from], &page[from..to], &page[to..]))
    }
}

/// The lines that only one of the two texts has, as many as a reader wants to see.
fn difference(was: &str, is: &str) -> String {
    let only = |mark: char, one: &str, other: &str| {
        let lines = one.lines().filter(|line| !other.lines().any(|it| it == *line));
        lines.map(|line| format!("{mark} {line}\n")).collect::<String>()
    };
    let both = only('-', was, is) + &only('+', is, was);
    both.lines().take(SHOWN).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests;
