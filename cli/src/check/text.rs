//! Findings as lines of at most 100 columns.

use super::{Finding, Mark, Report};
use crate::output::wrap;

/// The report about a controller.
pub(super) fn of(report: &Report) -> String {
    let mut text: String = report.findings.iter().map(told).collect();
    for unseen in &report.unseen {
        text += &wrap("! ", &format!("not looked at: {unseen}"));
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
    text + &wrap("", &format!("{}: {verdict}{asked}", report.deployment))
}

fn told(finding: &Finding) -> String {
    let mut text = wrap(&format!("{} {} ", finding.mark.sign(), finding.id), &finding.finding);
    if finding.mark == Mark::Unfit {
        text += &wrap("      ", &finding.consequence);
        text += &wrap("      ", &format!("{} (docs: {})", finding.remedy, finding.page));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
