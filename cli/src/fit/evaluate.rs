//! Judges a controller by the rules: a pure function of what is known of it.

use serde::Serialize;

use super::{
    rules::{Found, Rule, Rules, Verdict},
    subject::Subject,
};

mod election;
mod objects;
mod ownership;
mod pods;
mod services;

/// What a finding means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// It is as it should be.
    Fit,
    /// It works, and differs from before.
    Note,
    /// It keeps the controller from being shared.
    Unfit,
    /// It can't be seen.
    Ask,
}

impl Mark {
    /// One character.
    #[must_use]
    pub const fn sign(self) -> char {
        match self {
            Self::Fit => '√',
            Self::Note => '!',
            Self::Unfit => '×',
            Self::Ask => '?',
        }
    }
}

/// What was found about one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule.
    pub id: String,
    /// What it means.
    pub mark: Mark,
    /// What was found.
    pub finding: String,
    /// What happens then; empty where all is well.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub consequence: String,
    /// What to do; empty where nothing is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// The page and anchor.
    pub page: String,
}

/// What a look at a subject shows about a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    /// It meets the rule; how that shows.
    Met(String),
    /// It may meet the rule; what hints at that.
    Suspected(String),
    /// It does not; what shows that, empty where it needs no word.
    Not(String),
    /// It does not show.
    Unknown,
}

type Look = fn(&Subject) -> Seen;

/// How each rule is looked for; one that is not here is asked.
const LOOKS: [(&str, Look); 25] = [
    ("R01", election::elects_nobody),
    ("R02", election::elects_elsewhere),
    ("R03", election::elects_by_another_lock),
    ("R04", pods::shards_itself),
    ("R05", objects::copies_into_pods),
    ("R06", objects::copies_to_children),
    ("R07", pods::deletes_unseen),
    ("R08", |_| Seen::Unknown),
    ("R09", pods::keeps_to_a_total),
    ("R11", services::serves),
    ("R12", services::admits),
    ("R13", services::converts),
    ("R14", pods::uses_host_network),
    ("R15", pods::shows_its_token),
    ("R16", pods::has_https_proxy),
    ("R17", ownership::has_roles_only),
    ("R18", objects::child_and_root),
    ("R19", objects::references_without_controller),
    ("R21", ownership::hands_out),
    ("R24", ownership::belongs_to_a_program),
    ("R26", pods::is_kopf),
    ("R27", objects::generates_names),
    ("R28", services::has_metrics),
    ("R29", ownership::is_scaled),
    ("R31", ownership::asks_for_others),
];

/// Judges a subject by all rules. Rules that it met, and that the user accepts, are noted only.
#[must_use]
pub fn evaluate(rules: &Rules, subject: &Subject, accepted: &[String]) -> Vec<Finding> {
    let mut findings: Vec<_> =
        rules.rules.iter().filter_map(|rule| judge(rules, rule, subject, accepted.contains(&rule.id))).collect();
    findings.sort_by_key(|finding| finding.mark);
    findings
}

/// Judges a subject by one rule: what keeps the controller from being shared.
#[must_use]
pub fn unfit_by(rules: &Rules, id: &str, subject: &Subject) -> Option<Finding> {
    let finding = judge(rules, rules.get(id)?, subject, false)?;
    (finding.mark == Mark::Unfit).then_some(finding)
}

/// Whether a controller with these findings can be shared.
#[must_use]
pub fn is_fit(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.mark != Mark::Unfit)
}

fn judge(rules: &Rules, rule: &Rule, subject: &Subject, accepted: bool) -> Option<Finding> {
    let seen = look(rules, rule, subject);
    let asks = rule.found == Found::Asked || rule.verdict != Verdict::Ok;
    let (mark, finding) = match (seen, rule.verdict) {
        (Seen::Not(how), _) if how.is_empty() => return None,
        (Seen::Not(how), _) => (Mark::Fit, how),
        (Seen::Met(how), Verdict::Ok) => (Mark::Note, format!("{}: {how}", rule.finding)),
        (Seen::Met(how), Verdict::No | Verdict::Fix) => (Mark::Unfit, format!("{}: {how}", rule.finding)),
        (Seen::Met(how), Verdict::Ask) => (Mark::Ask, format!("{}: {how}", rule.finding)),
        (Seen::Suspected(how), _) => (Mark::Ask, format!("{} It has {how}", rule.question)),
        (Seen::Unknown, _) if asks => (Mark::Ask, rule.question.clone()),
        (Seen::Unknown, _) => return None,
    };
    let mark = if accepted && mark > Mark::Note { Mark::Note } else { mark };
    let told = |text: &str| if mark == Mark::Fit { String::new() } else { text.to_owned() };
    Some(Finding {
        id: rule.id.clone(),
        mark,
        finding: if accepted { format!("{finding} (accepted)") } else { finding },
        consequence: told(&rule.consequence),
        remedy: told(&rule.remedy),
        page: rule.page(),
    })
}

fn look(rules: &Rules, rule: &Rule, subject: &Subject) -> Seen {
    let look = LOOKS.iter().find(|(id, _)| *id == rule.id).map(|(_, look)| look(subject));
    let seen = look.unwrap_or(Seen::Unknown);
    if matches!(seen, Seen::Met(_)) {
        return seen;
    }
    let arguments = subject.arguments();
    let meets = |known: &&super::known::Known| {
        known.is(&subject.deployment) && known.rules.iter().any(|met| met.id == rule.id && met.stands(&arguments))
    };
    match rules.known.iter().find(meets) {
        // What the cluster shows counts more than a name.
        Some(known) if !matches!(&seen, Seen::Not(how) if !how.is_empty()) => {
            Seen::Met(format!("it is {}", known.controller))
        }
        _ => seen,
    }
}

#[cfg(test)]
mod tests;
