//! What Go builds for the tests and the demo, and how: said once, so that all builds share compiled packages.

mod release;

use std::{env, path::Path, process::Command};

pub use release::{Module, RELEASES, Release, VARIABLE, WRITTEN};

/// The flag of each build. What the linker leaves out need not be compiled either: a tenth of the time.
pub const COMPILED: &str = "-gcflags=all=-dwarf=false";

/// A Go command in a module, in the environment that all builds share.
#[must_use]
pub fn go(program: &Path, module: &Path) -> Command {
    let mut command = Command::new(program);
    // Programs that need nothing beside them, so that an image can hold them alone.
    command.env("CGO_ENABLED", "0").current_dir(module);
    // Compilers are short-lived: with the usual 100 they spend a fifth of their time on what ends with them anyway.
    if env::var_os("GOGC").is_none() {
        command.env("GOGC", "400");
    }
    command
}
