//! The Markdown pages of this repository, by their parts: prose, fenced blocks, headings, links.

pub mod shell;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The folder of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// Every file with this extension below a folder of the repository, in the order of their paths; none where there is no folder.
///
/// # Panics
/// When a folder can't be read to its end.
#[must_use]
pub fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
            if path.is_dir() {
                walk(&path, extension, found);
            } else if path.extension().is_some_and(|it| it == extension) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), extension, &mut found);
    found.sort();
    found
}

/// A page of Markdown.
#[derive(Debug)]
pub struct Page {
    /// Its path in the repository.
    pub path: String,
    /// All of its lines.
    pub lines: Vec<String>,
    /// The lines outside of fenced blocks.
    pub prose: Vec<String>,
    /// The fenced blocks.
    pub blocks: Vec<Block>,
}

/// A fenced block.
#[derive(Debug, Default)]
pub struct Block {
    /// What stands behind the opening fence.
    pub info: String,
    /// The number of its first line on the page.
    pub begin: usize,
    /// The lines between the fences.
    pub lines: Vec<String>,
}

/// A command that a block shows.
#[derive(Debug)]
pub struct Shown {
    /// What is typed.
    pub command: String,
    /// The lines below it.
    pub output: Vec<String>,
}

impl Page {
    /// Reads a page; its path is that in the repository.
    ///
    /// # Panics
    /// When there is no such page, or one of its blocks is not closed.
    #[must_use]
    pub fn read(path: &str) -> Self {
        let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let (mut prose, mut blocks, mut open) = (Vec::new(), Vec::new(), None::<Block>);
        for (index, line) in lines.iter().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            match (open.take(), fence) {
                (None, Some(info)) => {
                    open = Some(Block { info: info.trim().to_owned(), begin: index + 2, ..Block::default() });
                }
                (None, None) => prose.push(line.clone()),
                (Some(block), Some(_)) => blocks.push(block),
                (Some(mut block), None) => {
                    block.lines.push(line.clone());
                    open = Some(block);
                }
            }
        }
        assert!(open.is_none(), "{path}: a block is not closed");
        Self { path: path.to_owned(), lines, prose, blocks }
    }

    /// The blocks of this kind, such as `console` or `yaml`.
    pub fn blocks_of(&self, kind: &str) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(move |block| block.info.split(',').next() == Some(kind))
    }

    /// What can be linked on it: headings as GitHub and mdBook name them, and explicit anchors.
    #[must_use]
    pub fn anchors(&self) -> BTreeSet<String> {
        let (mut anchors, mut seen) = (BTreeSet::new(), BTreeMap::new());
        for line in &self.prose {
            for key in [" id=\"", " name=\""] {
                let named = line.split(key).skip(1).filter_map(|rest| rest.split('"').next());
                anchors.extend(named.map(str::to_owned));
            }
            let Some(heading) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim()) else {
                continue;
            };
            if let Some((_, id)) = heading.split_once("{#") {
                anchors.insert(id.trim_end_matches('}').to_owned());
            }
            let slug = slug(heading);
            let count = seen.entry(slug.clone()).or_insert(0_usize);
            anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
            *count += 1;
        }
        anchors
    }

    /// What its links lead to.
    #[must_use]
    pub fn links(&self) -> Vec<&str> {
        let text = self.prose.iter().flat_map(|line| line.split("](").skip(1));
        text.filter_map(|rest| rest.split(')').next()).collect()
    }

    /// Its sentences, without tables, headings and code.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut text = String::new();
        for line in &self.prose {
            let line = line.trim();
            // What begins a new item or paragraph ends a sentence before.
            if line.is_empty() || line.starts_with(['|', '#', '<']) {
                text.push('\n');
                continue;
            }
            let item = line.strip_prefix("- ").or_else(|| numbered(line));
            if item.is_some() {
                text.push('\n');
            }
            text.push_str(item.unwrap_or(line));
            text.push(' ');
        }
        let ends = |text: &str| {
            let marks = [". ", "? ", "! ", ": ", ".\n"];
            marks.iter().fold(text.to_owned(), |text, mark| text.replace(mark, "\n"))
        };
        ends(&text).lines().map(|line| line.trim().to_owned()).filter(|line| line.contains(' ')).collect()
    }
}

impl Block {
    /// The commands that it shows. A command goes on behind a backslash.
    #[must_use]
    pub fn shown(&self) -> Vec<Shown> {
        let mut shown: Vec<Shown> = Vec::new();
        let mut goes_on = false;
        for line in &self.lines {
            if goes_on && let Some(last) = shown.last_mut() {
                last.command.push_str(line.trim().trim_end_matches('\\'));
            } else if let Some(command) = line.strip_prefix("$ ") {
                shown.push(Shown { command: command.trim_end_matches('\\').to_owned(), output: Vec::new() });
            } else if let Some(last) = shown.last_mut() {
                last.output.push(line.clone());
                continue;
            }
            goes_on = line.ends_with('\\');
        }
        shown
    }
}

/// The text behind `1. `.
fn numbered(line: &str) -> Option<&str> {
    let (number, rest) = line.split_once(". ")?;
    number.chars().all(|digit| digit.is_ascii_digit()).then_some(rest)
}

/// A heading as an anchor.
fn slug(heading: &str) -> String {
    let heading = heading.split("{#").next().unwrap_or_default().trim();
    let kept = heading.chars().filter(|one| one.is_alphanumeric() || [' ', '-', '_'].contains(one));
    kept.map(|one| if one == ' ' { '-' } else { one.to_ascii_lowercase() }).collect()
}
