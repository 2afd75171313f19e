//! The Go programs that live tests run: those of a control plane, of a node, and our own.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, Once, PoisonError},
};

use anyhow::{Context as _, anyhow, bail};

use super::{
    Environment,
    cache::{self, Locked},
    go, need,
    progress::say,
    version::Minor,
};

/// The go.mod of the control plane's module: the one place that names its version.
const GO_MOD: &str = include_str!("../../controlplane/go.mod");

/// The oldest API server that is taken from the assets: the first with ValidatingAdmissionPolicies as the fence needs them
/// (`docs/dev/fence.md`).
const OLDEST: Minor = Minor::new(1, 30);

/// Where the programs of a control plane are.
#[derive(Debug, Clone)]
pub struct ControlPlanePrograms {
    /// etcd.
    pub etcd: PathBuf,
    /// The API server.
    pub kube_apiserver: PathBuf,
}

/// Where the programs of a node are, but for those that every distribution has.
#[derive(Debug, Clone)]
pub struct NodePrograms {
    /// Runs the pods.
    pub kubelet: PathBuf,
    /// Assigns pods to nodes.
    pub kube_scheduler: PathBuf,
    /// Routes the addresses of Services to pods.
    pub kube_proxy: PathBuf,
}

/// A Go program.
struct Program {
    name: &'static str,
    /// The folder of the module that builds it.
    folder: &'static str,
    package: &'static str,
    /// The module whose version in go.mod is that of the program; empty for our own programs.
    module: &'static str,
    /// The arguments that print its version.
    version: &'static [&'static str],
}

const KUBERNETES: &str = "k8s.io/kubernetes";

const ETCD: Program = Program { module: "go.etcd.io/etcd/server/v3", ..of_kubernetes("etcd", "./etcd") };
const KUBE_APISERVER: Program = of_kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver");
const KUBE_CONTROLLER_MANAGER: Program =
    of_kubernetes("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager");
const KUBECTL: Program =
    Program { version: &["version", "--client"], ..of_kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl") };
const KUBELET: Program = of_kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet");
const KUBE_SCHEDULER: Program = of_kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler");
const KUBE_PROXY: Program = of_kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy");
const RELEASED: [&Program; 7] =
    [&ETCD, &KUBE_APISERVER, &KUBE_CONTROLLER_MANAGER, &KUBECTL, &KUBELET, &KUBE_SCHEDULER, &KUBE_PROXY];

const OPERATOR: Program = our_own("website-operator", "operator", ".");
const OWN_SHARD: Program = our_own("website-shard", "operator", "./shard");
const OTHER_SHARDER: Program = our_own("small-sharder", "operator", "./sharder");
const ELECTOR: Program = our_own("elector", "operator", "./elector");
const GUEST: Program = our_own("guest", "guest", ".");
const CERT_MANAGER: Program = our_own("cert-manager", "published/cert-manager", ".");
const EXTERNAL_SECRETS: Program =
    our_own("external-secrets", "published/external-secrets", "github.com/external-secrets/external-secrets");
const HELM: Program = our_own("helm", "helm", "helm.sh/helm/v4/cmd/helm");

const fn of_kubernetes(name: &'static str, package: &'static str) -> Program {
    Program { name, folder: "controlplane", package, module: KUBERNETES, version: &["--version"] }
}

const fn our_own(name: &'static str, folder: &'static str, package: &'static str) -> Program {
    Program { name, folder, package, module: "", version: &[] }
}

/// Names a function for each program that finds or builds it.
macro_rules! programs {
    ($($(#[$doc:meta])* $name:ident: $program:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(environment: &Environment) -> anyhow::Result<PathBuf> {
            provide(environment, [&$program]).map(|[path]| path)
        }
    )*};
}

programs! {
    /// Finds or builds the controller manager, as [`control_plane`] does.
    kube_controller_manager: KUBE_CONTROLLER_MANAGER;
    /// Finds or builds kubectl, as [`control_plane`] does.
    kubectl: KUBECTL;
    /// Builds the sample operator from `operator/`.
    operator: OPERATOR;
    /// Builds the operator that shards itself.
    own_shard: OWN_SHARD;
    /// Builds the sharder that is not ours.
    other_sharder: OTHER_SHARDER;
    /// Builds what takes part in leader elections by the code of client-go and controller-runtime.
    elector: ELECTOR;
    /// Builds the program of test pods from `guest/`.
    guest: GUEST;
    /// Builds the controllers of cert-manager, in the version of `published/cert-manager/go.mod`.
    cert_manager: CERT_MANAGER;
    /// Builds external-secrets, in the version of `published/external-secrets/go.mod`. Half an hour, the first time.
    external_secrets: EXTERNAL_SECRETS;
    /// Builds Helm, in the version of `helm/go.mod`.
    helm: HELM;
}

/// Finds or builds etcd and the API server: from `KUBEBUILDER_ASSETS`, from the cache, from PATH, and last by `go build`
/// into the cache.
///
/// Assets may be of any version from 1.30 on. A program on PATH is taken only in the version that would be built.
pub fn control_plane(environment: &Environment) -> anyhow::Result<ControlPlanePrograms> {
    let [etcd, kube_apiserver] = provide(environment, [&ETCD, &KUBE_APISERVER])?;
    Ok(ControlPlanePrograms { etcd, kube_apiserver })
}

/// The folder with the source of a module, in the version that the module in `folder` asks for.
pub(super) fn source(environment: &Environment, folder: &Path, module: &str) -> anyhow::Result<PathBuf> {
    go::source(&go(environment, module)?, folder, module)
}

/// Finds or builds the programs of a node, in the same way.
pub fn node(environment: &Environment) -> anyhow::Result<NodePrograms> {
    let [kubelet, kube_scheduler, kube_proxy] = provide(environment, [&KUBELET, &KUBE_SCHEDULER, &KUBE_PROXY])?;
    Ok(NodePrograms { kubelet, kube_scheduler, kube_proxy })
}

impl Program {
    fn is_our_own(&self) -> bool {
        self.module.is_empty()
    }

    /// The folder of the cache that it is built into.
    fn cache(&self, environment: &Environment) -> PathBuf {
        let key = if self.is_our_own() { self.folder.to_owned() } else { format!("controlplane-{}", version()) };
        cache::folder(environment, &key)
    }

    /// Where it is built, if that is done. Of our own programs Go's build cache knows, which is asked once a process: a build
    /// reads hundreds of packages to find that there is nothing to do.
    fn built(&self, environment: &Environment) -> Option<PathBuf> {
        let path = self.cache(environment).join(self.name);
        let is_built = if self.is_our_own() { built().contains(self.name) } else { path.is_file() };
        is_built.then_some(path)
    }

    fn find(&self, environment: &Environment) -> Option<PathBuf> {
        if self.is_our_own() {
            return self.built(environment);
        }
        let fits =
            |found: &PathBuf| Minor::of_program(found, self.version).is_some_and(|its| Some(its) == wanted(self));
        environment
            .find_in_assets(self.name)
            .or_else(|| self.built(environment))
            .or_else(|| environment.find_on_path(self.name).filter(fits))
    }
}

/// Our own programs that this process has built.
fn built() -> MutexGuard<'static, BTreeSet<&'static str>> {
    static BUILT: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    BUILT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn provide<const N: usize>(environment: &Environment, programs: [&'static Program; N]) -> anyhow::Result<[PathBuf; N]> {
    programs.iter().try_for_each(|program| need::ask(program.name))?;
    if programs.iter().any(|program| !program.is_our_own()) {
        check_assets(environment)?;
    }
    let found = programs.map(|program| program.find(environment));
    let missing: Vec<_> =
        programs.iter().zip(&found).filter_map(|(program, found)| found.is_none().then_some(*program)).collect();
    missing.iter().try_for_each(|program| fits_assets(environment, program))?;
    build(environment, &missing)?;
    let mut paths = programs.map(|program| program.cache(environment).join(program.name));
    paths.iter_mut().zip(found).for_each(|(path, found)| *path = found.unwrap_or_else(|| path.clone()));
    Ok(paths)
}

/// Refuses an API server that is too old, and names the versions of what is taken, once a process.
fn check_assets(environment: &Environment) -> anyhow::Result<()> {
    static NAMED: Once = Once::new();
    let (Some(folder), Some(server)) =
        (&environment.kubebuilder_assets, environment.find_in_assets(KUBE_APISERVER.name))
    else {
        return Ok(());
    };
    let found = Minor::of_program(&server, KUBE_APISERVER.version);
    if found.is_none_or(|found| found < OLDEST) {
        bail!(
            "KUBEBUILDER_ASSETS ({}) has a kube-apiserver of {}, and {OLDEST} or newer is needed: its fence is a \
             ValidatingAdmissionPolicy. Name a newer set (`setup-envtest use {OLDEST}`), or unset the variable",
            folder.display(),
            shown(found)
        );
    }
    NAMED.call_once(|| {
        for program in [&ETCD, &KUBE_APISERVER] {
            let path = environment.find_in_assets(program.name);
            let version = path.and_then(|path| Minor::of_program(&path, program.version));
            let version = version.map_or_else(|| "is not there".to_owned(), |version| version.to_string());
            say(format_args!("KUBEBUILDER_ASSETS: {} {version}", program.name));
        }
    });
    Ok(())
}

/// Whether a program that the assets lack may come from elsewhere: not beside another version of Kubernetes.
fn fits_assets(environment: &Environment, missing: &Program) -> anyhow::Result<()> {
    let (Some(folder), Some(wanted)) = (&environment.kubebuilder_assets, wanted(missing)) else {
        return Ok(());
    };
    for beside in RELEASED.iter().filter(|program| program.module == missing.module) {
        let Some(path) = environment.find_in_assets(beside.name) else { continue };
        let found = Minor::of_program(&path, beside.version);
        if found != Some(wanted) {
            bail!(
                "KUBEBUILDER_ASSETS ({}) has no {missing}, and the one to be built is of {wanted}, but the {} there is of \
                 {}: add {missing} to the folder, name a set of {wanted}, or unset the variable",
                folder.display(),
                beside.name,
                shown(found),
                missing = missing.name
            );
        }
    }
    Ok(())
}

fn shown(version: Option<Minor>) -> String {
    version.map_or_else(|| "an unknown version".to_owned(), |version| version.to_string())
}

fn wanted(program: &Program) -> Option<Minor> {
    Minor::in_text(version_of(program.module))
}

/// Go itself.
fn go(environment: &Environment, names: &str) -> anyhow::Result<PathBuf> {
    environment.find_on_path("go").with_context(|| {
        format!(
            "`go` is not on PATH, and {names} has to be built with it: install Go 1.26 or newer (https://go.dev/dl/, or \
             `apt-get install golang-go` where that is new enough)"
        )
    })
}

/// Builds programs of one module by one call: while one is linked, the next is compiled.
fn build(environment: &Environment, programs: &[&'static Program]) -> anyhow::Result<()> {
    let Some(first) = programs.first() else { return Ok(()) };
    let names = programs.iter().map(|program| program.name).collect::<Vec<_>>().join(", ");
    let otherwise = match first.is_our_own() {
        true => "",
        false => ", or set KUBEBUILDER_ASSETS to a folder that has it (setup-envtest makes one)",
    };
    let go = go(environment, &names).map_err(|error| anyhow!("{error}{otherwise}"))?;
    let locked = Locked::acquire(first.cache(environment))?;
    // Another process, or thread, may have built some while this one waited for the lock.
    let missing: Vec<_> = programs.iter().filter(|program| program.built(environment).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut ldflags = "-s -w".to_owned();
    if !first.is_our_own() {
        let version = version();
        say(format_args!(
            "building {names} {version}, once: minutes when Go's build cache is cold, seconds when it is warm"
        ));
        // Without the stamp the server says that it is v0.0.0, and feature gates and kubectl misbehave.
        ldflags += &format!(" -X k8s.io/component-base/version.gitVersion={version}");
    }
    let staged = missing.iter().map(|program| locked.stage(program.name)).collect::<Result<Vec<_>, _>>()?;
    let output = if let [one] = &*staged { one.clone() } else { locked.staging()?.join("") };
    let packages: Vec<_> = missing.iter().map(|program| program.package).collect();
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join(first.folder);
    go::build(&go, &module, &packages, &ldflags, &output, &names)?;
    for program in missing {
        locked.publish(program.name)?;
        built().insert(program.name);
    }
    Ok(())
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

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_version_comes_from_go_mod() {
        assert!(version().starts_with("v1."), "{}", version());
        for program in &RELEASED {
            assert!(wanted(program).is_some(), "{}", program.name);
        }
    }

    #[test]
    fn every_program_is_a_tool_of_the_module() {
        for program in RELEASED.iter().filter(|program| program.module == KUBERNETES) {
            assert!(GO_MOD.contains(&format!("\t{}\n", program.package)), "{}", program.name);
        }
    }

    /// Held while programs are written and run: one that another thread's child inherited open for writing can't be run.
    static PROGRAMS: Mutex<()> = Mutex::new(());

    /// Programs in `folder` that print the version of go.mod, but for those of Kubernetes `kubernetes`.
    fn install(folder: &Path, programs: &[&Program], kubernetes: &str) {
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
            images: None,
            path: path.into(),
            cargo: "cargo".into(),
            // Nothing was built.
            target: path.to_owned(),
        }
    }

    #[test]
    fn programs_on_path_are_taken_only_in_the_built_version() {
        let _alone = PROGRAMS.lock();
        let path = tempfile::tempdir().unwrap();
        install(path.path(), &RELEASED, version());
        let environment = environment(path.path(), None);
        assert_eq!(control_plane(&environment).unwrap().kube_apiserver, path.path().join("kube-apiserver"));
        install(path.path(), &[&KUBECTL], "v1.32.4-dispatcher");
        // To be built then, for which there is no Go.
        let refused = kubectl(&environment).unwrap_err().to_string();
        assert!(refused.contains("`go` is not on PATH, and kubectl has to be built"), "{refused}");
    }

    #[test]
    fn assets_are_taken_from_1_30_on() {
        let _alone = PROGRAMS.lock();
        let assets = tempfile::tempdir().unwrap();
        install(assets.path(), &[&ETCD, &KUBE_APISERVER], "v1.30.0");
        let environment = environment(Path::new(""), Some(assets.path()));
        assert_eq!(control_plane(&environment).unwrap().kube_apiserver, assets.path().join("kube-apiserver"));
        for (version, said) in [("v1.29.9", "of 1.29"), ("none", "of an unknown version")] {
            install(assets.path(), &[&KUBE_APISERVER], version);
            let message = control_plane(&environment).unwrap_err().to_string();
            for part in [said, "1.30 or newer", "ValidatingAdmissionPolicy", "unset"] {
                assert!(message.contains(part), "{message}");
            }
        }
    }

    #[test]
    fn assets_are_not_mixed_with_other_versions() {
        let _alone = PROGRAMS.lock();
        let (path, assets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        install(path.path(), &RELEASED, version());
        // As setup-envtest makes them.
        install(assets.path(), &[&ETCD, &KUBE_APISERVER, &KUBECTL], version());
        let environment = environment(path.path(), Some(assets.path()));
        assert_eq!(kubectl(&environment).unwrap(), assets.path().join("kubectl"));
        let found = kube_controller_manager(&environment).unwrap();
        assert_eq!(found, path.path().join(KUBE_CONTROLLER_MANAGER.name));
        install(assets.path(), &[&KUBE_APISERVER, &KUBECTL], "v1.30.0");
        std::fs::remove_file(found).unwrap();
        let message = kube_controller_manager(&environment).unwrap_err().to_string();
        for part in ["no kube-controller-manager", "of 1.30", "unset"] {
            assert!(message.contains(part), "{message}");
        }
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
