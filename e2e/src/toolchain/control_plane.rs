//! The programs of a Kubernetes control plane.

use std::path::{Path, PathBuf};

use super::{
    Environment, ToolchainError,
    cache::{self, Locked},
    go::Go,
    progress::say,
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

/// A program of the control plane.
struct Program {
    name: &'static str,
    package: &'static str,
}

const ETCD: Program = Program { name: "etcd", package: "./etcd" };
const KUBE_APISERVER: Program = Program { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver" };
const KUBE_CONTROLLER_MANAGER: Program =
    Program { name: "kube-controller-manager", package: "k8s.io/kubernetes/cmd/kube-controller-manager" };
const KUBECTL: Program = Program { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl" };

/// Finds or builds the programs of a control plane: from `KUBEBUILDER_ASSETS`, from PATH, from the cache, and last by
/// `go build` into the cache. Each program is looked for alone, because the assets of setup-envtest lack the
/// controller manager.
pub fn control_plane(environment: &Environment) -> Result<ControlPlanePrograms, ToolchainError> {
    let cache = cache::folder(environment, &format!("controlplane-{}", version()));
    Ok(ControlPlanePrograms {
        etcd: provide(environment, &cache, &ETCD)?,
        kube_apiserver: provide(environment, &cache, &KUBE_APISERVER)?,
        kube_controller_manager: provide(environment, &cache, &KUBE_CONTROLLER_MANAGER)?,
        kubectl: provide(environment, &cache, &KUBECTL)?,
    })
}

fn provide(environment: &Environment, cache: &Path, program: &Program) -> Result<PathBuf, ToolchainError> {
    let built = cache.join(program.name);
    environment
        .find_in_assets(program.name)
        .or_else(|| environment.find_on_path(program.name))
        .or_else(|| built.is_file().then_some(built))
        .map_or_else(|| build(environment, cache, program), Ok)
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

/// The version of Kubernetes in go.mod.
fn version() -> &'static str {
    GO_MOD
        .lines()
        .filter_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        .filter_map(|rest| rest.split_whitespace().next())
        .next()
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_version_comes_from_go_mod() {
        assert!(version().starts_with("v1."), "{}", version());
    }

    #[test]
    fn every_program_is_a_tool_of_the_module() {
        for program in [KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBECTL] {
            assert!(GO_MOD.contains(&format!("\t{}\n", program.package)), "{}", program.name);
        }
    }

    #[test]
    fn a_missing_go_is_named_with_its_remedy() {
        let empty = tempfile::tempdir().unwrap();
        let environment = Environment {
            of_package: Vec::new(),
            kubebuilder_assets: None,
            path: empty.path().into(),
            cargo: "cargo".into(),
            target: empty.path().to_owned(),
        };
        let message = control_plane(&environment).unwrap_err().to_string();
        assert!(message.contains("install Go 1.26"), "{message}");
        assert!(message.contains("KUBEBUILDER_ASSETS"), "{message}");
    }
}
