//! Findings as lines of at most 100 columns.

use std::fmt::Write as _;

use super::{Finding, Mark, Report};

/// The most columns of a line.
const WIDTH: usize = 100;

/// The report about a controller.
pub(super) fn of(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        add(&mut text, finding);
    }
    for unseen in &report.unseen {
        line(&mut text, "! ", &format!("not looked at: {unseen}"));
    }
    let count = |mark: Mark| report.findings.iter().filter(|finding| finding.mark == mark).count();
    let open = report.findings.iter().filter(|finding| finding.mark == Mark::Unfit);
    let open: Vec<_> = open.map(|finding| finding.id.as_str()).collect();
    let questions = count(Mark::Ask);
    let asked = match questions {
        0 => String::new(),
        1 => "; 1 question is open".to_owned(),
        n => format!("; {n} questions are open"),
    };
    let verdict =
        if open.is_empty() { "fit".to_owned() } else { format!("not fit until {} is solved", open.join(", ")) };
    line(&mut text, "", &format!("{}: {verdict}{asked}", report.deployment));
    text
}

fn add(text: &mut String, finding: &Finding) {
    let sign = finding.mark.sign();
    if finding.mark == Mark::Fit {
        return line(text, &format!("{sign} {} ", finding.id), &finding.finding);
    }
    line(text, &format!("{sign} {} ", finding.id), &finding.finding);
    if finding.mark == Mark::Unfit {
        line(text, "      ", &finding.consequence);
        line(text, "      ", &format!("{} (docs: {})", finding.remedy, finding.page));
    }
}

/// Adds a text with a beginning; further lines are indented by as much.
pub(super) fn line(text: &mut String, begin: &str, words: &str) {
    let indent = begin.chars().count();
    let mut current = begin.to_owned();
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && current.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{}", current.trim_end());
            current = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            current.push(' ');
        }
        current.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(text, "{}", current.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_at_most_100_columns_and_go_on_below_their_text() {
        let mut text = String::new();
        line(&mut text, "× R05 ", &"word ".repeat(40));
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("      word")), "{text}");
    }

    #[test]
    fn the_last_line_says_what_is_to_be_solved() {
        let finding = |id: &str, mark| Finding {
            id: id.to_owned(),
            mark,
            finding: "finding".to_owned(),
            consequence: "It fails.".to_owned(),
            remedy: "Change it.".to_owned(),
            page: format!("fit#{id}"),
        };
        let findings = vec![finding("R01", Mark::Fit), finding("R14", Mark::Unfit), finding("R22", Mark::Ask)];
        let report = Report { deployment: "a/b".to_owned(), fit: false, findings, unseen: Vec::new() };
        let text = of(&report);
        assert_eq!(
            text,
            "√ R01 finding\n× R14 finding\n      It fails.\n      Change it. (docs: fit#R14)\n? R22 finding\n\
             a/b: not fit until R14 is solved; 1 question is open\n"
        );
    }
}
