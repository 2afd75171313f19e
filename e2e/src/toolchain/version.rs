//! Which version a program says that it is.

use std::{
    fmt,
    path::Path,
    process::{Command, Stdio},
};

/// Major and minor: programs that have both in common fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor(u32, u32);

impl Minor {
    /// Makes one of its two numbers.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self(major, minor)
    }

    /// The first version in a text, with or without a `v` before it.
    pub(super) fn in_text(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(|word| {
            let mut parts = word.trim_start_matches('v').split('.');
            Some(Self(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        })
    }

    /// What the program answers; `None` when it does not say.
    pub(super) fn of_program(program: &Path, arguments: &[&str]) -> Option<Self> {
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
        Self::in_text(&String::from_utf8_lossy(&output.stdout))
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_programs_print() {
        assert_eq!(Minor::in_text("etcd Version: 3.7.0\nGit SHA: abc\n"), Some(Minor(3, 7)));
        assert_eq!(Minor::in_text("Kubernetes v1.37.0\n"), Some(Minor(1, 37)));
        assert_eq!(Minor::in_text("Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0"), Some(Minor(1, 32)));
        for text in ["", "error: unknown flag", "version", "v1"] {
            assert_eq!(Minor::in_text(text), None, "{text}");
        }
    }
}
