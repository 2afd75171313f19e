//! Programs that run from their source. What they need beside it is fetched once for each text of the list that names it.

use std::{
    fs,
    os::unix::fs::symlink,
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
pub(super) fn without_java(environment: &Environment) -> Option<String> {
    let missing = ["java", "mvn"].into_iter().find(|program| environment.find_on_path(program).is_none())?;
    Some(format!("`{missing}` is not on PATH: install JDK 17 or newer and Maven (`apt-get install default-jdk maven`)"))
}

/// Whether there is no Python here, and what to do about it.
pub(super) fn without_python(environment: &Environment) -> Option<String> {
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

/// Whether there is no Node here, and what to do about it.
pub(super) fn without_node(environment: &Environment) -> Option<String> {
    let missing = ["node", "npm"].into_iter().find(|program| environment.find_on_path(program).is_none())?;
    Some(format!("`{missing}` is not on PATH: install Node 18 or newer and npm (`apt-get install nodejs npm`)"))
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

/// Node on the program of `folder`, whose source is `file`, with what its `package.json` names; arguments follow.
pub(super) fn node(environment: &Environment, folder: &Path, file: &str) -> anyhow::Result<Command> {
    let (source, libraries) = (folder.join(file), NPM.fetched(environment, folder)?);
    // A module's imports are looked for beside it, wherever that is by its links.
    let program = libraries.join(file);
    if fs::read_link(&program).ok().as_ref() != Some(&source) {
        let _ = fs::remove_file(&program);
        symlink(&source, &program).map_err(failed("link", &program))?;
    }
    let mut command = Command::new("node");
    command.args(["--preserve-symlinks", "--preserve-symlinks-main"]).arg(program);
    Ok(command)
}

/// A package manager's way to fetch what a program needs.
struct Fetcher {
    /// The file in the program's folder that names it.
    list: &'static str,
    /// The command line, up to the folder that things are fetched into and the list of them.
    command: &'static [&'static str],
    /// The argument for the folder.
    into: &'static str,
    /// The argument before the list; none where the list is looked for in the folder.
    from: Option<&'static str>,
}

const MAVEN: Fetcher = Fetcher {
    list: "pom.xml",
    command: &["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies"],
    into: "-DoutputDirectory=",
    from: Some("--file"),
};

const PIP: Fetcher = Fetcher {
    list: "requirements.txt",
    command: &["python3", "-m", "pip", "install", "--quiet", "--no-input", "--upgrade"],
    into: "--target=",
    from: Some("--requirement"),
};

const NPM: Fetcher = Fetcher {
    list: "package.json",
    command: &["npm", "install", "--silent", "--omit=dev", "--no-audit", "--no-fund", "--no-package-lock"],
    into: "--prefix=",
    from: None,
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
        let staged = locked.staging()?.join("lib");
        let mut command = Command::new(self.command[0]);
        command.args(&self.command[1..]).arg(format!("{}{}", self.into, staged.display()));
        if let Some(from) = self.from {
            command.arg(from).arg(&list);
        } else {
            fs::create_dir_all(&staged).map_err(failed("create", &staged))?;
            fs::copy(&list, staged.join(self.list)).map_err(failed("copy", &list))?;
        }
        let output = command.stdin(Stdio::null()).output().with_context(|| format!("start `{shown}`"))?;
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
