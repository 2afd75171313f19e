//! ARCHITECTURE.md names only what exists, and the tree keeps to the rules that it states.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use ringside_e2e::pages::{files, root};

const CRATES: [&str; 9] = ["ring", "runtime", "inject", "proxy", "sharder", "cli", "model", "e2e", "bench"];

/// Every Rust file below this folder of a crate.
fn sources(dir: &str) -> Vec<PathBuf> {
    let found: Vec<_> = CRATES.iter().flat_map(|krate| files(&format!("{krate}/{dir}"), "rs")).collect();
    assert!(!found.is_empty(), "no crate has {dir}");
    found
}

/// The paths that the page names: everything between back-ticks that looks like one.
fn named_paths(page: &str) -> Vec<&str> {
    let looks_like_path = |text: &&str| {
        let known = [
            "ring/", "runtime/", "inject/", "proxy/", "sharder/", "cli/", "e2e/", "fuzz/", "model/", "bench/",
            "deploy/", "docs/", ".ci/",
        ];
        known.iter().any(|start| text.starts_with(start)) && !text.contains([' ', '<', '*', '{'])
    };
    page.split('`').skip(1).step_by(2).filter(looks_like_path).collect()
}

#[test]
fn every_path_that_a_page_names_exists() {
    for (name, least) in [("ARCHITECTURE.md", 100), ("docs/dev/INVARIANTS.md", 20), ("docs/dev/DEPARTURES.md", 10)] {
        let page = fs::read_to_string(root().join(name)).unwrap();
        let paths = named_paths(&page);
        assert!(paths.len() > least, "{name} names {} paths: is it still about the code?", paths.len());
        let missing: Vec<_> = paths.into_iter().filter(|path| !root().join(path).exists()).collect();
        assert!(missing.is_empty(), "{name} names what does not exist: {missing:?}");
    }
}

#[test]
fn every_module_is_on_the_map() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut unnamed = Vec::new();
    for krate in CRATES {
        for entry in fs::read_dir(root().join(krate).join("src")).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            let known = ["lib", "main", "bin"].contains(&stem) || page.contains(&format!("{krate}/src/{stem}"));
            if !known {
                unnamed.push(format!("{krate}/src/{stem}"));
            }
        }
    }
    unnamed.sort();
    unnamed.dedup();
    assert!(unnamed.is_empty(), "ARCHITECTURE.md does not say what these are for: {unnamed:?}");
}

#[test]
fn every_module_says_what_it_is_for() {
    let silent: Vec<_> = sources("src")
        .into_iter()
        .filter(|path| !path.to_str().unwrap().ends_with("tests.rs"))
        .filter(|path| !fs::read_to_string(path).unwrap().starts_with("//!"))
        .collect();
    assert!(silent.is_empty(), "modules that do not open with //!: {silent:?}");
}

#[test]
fn files_and_mains_are_short() {
    let lines = |path: &PathBuf| fs::read_to_string(path).unwrap().lines().count();
    let all = sources("src");
    let large: Vec<_> = all.iter().filter(|path| lines(path) > 600).collect();
    assert!(large.is_empty(), "files over 600 lines: {large:?}");
    let mains: Vec<_> = all.iter().filter(|path| path.ends_with("src/main.rs") && lines(path) > 30).collect();
    assert!(mains.is_empty(), "a main parses, builds and runs, in 30 lines: {mains:?}");
    let mut lengths: Vec<_> = all.iter().map(lines).collect();
    lengths.sort_unstable();
    assert!(lengths[lengths.len() / 2] < 200, "half of the files have fewer than 200 lines: {lengths:?}");
}

/// What stands between back-ticks in the last column of a page's tables: the program of a live test, or a test.
fn named_tests(page: &str) -> Vec<&str> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let last = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    last.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// The names of all tests, and of much beside.
struct Tests {
    functions: BTreeSet<String>,
    /// Those that are shown by their names alone.
    cases: BTreeSet<String>,
    /// The model's are made by a macro, one for each mistake.
    made: BTreeSet<String>,
}

/// The words that stand between these parts.
fn words_between(code: &str, before: &str, after: char) -> BTreeSet<String> {
    let rests = code.split(before).skip(1).filter_map(|rest| rest.split_once(after));
    rests.map(|(word, _)| word).filter(|word| word.len() < 200).map(str::to_owned).collect()
}

impl Tests {
    fn read() -> Self {
        let tests: Vec<_> = sources("src").into_iter().chain(sources("tests")).collect();
        let code: String = tests.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        let dense: String = code.split_whitespace().collect();
        Self {
            functions: words_between(&code, "fn ", '('),
            cases: words_between(&dense, "case!(\"", '"'),
            made: words_between(&code, "        ", ':'),
        }
    }

    fn has(&self, name: &str) -> bool {
        let test = name.rsplit("::").next().unwrap();
        let places = [format!("live/{name}.rs"), format!("{name}/main.rs")];
        let program = places.iter().any(|place| root().join("e2e/tests").join(place).exists());
        let is_made = name.starts_with("mistakes::") && self.made.contains(test);
        program || is_made || self.cases.contains(test) || self.functions.contains(test)
    }
}

#[test]
fn every_test_that_a_page_names_exists() {
    let tests = Tests::read();
    for (page, least) in [("docs/dev/situations.md", 20), ("docs/dev/protections.md", 300)] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let named = named_tests(&text);
        assert!(named.len() > least, "{page} names {} tests: has it still its table?", named.len());
        let missing: Vec<_> = named.into_iter().filter(|name| !tests.has(name)).collect();
        assert!(missing.is_empty(), "{page} names tests that do not exist: {missing:?}");
    }
}

/// The live tests that the rules of fitness name, each with its rule.
fn shown_by(rules: &str) -> Vec<(&str, &str)> {
    let of_rule = |rule| -> Option<(&str, &str)> {
        let (id, fields): (&str, &str) = str::split_once(rule, '\n')?;
        let tests = fields.lines().find_map(|line| line.trim().strip_prefix("shownBy: "))?;
        Some((id, tests))
    };
    let named = rules.split("\n- id: ").skip(1).filter_map(of_rule);
    named.flat_map(|(id, tests)| tests.split('"').skip(1).step_by(2).map(move |test| (id, test))).collect()
}

#[test]
fn every_rule_of_fitness_names_tests_that_exist() {
    let rules = fs::read_to_string(root().join("cli/src/fit/rules.yaml")).unwrap();
    let page = fs::read_to_string(root().join("docs/src/fit.md")).unwrap();
    assert!(page.lines().count() <= 144, "it is to be read before anything is done");
    let tests = Tests::read();
    let shown = shown_by(&rules);
    assert!(shown.len() > 7, "{} tests: are they still written so?", shown.len());
    let missing: Vec<_> = shown.into_iter().filter(|(_, test)| !tests.has(test)).collect();
    assert!(missing.is_empty(), "cli/src/fit/rules.yaml names tests that do not exist: {missing:?}");
}

/// The rows of the page of situations.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter(|line| line.starts_with("| ")).skip(2)
}

/// What stands between back-ticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names of alerts between back-ticks in the rows of the page of situations.
fn named_alerts(page: &str) -> BTreeSet<&str> {
    rows(page).flat_map(quoted).filter(|name| name.starts_with("Ringside")).collect()
}

#[test]
fn every_alert_has_its_situation() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (page, rules) = (read("docs/dev/situations.md"), read("deploy/monitoring/rules.yaml"));
    let alerts: BTreeSet<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "the rules have {} alerts: are they still written so?", alerts.len());
    let named = named_alerts(&page);
    let without: Vec<_> = alerts.difference(&named).collect();
    assert!(without.is_empty(), "docs/dev/situations.md has no row for these alerts: {without:?}");
    let unknown: Vec<_> = named.difference(&alerts).collect();
    assert!(unknown.is_empty(), "docs/dev/situations.md names alerts that there are not: {unknown:?}");
}

/// Whether it is one word as the reasons of Events and conditions are.
fn is_like_a_reason(text: &str) -> bool {
    let word = text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.chars().all(|character| character.is_ascii_alphanumeric());
    word && !["True", "False"].contains(&text)
}

/// The text of each constant that has one, by its name.
fn constants(code: &str) -> BTreeMap<&str, &str> {
    let texts = code.split("const ").skip(1).filter_map(|rest| rest.split_once(": &str = \""));
    texts.filter_map(|(name, rest)| Some((name, rest.split('"').next()?))).collect()
}

/// The reasons that some code names, itself or by constants of all code: every word that looks like one and does not stand
/// where something else does. So one that is written in another way than those of today is not overlooked.
fn reasons<'a>(code: &'a str, constants: &BTreeMap<&str, &'a str>) -> BTreeSet<&'a str> {
    let is_something_else = |before: &str| {
        let begun = before.rsplit([';', '{']).next().unwrap().trim_end();
        let field = ["type_:", "action:"].iter().any(|field| begun.ends_with(field));
        field || ["let (type_,", "const CONDITION"].iter().any(|start| begun.contains(start))
    };
    let parts: Vec<_> = code.split('"').collect();
    let words = parts.windows(2).step_by(2).filter(|pair| !is_something_else(pair[0])).map(|pair| pair[1]);
    let names = code.split(|character: char| !character.is_ascii_uppercase() && character != '_');
    let values = names.filter(|name| !name.starts_with("CONDITION")).filter_map(|name| constants.get(name).copied());
    words.chain(values).filter(|text| is_like_a_reason(text)).collect()
}

/// The reasons of all Events, and of the conditions that are told of by Events as well: whatever the files name that tell.
fn told_reasons() -> BTreeSet<String> {
    let rooms = sources("src").into_iter().filter(|path| !path.to_str().unwrap().ends_with("tests.rs"));
    let rooms: Vec<_> = rooms
        .map(|path| {
            let code = fs::read_to_string(&path).unwrap().split("#[cfg(test)]").next().unwrap().to_owned();
            (path.strip_prefix(root()).unwrap().to_owned(), code)
        })
        .collect();
    let all: String = rooms.iter().map(|(_, code)| &**code).collect();
    let constants = constants(&all);
    let (mut told, mut silent) = (BTreeSet::new(), Vec::new());
    for (path, code) in rooms.iter().filter(|(path, _)| path.starts_with("sharder") || path.starts_with("proxy")) {
        if !["Notice {", "Finding {", "Recorder::new("].iter().any(|tells| code.contains(tells)) {
            continue;
        }
        let found = reasons(code, &constants);
        if found.is_empty() {
            silent.push(path);
        }
        told.extend(found.into_iter().map(str::to_owned));
    }
    // It writes what the others tell.
    assert_eq!(silent, [Path::new("sharder/src/notices.rs")], "these tell something, and name no reason");
    told
}

/// The reasons that the rows of the page of situations say are told: of an `event`, or of a condition that is `False`.
fn named_reasons(page: &str) -> BTreeSet<&str> {
    let seen = rows(page).filter_map(|row| row.split(" | ").nth(2));
    let told = seen.flat_map(|cell| cell.split("; ")).filter_map(|clause| {
        clause.strip_prefix("event").or_else(|| clause.split_once("is `False`, ").map(|(_, rest)| rest))
    });
    told.flat_map(quoted).filter(|name| is_like_a_reason(name)).collect()
}

#[test]
fn every_reason_of_an_event_has_its_situation() {
    let page = fs::read_to_string(root().join("docs/dev/situations.md")).unwrap();
    let told = told_reasons();
    let told: BTreeSet<_> = told.iter().map(String::as_str).collect();
    assert!(told.len() > 20, "{} reasons are told: are they still written so?", told.len());
    let anywhere: BTreeSet<_> = rows(&page).flat_map(quoted).collect();
    let without: Vec<_> = told.difference(&anywhere).collect();
    assert!(without.is_empty(), "docs/dev/situations.md has no row for these reasons: {without:?}");
    let named = named_reasons(&page);
    assert!(named.len() > 20, "docs/dev/situations.md names {} reasons: has it still its table?", named.len());
    let unknown: Vec<_> = named.difference(&told).collect();
    assert!(unknown.is_empty(), "docs/dev/situations.md names reasons that there are not: {unknown:?}");
}

/// The constants of the contract that are keys of labels and annotations, or begin them.
fn label_keys() -> Vec<String> {
    let code = fs::read_to_string(root().join("ring/src/labels.rs")).unwrap();
    let constants = code.lines().filter_map(|line| line.split_once(": &str = ")).map(|(_, value)| value);
    let values = constants.map(|value| value.trim_matches(['"', ';']).to_owned());
    values.filter(|value| value.contains("ringside.dev/") || value.contains("sharding.timebertt.dev")).collect()
}

#[test]
fn the_reference_has_every_reason_and_label() {
    let page = fs::read_to_string(root().join("docs/src/reference.md")).unwrap();
    let (told, keys) = (told_reasons(), label_keys());
    assert!(keys.len() > 8, "{keys:?}: are they still written so?");
    let written: BTreeSet<_> = quoted(&page).collect();
    let without: Vec<_> = told.iter().filter(|reason| !written.contains(reason.as_str())).collect();
    assert!(without.is_empty(), "docs/src/reference.md does not name these reasons: {without:?}");
    let without: Vec<_> = keys.iter().filter(|key| !page.contains(key.as_str())).collect();
    assert!(without.is_empty(), "docs/src/reference.md does not name these keys: {without:?}");
}
