//! How a command ends: what a pipeline can tell apart.

use std::process::ExitCode;

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was done, or all is well.
    Good,
    /// It could not be done.
    Failed,
    /// It was done, and found a difference or something that is not well.
    Unhealthy,
    /// The arguments are wrong.
    Usage,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Good => 0,
            Exit::Failed => 1,
            Exit::Unhealthy => 2,
            Exit::Usage => 64,
        })
    }
}
