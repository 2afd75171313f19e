//! The tables of the page 'Is it right for my controller?', made from the rules.

use std::fmt::Write as _;

use super::rules::Rules;

/// The table of rules, with an anchor a row.
#[must_use]
pub fn rules(rules: &Rules) -> String {
    let mut text = "| id | the controller | verdict | what happens | what to do | seen in |\n".to_owned();
    text.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for rule in &rules.rules {
        let id = &rule.id;
        let _ = writeln!(
            text,
            r#"| <a id="{}"></a>{id} | {} | {} | {} | {} | {} |"#,
            id.to_lowercase(),
            rule.finding,
            rule.verdict.as_str(),
            rule.consequence,
            rule.remedy,
            rule.seen_in,
        );
    }
    text
}

/// The table of controllers that are known by name.
#[must_use]
pub fn known(rules: &Rules) -> String {
    let mut text = "| controller | rules |\n| --- | --- |\n".to_owned();
    for known in &rules.known {
        let met = known.rules.iter().map(|met| {
            let link = format!("[{}](#{})", met.id, met.id.to_lowercase());
            if met.unless.is_empty() { link } else { format!("{link}, unless `{}`", met.unless.join("` or `")) }
        });
        let _ = writeln!(text, "| {} | {} |", known.controller, met.collect::<Vec<_>>().join(", "));
    }
    text
}

/// Replaces what stands between the markers of the tables; `None` where the page lacks one.
#[must_use]
pub fn write(page: &str, all: &Rules) -> Option<String> {
    let mut page = page.to_owned();
    for (name, table) in [("rules", rules(all)), ("known", known(all))] {
        let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
        let (before, rest) = page.split_once(&begin)?;
        let (_, after) = rest.split_once(&end)?;
        page = format!("{before}{begin}\n{table}\n{end}{after}");
    }
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the page again where `RINGSIDE_WRITE_PAGES` is set.
    #[test]
    fn the_page_has_the_rules_as_they_are() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/fit.md");
        let kept = std::fs::read_to_string(path).unwrap();
        let fresh = write(&kept, &Rules::load().unwrap()).unwrap();
        if std::env::var_os("RINGSIDE_WRITE_PAGES").is_some() {
            std::fs::write(path, &fresh).unwrap();
            return;
        }
        assert!(
            kept == fresh,
            "docs/src/fit.md is out of date; write it again:\n  \
             RINGSIDE_WRITE_PAGES=1 cargo test -p ringside-cli --lib -- the_page_has_the_rules"
        );
    }
}
