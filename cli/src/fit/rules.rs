//! The rules of fitness, one data file for the command, the page and the refusals.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::known::Known;

/// What a rule means for a controller that meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The controller can't be shared.
    No,
    /// It can, after the remedy.
    Fix,
    /// Only its authors or users know.
    Ask,
    /// It works, and differs from before.
    Ok,
}

impl Verdict {
    /// The word on the page.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Fix => "fix",
            Self::Ask => "ask",
            Self::Ok => "ok",
        }
    }
}

/// How it is found whether a controller meets a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Found {
    /// In manifests or in the cluster.
    Seen,
    /// By a question to its authors.
    Asked,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// `R` and two digits, which never change their meaning.
    pub id: String,
    /// What a controller is or does, as the end of a sentence about it.
    pub finding: String,
    /// What it means.
    pub verdict: Verdict,
    /// How it is found.
    pub found: Found,
    /// What to ask where it can't be seen.
    pub question: String,
    /// What happens to a controller that is shared all the same.
    pub consequence: String,
    /// What to do.
    pub remedy: String,
    /// Controllers that meet it.
    pub seen_in: String,
    /// Live tests that show it, `GROUP::CASE`.
    #[serde(default)]
    pub shown_by: Vec<String>,
}

impl Rule {
    /// The page and anchor where the rule stands.
    #[must_use]
    pub fn page(&self) -> String {
        format!("fit#{}", self.id.to_lowercase())
    }
}

/// All rules, and the controllers that are known by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// In the order of their ids.
    pub rules: Vec<Rule>,
    /// The controllers.
    pub known: Vec<Known>,
}

impl Rules {
    /// Reads the rules that the program was built with.
    ///
    /// # Errors
    /// When they can't be parsed, which a test rules out.
    pub fn load() -> anyhow::Result<Self> {
        let rules = serde_saphyr::from_str(include_str!("rules.yaml")).context("can't read the rules of fitness")?;
        let known = serde_saphyr::from_str(include_str!("known.yaml")).context("can't read the known controllers")?;
        Ok(Self { rules, known })
    }

    /// The rule of an id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_numbered_from_one_without_gaps() {
        let rules = Rules::load().unwrap().rules;
        assert!(rules.len() >= 29, "{}", rules.len());
        for (index, rule) in rules.iter().enumerate() {
            assert_eq!(rule.id, format!("R{:02}", index + 1));
            assert!(rule.question.ends_with('?'), "{}", rule.id);
            for text in [&rule.consequence, &rule.remedy] {
                assert!(text.ends_with('.') && !text.contains('|'), "{}: {text}", rule.id);
            }
        }
    }

    #[test]
    fn known_controllers_meet_rules_that_exist() {
        let rules = Rules::load().unwrap();
        for known in &rules.known {
            let is_named = !known.images.is_empty() || !known.names.is_empty();
            assert!(is_named && !known.rules.is_empty(), "{known:?}");
            for met in &known.rules {
                assert!(rules.get(&met.id).is_some(), "{}: {}", known.controller, met.id);
            }
        }
    }
}
