//! Programs that run from their source. What they need beside it is fetched once for each text of the list that names it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::Context as _;

use super::{
    Environment,
    cache::{self, Locked},
    failed_build, need,
    progress::say,
};
use crate::files::failed;

/// Whether there is no Java here, and what to do about it.
pub fn without_java(environment: &Environment) -> Option<String> {
    let missing = ["java", "mvn"].into_iter().find(|program| environment.find_on_path(program).is_none())?;
    Some(format!("`{missing}` is not on PATH: install JDK 17 or newer and Maven (`apt-get install default-jdk maven`)"))
}

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

/// What runs the program of `folder`, whose source is `file`, with what its `pom.xml` names; arguments follow.
pub fn java(environment: &Environment, folder: &Path, file: &str) -> anyhow::Result<Command> {
    let mut command = Command::new("java");
    command.arg("-cp").arg(MAVEN.fetched(environment, folder)?.join("*")).arg(folder.join(file));
    Ok(command)
}

/// Python with what `requirements.txt` in `folder` names; arguments follow.
pub fn python(environment: &Environment, folder: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", PIP.fetched(environment, folder)?).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

/// A package manager's way to fetch what a program needs.
struct Fetcher {
    /// The file in the program's folder that names it.
    list: &'static str,
    /// The command line, up to the folder that things are fetched into and the list of them.
    command: &'static [&'static str],
    /// The arguments for these two; the list has an argument of its own.
    into: &'static str,
    from: &'static str,
}

const MAVEN: Fetcher = Fetcher {
    list: "pom.xml",
    command: &["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies"],
    into: "-DoutputDirectory=",
    from: "--file",
};

const PIP: Fetcher = Fetcher {
    list: "requirements.txt",
    command: &["python3", "-m", "pip", "install", "--quiet", "--no-input", "--upgrade"],
    into: "--target=",
    from: "--requirement",
};

impl Fetcher {
    /// The folder with what the program in `folder` needs.
    fn fetched(&self, environment: &Environment, folder: &Path) -> anyhow::Result<PathBuf> {
        let list = folder.join(self.list);
        let text = fs::read(&list).map_err(failed("read", &list))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        need::ask(&name)?;
        let place = cache::folder(environment, &name);
        let locked = Locked::acquire(place.clone())?;
        // The copy of the list says of which text the folder is.
        let (libraries, of) = (place.join("lib"), place.join(self.list));
        if fs::read(&of).is_ok_and(|was| was == text) {
            return Ok(libraries);
        }
        let shown = self.command.join(" ");
        say(format_args!("fetching what {name} needs: {shown}"));
        let into = format!("{}{}", self.into, locked.staging()?.join("lib").display());
        let output = Command::new(self.command[0])
            .args(&self.command[1..])
            .args([&*into, self.from])
            .arg(&list)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("start `{shown}`"))?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
            return Err(failed_build(&shown, folder, output.status, &said));
        }
        let _ = fs::remove_dir_all(&libraries);
        let libraries = locked.publish("lib")?;
        fs::write(&of, text).map_err(failed("write", &of))?;
        Ok(libraries)
    }
}
