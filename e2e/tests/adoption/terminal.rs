//! A terminal in which commands are typed: it prints each with its output.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The programs of the documentation.
pub(crate) struct Programs {
    pub(crate) ringside: PathBuf,
    pub(crate) helm: PathBuf,
    pub(crate) kubectl: PathBuf,
}

/// A terminal in a folder of its own, beside a link to the folder `deploy`.
pub(crate) struct Terminal<'a> {
    programs: &'a Programs,
    kubeconfig: PathBuf,
    folder: tempfile::TempDir,
}

impl<'a> Terminal<'a> {
    pub(crate) fn open(programs: &'a Programs, kubeconfig: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        std::os::unix::fs::symlink(deploy, folder.path().join("deploy")).unwrap();
        Self { programs, kubeconfig, folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a command that succeeds, and returns its output.
    pub(crate) fn run(&self, line: &str) -> String {
        println!("$ {line}");
        let mut words = line.split_whitespace();
        let program = match words.next().unwrap() {
            "ringside" => &self.programs.ringside,
            "helm" => &self.programs.helm,
            "kubectl" => &self.programs.kubectl,
            other => panic!("{other} is none of the programs"),
        };
        let mut command = Command::new(program);
        // Helm keeps what it knows of repositories in folders of the user.
        command.args(words).current_dir(self.folder.path()).stdin(Stdio::null()).env("HOME", self.folder.path());
        let output = command.env("KUBECONFIG", &self.kubeconfig).output().unwrap();
        let (said, faults) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        println!("{said}{faults}");
        assert!(output.status.success(), "{line}\n{said}\n{faults}");
        said.into_owned()
    }
}
