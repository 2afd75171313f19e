#![allow(clippy::unwrap_used)]

use super::*;

const SECTION: Section = Section { name: "streams", test: "streams" };
const PAGE: &str = "# Page\n<!-- begin streams -->\nold\n<!-- end streams -->\n<!-- begin other -->\n";

fn row(behaviour: &str, representation: &str, outcome: Outcome) -> Row {
    Row { behaviour: behaviour.to_owned(), representation: representation.to_owned(), outcome }
}

#[test]
fn representations_that_came_to_the_same_share_a_line_and_a_gap_has_its_own() {
    let ledger = Ledger::default();
    ledger.note(2, row("watch", "JSON", Outcome::Narrowed));
    ledger.note(1, row("list", "protobuf", Outcome::Same));
    ledger.note(0, row("list", "JSON", Outcome::Same));
    ledger.note(3, row("list", "Table", Outcome::Gap("no time")));
    let lines = "| list | JSON; protobuf | same |\n| watch | JSON | narrowed |\n| list | Table | **gap**: no time |\n";
    assert!(table(&ledger.rows()).ends_with(lines));
}

#[test]
fn a_section_is_compared_or_written_and_the_rest_of_the_page_stays() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    fs::write(&page, PAGE).unwrap();
    let differs = SECTION.settle_in(&page, "new", Task::Compare).unwrap_err().to_string();
    assert!(differs.contains("- old") && differs.contains("+ new") && differs.contains("--test streams"), "{differs}");
    assert_eq!(fs::read_to_string(&page).unwrap(), PAGE);

    SECTION.settle_in(&page, "new\n", Task::Write).unwrap();
    let written = "# Page\n<!-- begin streams -->\n\nnew\n<!-- end streams -->\n<!-- begin other -->\n";
    assert_eq!(fs::read_to_string(&page).unwrap(), written);
    SECTION.settle_in(&page, "new", Task::Compare).unwrap();
}

#[test]
fn a_row_is_looked_for_by_behaviour_form_and_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    fs::write(&page, PAGE.replace("old", "| list | JSON; protobuf as text | same |")).unwrap();
    let is_there = |row: &Row| SECTION.check_in(&page, row, Task::Compare).is_ok();
    assert!(is_there(&row("list", "JSON", Outcome::Same)));
    let others = [
        row("list", "protobuf", Outcome::Same),
        row("list", "JSON", Outcome::Narrowed),
        row("lists", "JSON", Outcome::Same),
    ];
    assert!(others.iter().all(|row| !is_there(row)));
    SECTION.check_in(&page, &others[0], Task::Write).unwrap();
}

#[test]
fn a_page_without_a_place_for_the_section_is_a_fault() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    fs::write(&page, "<!-- end streams -->\n<!-- begin streams -->\n").unwrap();
    let fault = SECTION.settle_in(&page, "", Task::Write).unwrap_err().to_string();
    assert!(fault.contains("no lines"), "{fault}");
}
