//! Programs in Python, which run from their source; what they need beside it comes by pip.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use super::{Environment, ToolchainError, libraries::Fetcher};

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
    command.env("PYTHONPATH", PACKAGES.fetched(environment, folder)?).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

const PACKAGES: Fetcher = Fetcher {
    list: "requirements.txt",
    what: ["packages", "pip"],
    shown: "python3 -m pip install",
    command: |requirements, into| {
        let mut command = Command::new("python3");
        command.args(["-m", "pip", "install", "--quiet", "--no-input", "--upgrade", "--target"]).arg(into);
        command.arg("--requirement").arg(requirements);
        command
    },
};
