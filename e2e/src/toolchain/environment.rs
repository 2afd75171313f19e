//! What the toolchain takes from its surroundings, read in one place.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use ringside_launcher::VARIABLE;

/// What the process chose.
static CHOSEN: OnceLock<String> = OnceLock::new();

/// Has everything that this process starts run on that minor version of Kubernetes, such as `1.31`. The first choice counts.
pub fn choose(kubernetes: &str) {
    let _chosen = CHOSEN.set(kubernetes.to_owned());
}

/// Where programs are looked for and where built ones are kept.
#[derive(Debug, Clone)]
pub struct Environment {
    /// The folder that setup-envtest names: `KUBEBUILDER_ASSETS`.
    pub kubebuilder_assets: Option<PathBuf>,
    /// The minor version of Kubernetes to run on, such as `1.31`: `RINGSIDE_KUBERNETES`, or what the process [chose](choose).
    pub kubernetes: Option<String>,
    /// The minor version of nodes, where they are behind the control plane: `RINGSIDE_NODES`.
    pub nodes: Option<String>,
    /// The folder where `.ci/images` left the images of proxy and sharder: `RINGSIDE_IMAGES`.
    pub images: Option<PathBuf>,
    /// The search path for programs.
    pub path: OsString,
    /// The cargo that runs this process, or the one on PATH.
    pub cargo: PathBuf,
    /// Cargo's target folder.
    pub target: PathBuf,
    /// The variables by which cargo tells this process which package it belongs to. A build that inherits them looks
    /// changed to build scripts that watch them, as that of a C library may, and half of everything is compiled again.
    pub of_package: Vec<OsString>,
}

impl Environment {
    /// Reads it from the process: variables, and the place of the running executable.
    pub fn of_process() -> Self {
        let folder = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            kubebuilder_assets: folder("KUBEBUILDER_ASSETS"),
            kubernetes: CHOSEN.get().cloned().or_else(|| env::var(VARIABLE).ok()).filter(|named| !named.is_empty()),
            nodes: env::var("RINGSIDE_NODES").ok().filter(|named| !named.is_empty()),
            images: folder("RINGSIDE_IMAGES"),
            path: env::var_os("PATH").unwrap_or_default(),
            cargo: env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from),
            target: env::current_exe()
                .ok()
                .and_then(|executable| target_folder(&executable))
                .unwrap_or_else(|| workspace_folder().join("target")),
            of_package: env::vars_os().map(|(name, _)| name).filter(|name| is_of_package(name)).collect(),
        }
    }

    /// The program of that name on the search path.
    pub fn find_on_path(&self, program: &str) -> Option<PathBuf> {
        env::split_paths(&self.path).map(|folder| folder.join(program)).find(|candidate| is_executable(candidate))
    }

    /// The program of that name where setup-envtest puts its programs.
    pub fn find_in_assets(&self, program: &str) -> Option<PathBuf> {
        let candidate = self.kubebuilder_assets.as_ref()?.join(program);
        is_executable(&candidate).then_some(candidate)
    }
}

/// The workspace that this crate was compiled in.
pub(super) fn workspace_folder() -> &'static Path {
    let member = Path::new(env!("CARGO_MANIFEST_DIR"));
    member.parent().unwrap_or(member)
}

/// The target folder above an executable that cargo built: it is the one with a `CACHEDIR.TAG`, whatever profile or
/// target triple lies between.
fn target_folder(executable: &Path) -> Option<PathBuf> {
    executable.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file()).map(Path::to_owned)
}

fn is_of_package(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn executable(folder: &Path, name: &str, mode: u32) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn only_executable_files_are_programs() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        executable(first.path(), "etcd", 0o644);
        let found = executable(second.path(), "etcd", 0o755);
        let environment = Environment {
            of_package: Vec::new(),
            kubebuilder_assets: Some(first.path().to_owned()),
            kubernetes: None,
            nodes: None,
            images: None,
            path: env::join_paths([first.path(), second.path()]).unwrap(),
            cargo: "cargo".into(),
            target: "target".into(),
        };
        assert_eq!(environment.find_on_path("etcd"), Some(found));
        assert_eq!(environment.find_in_assets("etcd"), None);
    }

    #[test]
    fn the_running_test_lies_in_a_target_folder() {
        let target = Environment::of_process().target;
        assert!(env::current_exe().unwrap().starts_with(&target), "{}", target.display());
    }
}
