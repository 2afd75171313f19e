//! The modules of a crate have an order: each uses those below it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use ringside_e2e::pages::{files, root};

/// The crates, each with the modules that still use each other in a circle. None may be added.
const CRATES: [(&str, &[&str]); 9] = [
    ("ring", &[]),
    ("runtime", &[]),
    ("inject", &[]),
    ("proxy", &[]),
    ("sharder", &[]),
    ("cli", &[]),
    ("model", &["actions", "config", "promises", "queue", "state"]),
    ("e2e", &["audit", "chaos", "churn", "collector", "observer", "proxy", "system", "workload"]),
    ("bench", &[]),
];

/// By module, those that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// The production code of a file, without comments.
fn production(code: &str) -> String {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = lines.flat_map(|line| [line, "\n"]).collect();
    code.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned()
}

/// The first name of each path that begins in this text, which stands behind `crate::`.
fn first_names(text: &str) -> Vec<&str> {
    let Some(of_many) = text.strip_prefix('{') else {
        return text.split(|c: char| !c.is_alphanumeric() && c != '_').take(1).collect();
    };
    let (mut depth, mut begin, mut names) = (0_usize, 0, Vec::new());
    for (at, character) in of_many.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(&of_many[begin..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(&of_many[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    names.into_iter().filter_map(|name| name.trim().split("::").next()).filter(|name| !name.is_empty()).collect()
}

/// What the root of a crate shows by another name, with its module.
fn shown_by_root(krate: &str) -> BTreeMap<String, String> {
    let lib = fs::read_to_string(root().join(krate).join("src/lib.rs")).unwrap();
    let statements = lib.split("pub use ").skip(1).filter_map(|rest| rest.split_once(';'));
    let of = |(path, _): (&str, &str)| {
        let (module, names) = path.split_once("::")?;
        let names = names.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty());
        Some(names.map(|name| (name.to_owned(), module.to_owned())).collect::<Vec<_>>())
    };
    statements.filter_map(of).flatten().collect()
}

/// Which of a crate's modules use which.
fn uses(krate: &str) -> Uses {
    let (sources, shown) = (format!("{krate}/src"), shown_by_root(krate));
    let found = files(&sources, "rs").into_iter().filter_map(|path| {
        let inner = path.strip_prefix(root().join(&sources)).unwrap().with_extension("");
        let parts: Vec<_> = inner.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        let counts = !["lib", "main", "bin", "fixtures"].contains(&&*parts[0]) && !parts.contains(&"tests".to_owned());
        counts.then(|| (parts[0].clone(), production(&fs::read_to_string(path).unwrap())))
    });
    let found: Vec<_> = found.collect();
    let modules: BTreeSet<_> = found.iter().map(|(module, _)| module.clone()).collect();
    let mut uses = Uses::new();
    for (module, code) in &found {
        let named = code.split("crate::").skip(1).flat_map(first_names);
        let used = named.map(|name| shown.get(name).map_or(name, String::as_str));
        let used = used.filter(|name| *name != module && modules.contains(*name)).map(str::to_owned);
        uses.entry(module.clone()).or_default().extend(used);
    }
    uses
}

/// All modules that this one uses, itself or by way of others.
fn below<'a>(uses: &'a Uses, module: &'a str) -> BTreeSet<&'a str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![module]);
    while let Some(module) = next.pop() {
        next.extend(uses[module].iter().map(String::as_str).filter(|used| reached.insert(*used)));
    }
    reached
}

/// The modules that use themselves by way of others.
fn in_circles(uses: &Uses) -> Vec<&str> {
    uses.keys().map(String::as_str).filter(|module| below(uses, module).contains(module)).collect()
}

#[test]
fn each_module_uses_those_below_it_alone() {
    for (krate, known) in CRATES {
        let uses = uses(krate);
        assert!(
            uses.values().any(|used| !used.is_empty()),
            "{krate}: do its modules still name each other by `crate::`?"
        );
        assert_eq!(in_circles(&uses), known, "{krate}: these use each other in a circle; all uses: {uses:?}");
    }
}
