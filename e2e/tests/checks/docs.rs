//! The book and the pages beside it: what they name exists, and what they say to type is understood.

use std::{collections::BTreeMap, path::Path};

use clap::{CommandFactory as _, Parser as _};
use kube::CustomResourceExt as _;
use ringside_cli::{check::TESTED, command::Line};
use ringside_e2e::{
    manifests,
    pages::{
        Page, root,
        shell::{commands, of_ringside},
    },
    website::Website,
};
use ringside_launcher::RELEASES;
use serde_json::{Value, json};

/// The pages of the book in their order, with the lines that each may have.
const PAGES: [(&str, usize); 23] = [
    ("introduction", 60),
    ("fit", 120),
    ("try-it", 80),
    ("install", 110),
    ("platforms", 120),
    ("shard-a-controller", 130),
    ("clients", 60),
    ("controllers", 60),
    ("neighbours", 70),
    ("look", 80),
    ("scale", 120),
    ("capacity", 50),
    ("placement", 80),
    ("upgrade", 80),
    ("alerts", 150),
    ("troubleshooting", 150),
    ("turn-it-off", 80),
    ("how-it-works", 140),
    ("safety", 140),
    ("limits", 70),
    ("security", 100),
    // Commands and flags are generated.
    ("reference", 275),
    ("metrics", 95),
];

/// How much longer a page may be, in percent.
const MORE: usize = 20;

/// The lines that the book may have.
const MAX_BOOK: usize = 2_610;

/// The lines that the README may have.
const MAX_README: usize = 80;

/// The commands and the lines of YAML that the way to a sharded sample may take.
const MAX_COMMANDS: usize = 6;
const MAX_OWN_LINES: usize = 12;

/// The words of a sentence, at the median of a page.
const MAX_MEDIAN: usize = 16;

/// The pages that there are: one that is missing fails in one test alone.
fn book() -> Vec<(Page, usize)> {
    let paths = PAGES.iter().map(|(name, lines)| (format!("docs/src/{name}.md"), *lines));
    let there = paths.filter(|(path, _)| root().join(path).exists());
    there.map(|(path, lines)| (Page::read(&path), lines)).collect()
}

/// The book, and what a reader meets before it.
fn pages() -> Vec<Page> {
    let beside = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/src/SUMMARY.md"];
    book().into_iter().map(|(page, _)| page).chain(beside.map(Page::read)).collect()
}

/// Fails with all findings at once.
fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn summary_names_each_page_once_in_order() {
    let summary = Page::read("docs/src/SUMMARY.md");
    let expected: Vec<_> = PAGES.iter().map(|(name, _)| format!("{name}.md")).collect();
    assert_eq!(summary.links(), expected);
    let files = root().join("docs/src").read_dir().unwrap().map(|file| file.unwrap().file_name());
    let mut files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
    let missing: Vec<_> = expected.iter().filter(|name| !files.contains(name)).cloned().collect();
    none("pages that there are not", &missing);
    files.retain(|name| name.ends_with(".md") && name != "SUMMARY.md" && !expected.contains(name));
    none("pages that the summary does not name", &files);
}

#[test]
fn the_versions_of_kubernetes_are_the_same_everywhere() {
    let minors = RELEASES.map(|release| release.minor);
    let readme = Page::read("README.md").lines.join("\n");
    assert!(
        readme.contains(&format!("Kubernetes {}", in_words(&TESTED))),
        "the README does not say {}",
        in_words(&TESTED)
    );
    let workflow = std::fs::read_to_string(root().join(".github/workflows/ci.yml")).unwrap();
    let others: Vec<_> = minors[..minors.len() - 1].iter().map(|minor| format!("\"1.{minor}\"")).collect();
    assert!(workflow.contains(&format!("kubernetes: [{}]", others.join(", "))), "the matrix: {others:?}");
    let platforms = Page::read("docs/src/platforms.md").lines.join("\n");
    let is_run = |minor: &u32| {
        platforms.lines().any(|line| line.starts_with(&format!("| 1.{minor} ")) && line.contains("tests"))
    };
    let run: Vec<_> = minors.iter().copied().filter(is_run).collect();
    assert_eq!(run, TESTED, "what `check --pre` says was run");
    let missing: Vec<_> = minors.iter().filter(|minor| !platforms.contains(&format!("\n| 1.{minor} | "))).collect();
    assert!(missing.is_empty(), "platforms.md has no row of {missing:?}");
}

/// Minor versions, those that follow each other by the first and the last.
fn in_words(minors: &[u32]) -> String {
    let runs = minors.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
        [first, .., last] => format!("1.{first} to 1.{last}"),
        _ => format!("1.{}", run[0]),
    });
    runs.collect::<Vec<_>>().join(" and ")
}

#[test]
fn pages_stay_short() {
    let book = book();
    let long = book.iter().filter(|(page, lines)| page.lines.len() * 100 > lines * (100 + MORE));
    let long: Vec<_> = long.map(|(page, lines)| format!("{}: {} of {lines}", page.path, page.lines.len())).collect();
    none("pages with too many lines", &long);
    let all: usize = book.iter().map(|(page, _)| page.lines.len()).sum();
    assert!(all <= MAX_BOOK, "the book has {all} lines");
}

#[test]
fn sentences_stay_short() {
    let median = |page: &Page| {
        let mut words: Vec<_> = page.sentences().iter().map(|one| one.split_whitespace().count()).collect();
        words.sort_unstable();
        words.get(words.len() / 2).copied().unwrap_or(0)
    };
    let long = pages().into_iter().map(|page| (median(&page), page.path)).filter(|(words, _)| *words > MAX_MEDIAN);
    none("words at the median", &long.map(|(words, path)| format!("{path}: {words}")).collect::<Vec<_>>());
}

#[test]
fn links_lead_somewhere() {
    let mut anchors = BTreeMap::new();
    let mut broken = Vec::new();
    let pages = pages();
    for page in &pages {
        let dir = Path::new(&page.path).parent().unwrap();
        for link in page.links().into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { Path::new(&page.path).to_owned() } else { dir.join(file) };
            if !root().join(&target).exists() {
                broken.push(format!("{}: {link}", page.path));
            } else if !anchor.is_empty() {
                let path = target.to_str().unwrap().to_owned();
                let known = anchors.entry(path.clone()).or_insert_with(|| Page::read(&path).anchors());
                if !known.contains(anchor) {
                    broken.push(format!("{}: {link} (no such heading)", page.path));
                }
            }
        }
    }
    none("links that lead nowhere", &broken);
}

#[test]
fn console_blocks_show_commands_and_their_output() {
    let mut faults = Vec::new();
    for page in pages() {
        for block in page.blocks_of("console") {
            let at = format!("{}:{}", page.path, block.begin);
            match block.lines.first() {
                Some(first) if first.starts_with("$ ") => {}
                first => faults.push(format!("{at}: begins with {first:?}, not with a command")),
            }
            let untidy = block.lines.iter().filter(|line| line.ends_with(' '));
            faults.extend(untidy.map(|line| format!("{at}: {line}")));
            let empty = block.shown().into_iter().any(|shown| commands(&shown.command).is_empty());
            if empty {
                faults.push(format!("{at}: an empty command"));
            }
        }
    }
    none("console blocks", &faults);
}

/// Each command that the pages say to type, and where.
fn typed() -> Vec<(String, Vec<String>)> {
    let mut typed = Vec::new();
    for page in pages() {
        let shown = page.blocks_of("console").flat_map(|block| block.shown().into_iter().map(|shown| shown.command));
        let shell = page.blocks_of("sh").flat_map(|block| block.lines.clone());
        for line in shown.chain(shell) {
            typed.extend(commands(&line).into_iter().map(|words| (page.path.clone(), words)));
        }
    }
    typed
}

/// What a placeholder stands for where not any word will do.
fn filled(word: String) -> String {
    if word == "N" { "3".to_owned() } else { word }
}

#[test]
fn commands_of_ringside_are_understood() {
    let mut faults = Vec::new();
    let mut count = 0;
    for (path, words) in typed() {
        let Some(words) = of_ringside(&words) else { continue };
        count += 1;
        if let Err(fault) = Line::try_parse_from(words.iter().cloned().map(filled))
            && fault.use_stderr()
        {
            let said = fault.to_string();
            faults.push(format!("{path}: {}: {}", words.join(" "), said.lines().next().unwrap_or_default()));
        }
    }
    none("commands that `ringside` does not understand", &faults);
    assert!(count >= 20, "the pages show {count} commands: are they still found?");
}

/// What is wrong with a command that stands in a sentence, which may lack its arguments.
fn fault_of_mention(mention: &str) -> Option<String> {
    let mut command = Line::command();
    command.build();
    let mut words = mention.split_whitespace().skip(1).peekable();
    while let Some(word) = words.next_if(|word| command.has_subcommands() && !word.starts_with('-')) {
        match command.find_subcommand(word) {
            Some(found) => command = found.clone(),
            None => return Some(format!("there is no `{word}`")),
        }
    }
    let flags = words.filter_map(|word| word.strip_prefix("--")).filter_map(|flag| flag.split('=').next());
    let mut unknown = flags.filter(|flag| command.get_arguments().all(|one| one.get_long() != Some(flag)));
    unknown.next().map(|flag| format!("there is no --{flag}"))
}

#[test]
fn commands_in_sentences_exist() {
    let mut faults = Vec::new();
    for page in pages() {
        let text = page.prose.join(" ");
        let code = text.split('`').skip(1).step_by(2).filter(|code| code.starts_with("ringside "));
        let wrong = code.filter_map(|code| Some((code, fault_of_mention(code.split('|').next()?)?)));
        faults.extend(wrong.map(|(code, fault)| format!("{}: {code}: {fault}", page.path)));
    }
    none("commands that there are not", &faults);
}

#[test]
fn paths_in_commands_exist() {
    let ours =
        |word: &&String| ["cli/", "deploy/", "e2e/", "docs/", "Dockerfile"].iter().any(|start| word.starts_with(start));
    let mut missing = Vec::new();
    for (path, words) in typed() {
        // With a value of its own in the word, as in `--file=deploy/...`.
        let words: Vec<_> = words.iter().map(|word| word.rsplit('=').next().unwrap().to_owned()).collect();
        let absent = words.iter().filter(ours).filter(|word| !root().join(word.as_str()).exists());
        missing.extend(absent.map(|word| format!("{path}: {word}")));
    }
    none("commands name files that do not exist", &missing);
}

#[test]
fn quick_start_is_six_commands_and_twelve_lines() {
    let readme = Page::read("README.md");
    assert!(readme.lines.len() <= MAX_README, "the README has {} lines", readme.lines.len());
    let typed: usize = readme.blocks_of("console").map(|block| block.shown().len()).sum();
    let own: usize = readme.blocks_of("yaml").map(|block| block.lines.len()).sum();
    assert!((1..=MAX_COMMANDS).contains(&typed), "{typed} commands");
    assert!((1..=MAX_OWN_LINES).contains(&own), "{own} lines of YAML");
}

/// A definition without what is written for people.
fn bare(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            const FOR_PEOPLE: [&str; 5] =
                ["additionalPrinterColumns", "categories", "description", "shortNames", "title"];
            map.retain(|key, _| !FOR_PEOPLE.contains(&key.as_str()));
            map.values_mut().for_each(|one| *one = bare(one.take()));
        }
        Value::Array(list) => list.iter_mut().for_each(|one| *one = bare(one.take())),
        _ => {}
    }
    value
}

#[test]
fn sample_defines_the_resource_that_its_controller_is_tested_with() {
    let sample = manifests::read(&root().join("deploy/sample/website-crd.yaml")).unwrap();
    let tested = serde_json::to_value(Website::crd()).unwrap();
    assert_eq!(bare(sample[0].data["spec"].clone()), bare(tested["spec"].clone()));
    let controller = manifests::read(&root().join("deploy/sample/controller.yaml")).unwrap();
    let plain = controller.last().unwrap().data.pointer("/spec/template/spec/initContainers").cloned();
    assert_eq!(plain.unwrap_or(json!(null)), json!(null), "the sample is what `inject` adds the sidecar to");
}
