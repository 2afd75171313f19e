//! Texts for users keep to the project's words, and so do comments.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ringside_e2e::pages::{files, root};

/// A term that texts for users don't use, the word instead, and the texts that may have it all the same.
struct Term(&'static str, &'static str, &'static [&'static str]);

/// Everywhere: pages, help, conditions, Events, logs, errors, and comments of [`COMMENTED`].
const WORDS: [Term; 17] = [
    Term("somebody", "another client, a user", &[]),
    Term("someone", "another client, a user", &[]),
    Term("anybody", "every client", &[]),
    Term("whoever", "a client that", &[]),
    // A column of `plan`, not a sentence.
    Term("nobody", "no replica, without owner", &["(nobody)"]),
    Term("nobody's", "without owner", &[]),
    Term("let go", "release", &[]),
    Term("lets go", "releases", &[]),
    Term("letting go", "releasing", &[]),
    Term("lets it go", "releases it", &[]),
    Term("let it go", "released it", &[]),
    Term("anew", "again", &[]),
    Term("goes by", "enforces", &["the API server goes by policies"]),
    Term("looks through", "scans", &[]),
    Term("looked through", "scanned", &[]),
    Term("look through", "scan", &[]),
    Term("in the midst", "during", &[]),
];

/// In the same texts, but for comments.
const TERMS: [Term; 12] = [
    Term("gave objects to shards", "assigned objects", &[]),
    Term("this replica leads", "became leader", &["Whether this replica leads"]),
    Term("the sharder ends", "sharder stopped", &[]),
    Term("stream was cut", "closed all streams", &[]),
    Term("nobody knows", "can't determine", &[]),
    Term("the thesis", "kubernetes-controller-sharding", &[]),
    Term("census", "object counts", &[]),
    Term("foresight", "prefetch", &[]),
    Term("farewell", "graceful shutdown", &[]),
    Term("tenure", "hold on the Lease", &[]),
    Term("territory", "owned objects", &[]),
    Term("the way of a request", "request path", &[]),
];

/// The folders of code whose comments have none of the words.
const COMMENTED: [&str; 10] = ["bench", "cli", "e2e", "fuzz", "inject", "model", "proxy", "ring", "runtime", "sharder"];

/// In the book, which speaks of replicas and filters; the pages where the words of the API are explained may have them.
const IN_PAGES: [Term; 10] = [
    Term(
        "shards",
        "replicas",
        &["how-it-works.md", "reference.md", "shards nothing", "shards itself", "shards its objects"],
    ),
    Term("a shard", "a replica", &["how-it-works.md", "reference.md", "metrics.md"]),
    Term("the shard", "the replica", &["how-it-works.md", "reference.md"]),
    Term("its shard", "its replica", &["how-it-works.md", "reference.md"]),
    Term("each shard", "each replica", &["how-it-works.md", "reference.md"]),
    Term("one shard", "one replica", &["how-it-works.md", "reference.md"]),
    Term("another shard", "another replica", &["how-it-works.md", "reference.md"]),
    Term("narrow", "filter", &["how-it-works.md"]),
    Term("narrowed", "filtered", &["how-it-works.md"]),
    Term("narrows", "filters", &["how-it-works.md", "narrows what the webhook is asked about"]),
];

/// In the map of the code.
const ON_THE_MAP: [Term; 2] = [Term("room", "module", &[]), Term("rooms", "modules", &[])];

/// The text with every run of whitespace as one blank, in lower case.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// A page without what stands between back-ticks.
fn unquoted(page: &str) -> String {
    page.split('`').step_by(2).collect::<Vec<_>>().join(" \u{2026} ")
}

/// Whether the words stand in a flat text, as whole words, outside of what may have them.
fn has(text: &str, words: &str, allowed: &[&str]) -> bool {
    let text = allowed.iter().fold(text.to_owned(), |text, allowed| text.replace(&allowed.to_lowercase(), "\u{2026}"));
    let is_border = |at: Option<char>| at.is_none_or(|it| !it.is_alphanumeric() && it != '-');
    text.match_indices(words).any(|(at, found)| {
        is_border(text[..at].chars().next_back()) && is_border(text[at + found.len()..].chars().next())
    })
}

/// What is said to users by code: every string, a line each, but for those of its tests and comments.
fn strings(code: &str) -> String {
    let mut rest = ["#[cfg(test)]\nmod tests", "#[cfg(test)]\npub(crate) mod tests"]
        .into_iter()
        .fold(code, |code, tests| code.split(tests).next().unwrap());
    let mut said = String::new();
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (begin, after) = (&rest[at..], &rest[at + 1..]);
        rest = if begin.starts_with("//") {
            begin.split_once('\n').map_or("", |(_, next)| next)
        } else if begin.starts_with("'\"'") || begin.starts_with("'\\'") {
            &begin[3..]
        } else if begin.starts_with('"') {
            let mut escaped = false;
            let end = after.find(|it| {
                let ends = it == '"' && !escaped;
                escaped = it == '\\' && !escaped;
                ends
            });
            let (string, next) = after.split_at(end.unwrap_or(after.len()));
            said.push_str(&string.replace("\\\n", ""));
            said.push('\n');
            next.get(1..).unwrap_or_default()
        } else {
            after
        };
    }
    said
}

/// The comments of code that stand on lines of their own, with a mark for each other line.
fn comments(code: &str) -> String {
    let lines = code.lines().map(|line| line.trim_start().strip_prefix("//").unwrap_or("\u{2026}"));
    lines.map(|line| line.trim_start_matches(['/', '!'])).collect::<Vec<_>>().join("\n")
}

fn pages() -> Vec<PathBuf> {
    let mut pages = files("docs/src", "md");
    pages.push(root().join("README.md"));
    pages
}

#[test]
fn texts_for_users_have_none_of_the_terms() {
    let mut found = Vec::new();
    for path in pages() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let page = fs::read_to_string(&path).unwrap();
        let (all, words) = (flat(&page), flat(&unquoted(&page)));
        let everywhere = WORDS.iter().chain(&TERMS).map(|term| (term, &all));
        for (Term(term, instead, allowed), text) in everywhere.chain(IN_PAGES.iter().map(|term| (term, &words))) {
            if !allowed.contains(&&*name) && has(text, term, allowed) {
                found.push(format!("{name}: '{term}', instead of {instead}"));
            }
        }
    }
    let map = flat(&unquoted(&fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()));
    for Term(term, instead, allowed) in WORDS.iter().chain(&TERMS).chain(&ON_THE_MAP) {
        if has(&map, term, allowed) {
            found.push(format!("ARCHITECTURE.md: '{term}', instead of {instead}"));
        }
    }
    for krate in ["ring", "runtime", "inject", "proxy", "sharder", "cli"] {
        let sources = files(&format!("{krate}/src"), "rs").into_iter();
        let is_test = |path: &Path| path.to_str().is_some_and(|it| it.contains("tests") || it.contains("fixture"));
        for path in sources.filter(|path| !is_test(path)) {
            let said = flat(&strings(&fs::read_to_string(&path).unwrap()));
            for Term(term, instead, allowed) in WORDS.iter().chain(&TERMS).filter(|term| has(&said, term.0, term.2)) {
                let path = path.strip_prefix(root()).unwrap().display();
                found.push(format!("{path}: '{term}', instead of {instead}, but in {allowed:?}"));
            }
        }
    }
    assert!(found.is_empty(), "terms of docs and messages that the project has other words for:\n{}", found.join("\n"));
}

#[test]
fn comments_have_none_of_the_words() {
    let mut found = Vec::new();
    for path in COMMENTED.iter().flat_map(|folder| files(folder, "rs")) {
        let said = flat(&comments(&fs::read_to_string(&path).unwrap()));
        for Term(term, instead, allowed) in WORDS.iter().filter(|term| has(&said, term.0, term.2)) {
            let path = path.strip_prefix(root()).unwrap().display();
            found.push(format!("{path}: '{term}', instead of {instead}, but in {allowed:?}"));
        }
    }
    assert!(found.is_empty(), "words in comments that the project has other words for:\n{}", found.join("\n"));
}

#[test]
fn a_term_is_found_as_a_word_and_where_it_is_not_allowed() {
    assert!(has("it lets go of it", "lets go", &[]) && has("nobody", "nobody", &[]));
    assert!(
        !has("outlets gone", "lets go", &[])
            && !has("shard a controller", "shard a controller", &["Shard a controller"])
    );
    assert!(!has("a shard-a-controller page", "shard", &[]));
    assert_eq!(strings("let a = \"one \\\n two\"; // \"x\"\n'\"', \"a \\\" b\"\n"), "one  two\na \\\" b\n");
    assert_eq!(flat(&comments("/// it lets\n  //! go\nlet a;\n// b\n")), "it lets go \u{2026} b");
}
