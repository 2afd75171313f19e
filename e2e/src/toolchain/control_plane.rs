//! The programs of a Kubernetes control plane, and of a node.

use std::path::{Path, PathBuf};

use super::{
    Environment, ToolchainError,
    cache::{self, Locked},
    go::Go,
    progress::say,
    version::Minor,
};

/// The go.mod of the control plane's module: the one place that names its version.
const GO_MOD: &str = include_str!("../../controlplane/go.mod");

/// Where the programs of a control plane are.
#[derive(Debug, Clone)]
pub struct ControlPlanePrograms {
    /// etcd.
    pub etcd: PathBuf,
    /// The API server.
    pub kube_apiserver: PathBuf,
    /// Garbage collection, ServiceAccounts, Deployments.
    pub kube_controller_manager: PathBuf,
    /// For the user to look around with.
    pub kubectl: PathBuf,
}

/// Where the programs of a node are, but for those that every distribution has.
#[derive(Debug, Clone)]
pub struct NodePrograms {
    /// Runs the pods.
    pub kubelet: PathBuf,
    /// Gives them their node.
    pub kube_scheduler: PathBuf,
    /// Leads from the addresses of Services to pods.
    pub kube_proxy: PathBuf,
}

/// One of them.
struct Program {
    name: &'static str,
    package: &'static str,
    /// The module whose version in go.mod is that of the program.
    module: &'static str,
    /// Has it print its version.
    version: &'static [&'static str],
}

const KUBERNETES: &str = "k8s.io/kubernetes";

const ETCD: Program =
    Program { name: "etcd", package: "./etcd", module: "go.etcd.io/etcd/server/v3", version: &["--version"] };
const KUBE_APISERVER: Program = of_kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver");
const KUBE_CONTROLLER_MANAGER: Program =
    of_kubernetes("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager");
const KUBECTL: Program =
    Program { version: &["version", "--client"], ..of_kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl") };
const KUBELET: Program = of_kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet");
const KUBE_SCHEDULER: Program = of_kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler");
const KUBE_PROXY: Program = of_kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy");
const CONTROL_PLANE: [Program; 4] = [ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBECTL];
const NODE: [Program; 3] = [KUBELET, KUBE_SCHEDULER, KUBE_PROXY];

const fn of_kubernetes(name: &'static str, package: &'static str) -> Program {
    Program { name, package, module: KUBERNETES, version: &["--version"] }
}

/// Finds or builds the programs of a control plane: from `KUBEBUILDER_ASSETS`, from the cache, from PATH, and last by
/// `go build` into the cache. Each program is looked for alone, because the assets of setup-envtest lack the
/// controller manager.
///
/// The assets are taken as they are: the user named them, perhaps for their version. What is on PATH stands there for
/// other reasons, and is taken only where it is of the version that would be built.
pub fn control_plane(environment: &Environment) -> Result<ControlPlanePrograms, ToolchainError> {
    let cache = cache::folder(environment, &format!("controlplane-{}", version()));
    Ok(ControlPlanePrograms {
        etcd: provide(environment, &cache, &ETCD)?,
        kube_apiserver: provide(environment, &cache, &KUBE_APISERVER)?,
        kube_controller_manager: provide(environment, &cache, &KUBE_CONTROLLER_MANAGER)?,
        kubectl: provide(environment, &cache, &KUBECTL)?,
    })
}

/// Finds or builds the programs of a node, in the same way.
pub fn node(environment: &Environment) -> Result<NodePrograms, ToolchainError> {
    let cache = cache::folder(environment, &format!("controlplane-{}", version()));
    Ok(NodePrograms {
        kubelet: provide(environment, &cache, &KUBELET)?,
        kube_scheduler: provide(environment, &cache, &KUBE_SCHEDULER)?,
        kube_proxy: provide(environment, &cache, &KUBE_PROXY)?,
    })
}

fn provide(environment: &Environment, cache: &Path, program: &Program) -> Result<PathBuf, ToolchainError> {
    if let Some(found) = environment.find_in_assets(program.name) {
        return Ok(found);
    }
    fits_assets(environment, program)?;
    let built = cache.join(program.name);
    let fits =
        |found: &PathBuf| Minor::of_program(found, program.version).is_some_and(|its| Some(its) == wanted(program));
    built
        .is_file()
        .then_some(built)
        .or_else(|| environment.find_on_path(program.name).filter(fits))
        .map_or_else(|| build(environment, cache, program), Ok)
}

/// Whether a program that the assets lack may come from elsewhere: not beside another version of Kubernetes.
fn fits_assets(environment: &Environment, missing: &Program) -> Result<(), ToolchainError> {
    let (Some(folder), Some(wanted)) = (&environment.kubebuilder_assets, wanted(missing)) else {
        return Ok(());
    };
    for beside in CONTROL_PLANE.iter().chain(&NODE).filter(|program| program.module == missing.module) {
        let Some(path) = environment.find_in_assets(beside.name) else { continue };
        let found = Minor::of_program(&path, beside.version);
        if found != Some(wanted) {
            let (folder, missing, beside) = (folder.clone(), missing.name, beside.name);
            return Err(ToolchainError::AssetsDiffer { folder, missing, wanted, beside, found });
        }
    }
    Ok(())
}

fn wanted(program: &Program) -> Option<Minor> {
    Minor::in_text(version_of(program.module))
}

fn build(environment: &Environment, cache: &Path, program: &Program) -> Result<PathBuf, ToolchainError> {
    let name = program.name;
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("controlplane");
    let go = Go::find(
        environment,
        module,
        name,
        ", or set KUBEBUILDER_ASSETS to a folder that has it (setup-envtest makes one)",
    )?;
    let locked = Locked::acquire(cache.to_owned())?;
    let built = cache.join(name);
    if built.is_file() {
        // Another process built it while this one waited for the lock.
        return Ok(built);
    }
    say(format_args!(
        "building {name} {}, once: minutes when Go's build cache is cold, seconds when it is warm",
        version()
    ));
    go.build(program.package, &ldflags(), &locked.staging()?.join(name))?;
    locked.publish(name)
}

/// Without the version stamp the server says that it is v0.0.0, and feature gates and kubectl misbehave.
fn ldflags() -> String {
    format!("-s -w -X k8s.io/component-base/version.gitVersion={}", version())
}

/// The version of Kubernetes.
fn version() -> &'static str {
    version_of(KUBERNETES)
}

/// The version of a module in go.mod.
fn version_of(module: &str) -> &'static str {
    let version = |line: &'static str| {
        let mut words = line.split_whitespace().skip_while(|word| *word == "require");
        (words.next() == Some(module)).then(|| words.next()).flatten()
    };
    GO_MOD.lines().find_map(version).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{os::unix::fs::PermissionsExt as _, sync::Mutex};

    use super::*;

    #[test]
    fn the_version_comes_from_go_mod() {
        assert!(version().starts_with("v1."), "{}", version());
        for program in CONTROL_PLANE.iter().chain(&NODE) {
            assert!(wanted(program).is_some(), "{}", program.name);
        }
    }

    #[test]
    fn every_program_is_a_tool_of_the_module() {
        for program in CONTROL_PLANE.iter().chain(&NODE).filter(|program| program.module == KUBERNETES) {
            assert!(GO_MOD.contains(&format!("\t{}\n", program.package)), "{}", program.name);
        }
    }

    /// Held while programs are written and run: one that another thread's child inherited open for writing can't be run.
    static PROGRAMS: Mutex<()> = Mutex::new(());

    /// Programs in `folder` that print the version of go.mod, but for those of Kubernetes `kubernetes`.
    fn install(folder: &Path, programs: &[Program], kubernetes: &str) {
        for program in programs {
            let version = if program.module == KUBERNETES { kubernetes } else { version_of(program.module) };
            let path = folder.join(program.name);
            let script =
                format!("#!/bin/sh\n[ \"$*\" = '{}' ] && echo Version: {version}\n", program.version.join(" "));
            std::fs::write(&path, script).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn environment(path: &Path, assets: Option<&Path>) -> Environment {
        Environment {
            of_package: Vec::new(),
            kubebuilder_assets: assets.map(Path::to_owned),
            path: path.into(),
            cargo: "cargo".into(),
            // Nothing was built.
            target: path.to_owned(),
        }
    }

    #[test]
    fn programs_on_path_are_taken_only_in_the_version_that_would_be_built() {
        let _alone = PROGRAMS.lock();
        let path = tempfile::tempdir().unwrap();
        install(path.path(), &CONTROL_PLANE, version());
        let found = control_plane(&environment(path.path(), None)).unwrap();
        assert_eq!(found.kubectl, path.path().join("kubectl"));
        install(path.path(), &[KUBECTL], "v1.32.4-dispatcher");
        // To be built then, for which there is no Go.
        let refused = control_plane(&environment(path.path(), None)).unwrap_err();
        assert!(matches!(&refused, ToolchainError::GoMissing { wanted, .. } if wanted == "kubectl"), "{refused}");
    }

    #[test]
    fn assets_are_taken_as_they_are_and_not_mixed() {
        let _alone = PROGRAMS.lock();
        let (path, assets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        install(path.path(), &CONTROL_PLANE, version());
        install(assets.path(), &CONTROL_PLANE, "v1.30.0");
        let environment = environment(path.path(), Some(assets.path()));
        assert_eq!(control_plane(&environment).unwrap().kubectl, assets.path().join("kubectl"));
        // As setup-envtest makes them.
        std::fs::remove_file(assets.path().join(KUBE_CONTROLLER_MANAGER.name)).unwrap();
        let message = control_plane(&environment).unwrap_err().to_string();
        for part in ["no kube-controller-manager", "of 1.30", "unset"] {
            assert!(message.contains(part), "{message}");
        }
        install(assets.path(), &[ETCD, KUBE_APISERVER, KUBECTL], version());
        let found = control_plane(&environment).unwrap().kube_controller_manager;
        assert_eq!(found, path.path().join(KUBE_CONTROLLER_MANAGER.name));
    }

    #[test]
    fn a_missing_go_is_named_with_its_remedy() {
        let empty = tempfile::tempdir().unwrap();
        let environment = environment(empty.path(), None);
        let message = control_plane(&environment).unwrap_err().to_string();
        assert!(message.contains("install Go 1.26"), "{message}");
        assert!(message.contains("KUBEBUILDER_ASSETS"), "{message}");
    }
}
