//! What the book names is in the programs: options, variables, metrics, conditions, Events, labels and values of the chart.
//!
//! The tables of the reference and of the metrics stand for the programs: tests beside the programs compare them.

use std::{collections::BTreeSet, fs};

use clap::CommandFactory as _;
use ringside_e2e::{
    demo::Arguments,
    pages::{Page, files, root},
};
use serde_json::Value;

/// Options of other programs that pages name without these.
const OF_OTHERS: [&str; 9] = [
    // kubectl
    "delete-emptydir-data",
    // Helm
    "post-renderer",
    "set",
    // kopf
    "standalone",
    // controllers, on the page of rules
    "enable-leader-election",
    "leader-elect",
    "leader-election-namespace",
    "max-concurrent-challenges",
    "policy",
];

/// The pages of the book.
fn book() -> Vec<Page> {
    let pages = files("docs/src", "md").into_iter().map(|path| {
        let path = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        Page::read(&path)
    });
    pages.filter(|page| !page.path.ends_with("SUMMARY.md")).collect()
}

/// What stands in back-ticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn reference() -> String {
    Page::read("docs/src/reference.md").prose.join("\n")
}

/// The long options that a text names, without their values.
fn options(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split_whitespace().filter_map(|word| word.strip_prefix("--"));
    let named =
        words.filter_map(|option| option.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '-')).next());
    named.filter(|option| !option.is_empty())
}

/// Fails with all findings at once.
fn none(what: &str, found: &BTreeSet<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.iter().cloned().collect::<Vec<_>>().join("\n  "));
}

/// What pages name and the programs do not, as `PAGE: NAME`.
fn unknown<'a>(
    pages: &'a [Page],
    named: impl Fn(&'a Page) -> Vec<String>,
    known: &BTreeSet<String>,
) -> BTreeSet<String> {
    let of = |page: &'a Page| {
        named(page).into_iter().filter(|name| !known.contains(name)).map(|name| format!("{}: {name}", page.path))
    };
    pages.iter().flat_map(of).collect()
}

#[test]
fn options_and_variables_exist() {
    let reference = reference();
    let ours: BTreeSet<String> = spans(&reference).flat_map(options).map(str::to_owned).collect();
    assert!(ours.len() > 40 && ours.contains("drain-grace"), "{ours:?}: has the reference still its tables?");
    let demo = Arguments::command();
    let of_demo = demo.get_arguments().filter_map(clap::Arg::get_long);
    let known: BTreeSet<_> =
        ours.iter().map(String::as_str).chain(of_demo).chain(OF_OTHERS).map(str::to_owned).collect();
    let pages = book();
    let of_page = |page: &Page| {
        let text = page.prose.join(" ");
        let of_others = |span: &&str| ["kubectl ", "helm "].iter().any(|program| span.starts_with(program));
        spans(&text).filter(|span| !of_others(span)).flat_map(options).map(str::to_owned).collect()
    };
    none("options that no program has", &unknown(&pages, of_page, &known));
    let variables = |page: &Page| {
        let text = page.lines.join(" ");
        let named = text.split("RINGSIDE_").skip(1);
        let named =
            named.map(|rest| rest.split(|sign: char| !(sign.is_ascii_uppercase() || sign == '_')).next().unwrap());
        named.map(|name| name.to_lowercase().replace('_', "-")).collect()
    };
    none("variables that no option has", &unknown(&pages, variables, &ours));
}

/// The metrics that a text names; without what a histogram adds.
fn metrics(text: &str) -> Vec<String> {
    let words = text.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '_'));
    let ours =
        words.filter(|word| ["controller_sharding_", "ringside_proxy_"].iter().any(|start| word.starts_with(start)));
    let bare = |word: &str| {
        ["_bucket", "_count", "_sum"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word).to_owned()
    };
    ours.map(bare).collect()
}

#[test]
fn metrics_exist() {
    let tables = Page::read("docs/src/metrics.md");
    let known: BTreeSet<_> =
        tables.prose.iter().filter(|line| line.starts_with('|')).flat_map(|line| metrics(line)).collect();
    assert!(known.len() > 40, "{known:?}: has the page still its tables?");
    none("metrics that no program has", &unknown(&book(), |page| metrics(&page.lines.join(" ")), &known));
}

/// The first cells of the table below a heading.
fn first_cells(page: &str, heading: &str) -> BTreeSet<String> {
    let part = page.split(&format!("\n## {heading}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let cells = part.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| spans(cell).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The words in back-ticks behind one of these.
fn told(page: &Page, before: &[&str]) -> Vec<String> {
    let text = page.prose.join(" ");
    let after = before.iter().flat_map(|before| text.split(before).skip(1));
    after.filter_map(|rest| rest.split('`').next()).map(str::to_owned).collect()
}

#[test]
fn conditions_and_events_exist() {
    let sources = ["sharder/src", "ring/src"].into_iter().flat_map(|folder| files(folder, "rs"));
    let code: String = sources.map(|path| fs::read_to_string(path).unwrap()).collect();
    let reference = reference();
    let conditions = first_cells(&reference, "Conditions");
    assert!(conditions.len() > 10, "{conditions:?}");
    let foreign = conditions.iter().filter(|condition| !code.contains(&format!("\"{condition}\""))).cloned().collect();
    none("conditions that the sharder does not set", &foreign);
    let pages = book();
    let named = |page: &Page| told(page, &["condition `", "conditions `", "Condition `"]);
    none("conditions that there are not", &unknown(&pages, named, &conditions));
    let events = first_cells(&reference, "Events").into_iter().chain(conditions).collect();
    none("Events that there are not", &unknown(&pages, |page| told(page, &["Event `", "Events `"]), &events));
}

#[test]
fn labels_and_annotations_exist() {
    let folders = ["sharder/src", "ring/src", "inject/src", "proxy/src", "cli/src"]
        .into_iter()
        .flat_map(|folder| files(folder, "rs"));
    let code: String = folders.map(|path| fs::read_to_string(path).unwrap()).collect();
    let keys = |text: &str| -> BTreeSet<String> {
        let is_part = |sign: char| sign.is_ascii_alphanumeric() || sign == '-';
        let rest = text.split("ringside.dev/").skip(1).map(|rest| rest.split(|sign| !is_part(sign)).next().unwrap());
        // `kubectl label` removes a key by a dash behind it.
        let keys = rest.map(|key| key.trim_end_matches('-')).filter(|key| !key.is_empty());
        keys.map(|key| format!("ringside.dev/{key}")).collect()
    };
    let known = keys(&code);
    assert!(known.len() > 10, "{known:?}");
    none(
        "keys that no program knows",
        &unknown(&book(), |page| keys(&page.lines.join(" ")).into_iter().collect(), &known),
    );
}

#[test]
fn values_of_the_chart_exist() {
    let text = fs::read_to_string(root().join("deploy/helm/ringside/values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&text).unwrap();
    let page = Page::read("docs/src/install.md");
    let rows = page.prose.iter().skip_while(|line| !line.starts_with("| value |")).skip(2);
    let cells: Vec<_> =
        rows.take_while(|line| line.starts_with('|')).filter_map(|line| line.split(" | ").next()).collect();
    assert!(cells.len() > 10, "{cells:?}: has the page still its table?");
    let mut missing = BTreeSet::new();
    for cell in cells {
        let mut begin = "";
        for name in spans(cell) {
            // As in `monitoring.podMonitor`, `.rules`.
            let path = if name.starts_with('.') { format!("{begin}{name}") } else { name.to_owned() };
            begin = if name.starts_with('.') { begin } else { name.split('.').next().unwrap() };
            if values.pointer(&format!("/{}", path.replace('.', "/"))).is_none() {
                missing.insert(path);
            }
        }
    }
    none("docs/src/install.md names values that the chart has not", &missing);
}
