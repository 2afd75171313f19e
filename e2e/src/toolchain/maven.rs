//! Programs in Java, which run from their source; what they need beside it comes by Maven.

use std::{path::Path, process::Command};

use super::{Environment, ToolchainError, libraries::Fetcher};

/// Whether there is no Java here, and what to do about it.
pub fn without_java(environment: &Environment) -> Option<String> {
    let missing = ["java", "mvn"].into_iter().find(|program| environment.find_on_path(program).is_none())?;
    Some(format!("`{missing}` is not on PATH: install JDK 17 or newer and Maven (`apt-get install default-jdk maven`)"))
}

/// What runs the program of `folder`, whose source is `file`, with what its `pom.xml` names; arguments follow.
pub fn java(environment: &Environment, folder: &Path, file: &str) -> Result<Command, ToolchainError> {
    let libraries = LIBRARIES.fetched(environment, folder)?;
    let mut command = Command::new("java");
    command.arg("-cp").arg(libraries.join("*")).arg(folder.join(file));
    Ok(command)
}

const LIBRARIES: Fetcher = Fetcher {
    list: "pom.xml",
    what: ["libraries", "Maven"],
    shown: "mvn dependency:copy-dependencies",
    command: |pom, into| {
        let mut command = Command::new("mvn");
        command.args(["--batch-mode", "--quiet", "dependency:copy-dependencies", "-f"]).arg(pom);
        command.arg(format!("-DoutputDirectory={}", into.display()));
        command
    },
};
