//! Programs in Python, which run from their source; what they need beside it comes by pip.

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

/// Whether there is no Python here, and what to do about it.
pub fn without_python(environment: &Environment) -> Option<String> {
    let has_pip = || {
        let pip = Command::new("python3").args(["-m", "pip", "--version"]).stdin(Stdio::null()).output();
        pip.is_ok_and(|output| output.status.success())
    };
    let missing = environment.find_on_path("python3").is_none() || !has_pip();
    missing.then(|| {
        "`python3` with pip is not here: install Python 3.10 or newer (`apt-get install python3 python3-pip`)"
            .to_owned()
    })
}

/// Python with what `requirements.txt` in `folder` names; arguments follow.
pub fn python(environment: &Environment, folder: &Path) -> Result<Command, ToolchainError> {
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", libraries(environment, folder)?).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

/// The folder with the packages that `requirements.txt` names, filled once for each text of it.
fn libraries(environment: &Environment, folder: &Path) -> Result<PathBuf, ToolchainError> {
    /// Says of which text the folder is.
    const OF: &str = "requirements.txt";
    let requirements = folder.join(OF);
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| ToolchainError::Cache { action, path, source }
    };
    let text = fs::read(&requirements).map_err(failed("read", &requirements))?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let place = cache::folder(environment, &name);
    let locked = Locked::acquire(place.clone())?;
    let (libraries, of) = (place.join("lib"), place.join(OF));
    if fs::read(&of).is_ok_and(|was| was == text) {
        return Ok(libraries);
    }
    say(format_args!("fetching the packages of {name} by pip"));
    let staging = locked.staging()?;
    let output = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-input", "--upgrade", "--target"])
        .arg(staging.join("lib"))
        .arg("--requirement")
        .arg(&requirements)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| ToolchainError::Start { command: "python3 -m pip".to_owned(), source })?;
    if !output.status.success() {
        return Err(ToolchainError::Build {
            command: "python3 -m pip install".to_owned(),
            dir: folder.to_owned(),
            status: output.status,
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    let _ = fs::remove_dir_all(&libraries);
    let libraries = locked.publish("lib")?;
    fs::write(&of, text).map_err(failed("write", &of))?;
    Ok(libraries)
}
