//! Configuration faults, all of them at once.

use std::{fmt, time::Duration};

/// What is wrong with a configuration: every fault, so that one start shows them all.
#[derive(Debug, Default)]
pub struct Faults(Vec<String>);

impl Faults {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the value out of a check of `option`, or notes why there is none.
    ///
    /// The fault should say what is wrong and what to write instead; the option's name is put before it.
    pub fn check<T, E: fmt::Display>(&mut self, option: &str, checked: Result<T, E>) -> Option<T> {
        checked.map_err(|fault| self.0.push(format!("{option}: {fault}"))).ok()
    }

    /// Notes a fault that concerns no single option.
    pub fn note(&mut self, fault: impl fmt::Display) {
        self.0.push(fault.to_string());
    }

    /// The end of the checks.
    ///
    /// # Errors
    /// The faults, if there were any.
    pub fn finish(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration can't be used:")?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  - {fault}"))
    }
}

impl std::error::Error for Faults {}

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a duration: write a whole number and a unit, such as 500ms, 15s, 5m or 1h")]
pub struct ParseDuration(pub String);

/// Parses `500ms`, `15s`, `5m`, `1h`: the forms that Go programs beside ours accept too.
///
/// # Errors
/// When the text is anything else.
pub fn parse_duration(text: &str) -> Result<Duration, ParseDuration> {
    let error = || ParseDuration(text.to_owned());
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| error())?;
    let factor = match unit {
        "ms" => return Ok(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(error()),
    };
    number.checked_mul(factor).map(Duration::from_secs).ok_or_else(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_reported_together() {
        let mut faults = Faults::new();
        assert_eq!(faults.check("--a", Ok::<_, &str>(1)), Some(1));
        assert_eq!(faults.check("--b", Err::<u8, _>("is empty")), None);
        faults.note("c and d contradict each other");
        let text = faults.finish().expect_err("two faults").to_string();
        assert_eq!(text, "the configuration can't be used:\n  - --b: is empty\n  - c and d contradict each other");
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        for bad in ["", "15", "s", "-1s", "1.5s", "1d", "15 s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
