//! Programs in Java, which run from their source; what they need beside it comes by Maven.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    Environment, ToolchainError,
    cache::{self, Locked},
    progress::say,
};

/// Whether there is no Java here, and what to do about it.
pub fn without_java(environment: &Environment) -> Option<String> {
    let missing = ["java", "mvn"].into_iter().find(|program| environment.find_on_path(program).is_none())?;
    Some(format!("`{missing}` is not on PATH: install JDK 17 or newer and Maven (`apt-get install default-jdk maven`)"))
}

/// What runs the program of `folder`, whose source is `file`, with what its `pom.xml` names; arguments follow.
pub fn java(environment: &Environment, folder: &Path, file: &str) -> Result<Command, ToolchainError> {
    let libraries = libraries(environment, folder)?;
    let mut command = Command::new("java");
    command.arg("-cp").arg(libraries.join("*")).arg(folder.join(file));
    Ok(command)
}

/// The folder with the libraries that `pom.xml` names, filled once for each text of it.
fn libraries(environment: &Environment, folder: &Path) -> Result<PathBuf, ToolchainError> {
    /// Says of which text the folder is.
    const OF: &str = "pom.xml";
    let pom = folder.join(OF);
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| ToolchainError::Cache { action, path, source }
    };
    let text = fs::read(&pom).map_err(failed("read", &pom))?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let place = cache::folder(environment, &name);
    let locked = Locked::acquire(place.clone())?;
    let (libraries, of) = (place.join("lib"), place.join(OF));
    if fs::read(&of).is_ok_and(|was| was == text) {
        return Ok(libraries);
    }
    say(format_args!("fetching the libraries of {name} by Maven"));
    let staging = locked.staging()?;
    let output = Command::new("mvn")
        .args(["--batch-mode", "--quiet", "dependency:copy-dependencies", "-f"])
        .arg(&pom)
        .arg(format!("-DoutputDirectory={}", staging.join("lib").display()))
        .stdin(Stdio::null())
        .output()
        .map_err(|source| ToolchainError::Start { command: "mvn".to_owned(), source })?;
    if !output.status.success() {
        return Err(ToolchainError::Build {
            command: "mvn dependency:copy-dependencies".to_owned(),
            dir: folder.to_owned(),
            status: output.status,
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
        });
    }
    let _ = fs::remove_dir_all(&libraries);
    let libraries = locked.publish("lib")?;
    fs::write(&of, text).map_err(failed("write", &of))?;
    Ok(libraries)
}
