//! ARCHITECTURE.md names only what exists, and the tree keeps to the rules that it states.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every Rust file below a crate's `dir`.
fn sources(dir: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    for krate in ["ring", "runtime", "proxy", "sharder", "model", "e2e", "bench"] {
        walk(&root().join(krate).join(dir), &mut found);
    }
    assert!(!found.is_empty() || dir != "src");
    found
}

/// The paths that the page names: everything between back-ticks that looks like one.
fn named_paths(page: &str) -> Vec<&str> {
    let looks_like_path = |text: &&str| {
        let known = [
            "ring/", "runtime/", "proxy/", "sharder/", "e2e/", "fuzz/", "model/", "bench/", "deploy/", "docs/", ".ci/",
        ];
        known.iter().any(|start| text.starts_with(start)) && !text.contains([' ', '<', '*', '{'])
    };
    page.split('`').skip(1).step_by(2).filter(looks_like_path).collect()
}

#[test]
fn every_path_that_the_page_names_exists() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let paths = named_paths(&page);
    assert!(paths.len() > 20, "the page names {} paths: is it still the map of the code?", paths.len());
    let missing: Vec<_> = paths.into_iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what does not exist: {missing:?}");
}

#[test]
fn every_room_is_on_the_map() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut unnamed = Vec::new();
    for krate in ["ring", "runtime", "proxy", "sharder", "model", "e2e", "bench"] {
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
fn files_are_rooms_and_mains_are_short() {
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

#[test]
fn every_test_that_a_page_names_exists() {
    let tests: Vec<_> = sources("src").into_iter().chain(sources("tests")).collect();
    let code: String = tests.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let exists = |name: &&str| {
        let test = name.rsplit("::").next().unwrap();
        let program = ["", "/main"].iter().any(|end| root().join(format!("e2e/tests/{name}{end}.rs")).exists());
        // The model's are made by a macro, one for each mistake.
        let is_made = name.starts_with("mistakes::") && code.contains(&format!("        {test}:"));
        program || is_made || code.contains(&format!("fn {test}(")) || code.contains(&format!("Case::new(\"{test}\""))
    };
    for (page, least) in [("docs/situations.md", 20), ("docs/protections.md", 300)] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let named = named_tests(&text);
        assert!(named.len() > least, "{page} names {} tests: has it still its table?", named.len());
        let missing: Vec<_> = named.into_iter().filter(|name| !exists(name)).collect();
        assert!(missing.is_empty(), "{page} names tests that do not exist: {missing:?}");
    }
}

/// The names of alerts between back-ticks in the rows of the page of situations.
fn named_alerts(page: &str) -> BTreeSet<&str> {
    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(2);
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    quoted.filter(|name| name.starts_with("Ringside")).collect()
}

#[test]
fn every_alert_has_its_situation() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (page, rules) = (read("docs/situations.md"), read("deploy/prometheus-rules.yaml"));
    let alerts: BTreeSet<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "the rules have {} alerts: are they still written so?", alerts.len());
    let named = named_alerts(&page);
    let without: Vec<_> = alerts.difference(&named).collect();
    assert!(without.is_empty(), "docs/situations.md has no row for these alerts: {without:?}");
    let unknown: Vec<_> = named.difference(&alerts).collect();
    assert!(unknown.is_empty(), "docs/situations.md names alerts that there are not: {unknown:?}");
}
