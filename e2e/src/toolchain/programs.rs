//! The Go programs that live tests run: those of a control plane, of a node, and our own.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, Once, PoisonError},
};

use anyhow::{Context as _, anyhow, bail};
use ringside_launcher::{Module, RELEASES, Release, VARIABLE, WRITTEN};

use super::{
    Environment,
    cache::{self, Locked},
    go, need,
    progress::say,
    version::Minor,
};
use crate::files::failed;

/// The oldest API server that is taken from the assets: the first with ValidatingAdmissionPolicies as the fence needs them
/// (`docs/dev/fence.md`).
const OLDEST: Minor = Minor::new(1, RELEASES[0].minor);

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
    source: Source,
    package: &'static str,
    /// The arguments that print its version.
    version: &'static [&'static str],
}

/// What a program is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A published module, in the version of the [`Release`].
    Published(Module),
    /// A module of this repository, by its folder.
    Own(&'static str),
}

const ETCD: Program = Program { source: Source::Published(Module::Etcd), ..of_kubernetes("etcd", Module::Etcd.path()) };
const KUBE_APISERVER: Program = of_kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver");
const KUBE_CONTROLLER_MANAGER: Program =
    of_kubernetes("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager");
const KUBECTL: Program =
    Program { version: &["version", "--client"], ..of_kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl") };
const KUBELET: Program = of_kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet");
const KUBE_SCHEDULER: Program = of_kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler");
const KUBE_PROXY: Program = of_kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy");
#[cfg(test)]
const RELEASED: [&Program; 7] =
    [&ETCD, &KUBE_APISERVER, &KUBE_CONTROLLER_MANAGER, &KUBECTL, &KUBELET, &KUBE_SCHEDULER, &KUBE_PROXY];

const OPERATOR: Program = our_own("website-operator", "operator", ".");
const OWN_SHARD: Program = our_own("website-shard", "operator", "./shard");
const OTHER_SHARDER: Program = our_own("small-sharder", "operator", "./sharder");
const ELECTOR: Program = our_own("elector", "operator", "./elector");
const GUEST: Program = our_own("guest", "guest", ".");
const CERT_MANAGER: Program = our_own("cert-manager", "published/cert-manager", ".");
const EXTERNAL_SECRETS: Program = our_own("external-secrets", "published/external-secrets", ".");
const HELM: Program = our_own("helm", "helm", "helm.sh/helm/v4/cmd/helm");

const fn of_kubernetes(name: &'static str, package: &'static str) -> Program {
    Program { name, source: Source::Published(Module::Kubernetes), package, version: &["--version"] }
}

const fn our_own(name: &'static str, folder: &'static str, package: &'static str) -> Program {
    Program { name, source: Source::Own(folder), package, version: &[] }
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
    /// Builds the controllers of external-secrets, in the version of `published/external-secrets/go.mod`.
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

/// Builds the API server of the minor version before, or behind the oldest one.
pub fn neighbouring_api_server(environment: &Environment) -> anyhow::Result<PathBuf> {
    let minor = release(environment)?.minor;
    let neighbour = minor.checked_sub(1).and_then(Release::of_minor).or_else(|| Release::of_minor(minor + 1));
    let named = neighbour.with_context(|| format!("no version beside 1.{minor} can be built here"))?.minor;
    let other = Environment { kubernetes: Some(format!("1.{named}")), kubebuilder_assets: None, ..environment.clone() };
    provide(&other, [&KUBE_APISERVER]).map(|[path]| path)
}

/// The version of the API server that is found or built.
pub(super) fn kubernetes(environment: &Environment) -> anyhow::Result<Minor> {
    let found = environment.find_in_assets(KUBE_APISERVER.name);
    let minor = found.and_then(|found| Minor::of_program(&found, KUBE_APISERVER.version));
    Ok(match minor {
        Some(minor) => minor,
        None => Minor::new(1, release(environment)?.minor),
    })
}

/// The folder with the source of a module, in the version that the module in `folder` asks for.
pub(super) fn source(environment: &Environment, folder: &Path, module: &str) -> anyhow::Result<PathBuf> {
    go::source(&go(environment, module)?, folder, module)
}

/// Finds or builds the programs of a node, in the same way. The scheduler is always of the control plane's version.
pub fn node(environment: &Environment) -> anyhow::Result<NodePrograms> {
    let Some(older) = &environment.nodes else {
        let [kubelet, kube_scheduler, kube_proxy] = provide(environment, [&KUBELET, &KUBE_SCHEDULER, &KUBE_PROXY])?;
        return Ok(NodePrograms { kubelet, kube_scheduler, kube_proxy });
    };
    let of_nodes = Environment { kubernetes: Some(older.clone()), kubebuilder_assets: None, ..environment.clone() };
    let [kubelet, kube_proxy] = provide(&of_nodes, [&KUBELET, &KUBE_PROXY]).context("RINGSIDE_NODES")?;
    let [kube_scheduler] = provide(environment, [&KUBE_SCHEDULER])?;
    Ok(NodePrograms { kubelet, kube_scheduler, kube_proxy })
}

impl Program {
    fn is_our_own(&self) -> bool {
        matches!(self.source, Source::Own(_))
    }

    /// The folder of the cache that it is built into.
    fn cache(&self, environment: &Environment) -> anyhow::Result<PathBuf> {
        Ok(match self.source {
            Source::Own(folder) => cache::folder(environment, folder),
            Source::Published(_) => cache::folder(environment, &release(environment)?.folder()),
        })
    }

    /// Where it is built, if that is done. Of our own programs Go's build cache knows, which is asked once a process: a build
    /// reads hundreds of packages to find that there is nothing to do.
    fn built(&self, environment: &Environment) -> anyhow::Result<Option<PathBuf>> {
        let path = self.cache(environment)?.join(self.name);
        let is_built = if self.is_our_own() { built().contains(self.name) } else { path.is_file() };
        Ok(is_built.then_some(path))
    }

    fn find(&self, environment: &Environment) -> anyhow::Result<Option<PathBuf>> {
        let Source::Published(module) = self.source else { return self.built(environment) };
        if let Some(found) = environment.find_in_assets(self.name) {
            return Ok(Some(found));
        }
        if let Some(built) = self.built(environment)? {
            return Ok(Some(built));
        }
        let wanted = Minor::in_text(&release(environment)?.version(module));
        let fits = |found: &PathBuf| Minor::of_program(found, self.version).is_some_and(|its| Some(its) == wanted);
        Ok(environment.find_on_path(self.name).filter(fits))
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
    let mut paths = programs.map(|_| PathBuf::new());
    let mut missing = Vec::new();
    for (path, program) in paths.iter_mut().zip(programs) {
        match program.find(environment)? {
            Some(found) => *path = found,
            None => {
                *path = program.cache(environment)?.join(program.name);
                missing.push(program);
            }
        }
    }
    // One call a module: while one program is linked, the next is compiled.
    while let Some(first) = missing.first() {
        let source = first.source;
        let (these, others): (Vec<_>, _) = missing.into_iter().partition(|program| program.source == source);
        build(environment, source, &these)?;
        missing = others;
    }
    Ok(paths)
}

/// The release of Kubernetes that programs are built of: the one that is named, else the one of the assets, else the latest.
fn release(environment: &Environment) -> anyhow::Result<Release> {
    if let Some(named) = &environment.kubernetes {
        return Release::named(named).map_err(|error| anyhow!("{VARIABLE}: {error}"));
    }
    let Some(server) = environment.find_in_assets(KUBE_APISERVER.name) else { return Ok(Release::LATEST) };
    let found = Minor::of_program(&server, KUBE_APISERVER.version);
    RELEASES.into_iter().find(|release| found == Some(Minor::new(1, release.minor))).with_context(|| {
        format!(
            "{} is of {}, of which nothing can be built here: add what is missing to its folder, or unset KUBEBUILDER_ASSETS",
            server.display(),
            shown(found)
        )
    })
}

/// Refuses an API server that is too old or another one than is named, and names the versions of what is taken, once a process.
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
    if environment.kubernetes.is_some() && found != Some(Minor::new(1, release(environment)?.minor)) {
        bail!(
            "KUBEBUILDER_ASSETS ({}) has a kube-apiserver of {}, and {VARIABLE} names another: unset one of both",
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

fn shown(version: Option<Minor>) -> String {
    version.map_or_else(|| "an unknown version".to_owned(), |version| version.to_string())
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
fn build(environment: &Environment, source: Source, programs: &[&'static Program]) -> anyhow::Result<()> {
    let Some(first) = programs.first() else { return Ok(()) };
    let names = programs.iter().map(|program| program.name).collect::<Vec<_>>().join(", ");
    let otherwise = match source {
        Source::Own(_) => "",
        Source::Published(_) => ", or set KUBEBUILDER_ASSETS to a folder that has it (setup-envtest makes one)",
    };
    let go = go(environment, &names).map_err(|error| anyhow!("{error}{otherwise}"))?;
    let cache = first.cache(environment)?;
    let locked = Locked::acquire(cache.clone())?;
    // Another process, or thread, may have built some while this one waited for the lock.
    let mut missing = Vec::new();
    for program in programs {
        if program.built(environment)?.is_none() {
            missing.push(program);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let built = match source {
        Source::Own(folder) => go::Module {
            folder: Path::new(env!("CARGO_MANIFEST_DIR")).join(folder),
            flags: &[],
            ldflags: LDFLAGS.to_owned(),
        },
        Source::Published(module) => published(module, release(environment)?, &cache, &names)?,
    };
    let staged = missing.iter().map(|program| locked.stage(program.name)).collect::<Result<Vec<_>, _>>()?;
    let output = if let [one] = &*staged { one.clone() } else { locked.staging()?.join("") };
    let packages: Vec<_> = missing.iter().map(|program| program.package).collect();
    built.build(&go, &packages, &output, &names)?;
    for program in missing {
        locked.publish(program.name)?;
        self::built().insert(program.name);
    }
    Ok(())
}

/// Neither symbols nor debug information.
const LDFLAGS: &str = "-s -w";

/// Leaves a module in the cache in which programs of a release are built.
fn published(module: Module, release: Release, cache: &Path, names: &str) -> anyhow::Result<go::Module> {
    let version = release.version(module);
    say(format_args!(
        "building {names} {version}, once: minutes when Go's build cache is cold, seconds when it is warm"
    ));
    let folder = cache.join(module.folder());
    module.write(release, &folder).map_err(failed("write a module in", &folder))?;
    let minor = release.minor;
    let ldflags = match module {
        Module::Etcd => LDFLAGS.to_owned(),
        // Without the stamps the server says that it is v0.0.0, and feature gates and kubectl misbehave. Old releases link to names
        // inside Go's own packages.
        Module::Kubernetes => format!(
            "{LDFLAGS} -checklinkname=0 -X k8s.io/component-base/version.gitVersion={version} \
             -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor={minor}"
        ),
    };
    Ok(go::Module { folder, flags: &[WRITTEN], ldflags })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_release_is_named_by_its_minor_version() {
        for release in RELEASES {
            assert_eq!(Release::named(&format!("1.{}", release.minor)), Ok(release));
        }
        let refused = Release::named("1.29").unwrap_err();
        assert!(
            refused.contains("1.30, 1.31") && refused.contains(&format!("1.{}", Release::LATEST.minor)),
            "{refused}"
        );
        assert!(Release::named("31").is_err() && Release::named("1.x").is_err());
    }

    #[test]
    fn the_module_of_a_release_is_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let go_mod = folder.path().join("go.mod");
        let [oldest, .., latest] = RELEASES;
        Module::Kubernetes.write(oldest, folder.path()).unwrap();
        let written = std::fs::read_to_string(&go_mod).unwrap();
        assert!(written.contains(&format!("require k8s.io/kubernetes v{oldest}\n")), "{written}");
        let staged = format!("k8s.io/api => k8s.io/api v0.{}", oldest.to_string().trim_start_matches("1."));
        assert!(written.contains(&staged), "{written}");
        // What Go adds stays, until the release is another.
        std::fs::write(&go_mod, "by go").unwrap();
        Module::Kubernetes.write(oldest, folder.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&go_mod).unwrap(), "by go");
        Module::Kubernetes.write(latest, folder.path()).unwrap();
        assert!(std::fs::read_to_string(&go_mod).unwrap().contains(&format!("v{latest}\n")));
    }

    /// Held while programs are written and run: one that another thread's child inherited open for writing can't be run.
    static PROGRAMS: Mutex<()> = Mutex::new(());

    /// Programs in `folder` that print the latest version, but for those of Kubernetes `kubernetes`.
    fn install(folder: &Path, programs: &[&Program], kubernetes: &str) {
        for program in programs {
            let etcd = Release::LATEST.version(Module::Etcd);
            let version = if program.source == Source::Published(Module::Kubernetes) { kubernetes } else { &etcd };
            let path = folder.join(program.name);
            let script =
                format!("#!/bin/sh\n[ \"$*\" = '{}' ] && echo Version: {version}\n", program.version.join(" "));
            std::fs::write(&path, script).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn latest() -> String {
        Release::LATEST.version(Module::Kubernetes)
    }

    fn environment(path: &Path, assets: Option<&Path>) -> Environment {
        Environment {
            of_package: Vec::new(),
            kubebuilder_assets: assets.map(Path::to_owned),
            images: None,
            path: path.into(),
            cargo: "cargo".into(),
            kubernetes: None,
            nodes: None,
            // Nothing was built.
            target: path.to_owned(),
        }
    }

    #[test]
    fn programs_on_path_are_taken_only_in_the_built_version() {
        let _alone = PROGRAMS.lock();
        let path = tempfile::tempdir().unwrap();
        install(path.path(), &RELEASED, &latest());
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
        install(path.path(), &RELEASED, &latest());
        // As setup-envtest makes them.
        install(assets.path(), &[&ETCD, &KUBE_APISERVER, &KUBECTL], &latest());
        let environment = environment(path.path(), Some(assets.path()));
        assert_eq!(kubectl(&environment).unwrap(), assets.path().join("kubectl"));
        let found = kube_controller_manager(&environment).unwrap();
        assert_eq!(found, path.path().join(KUBE_CONTROLLER_MANAGER.name));
        // What is missing is built of what is there, for which there is no Go.
        install(assets.path(), &[&KUBE_APISERVER, &KUBECTL], "v1.30.0");
        let message = kube_controller_manager(&environment).unwrap_err().to_string();
        assert!(message.contains("`go` is not on PATH, and kube-controller-manager has"), "{message}");
        assert_eq!(super::release(&environment).unwrap(), RELEASES[0]);
        for (version, named, parts) in [
            ("v1.99.0", None, ["of 1.99", "add what is missing"]),
            ("v1.30.0", Some("1.31"), ["of 1.30", "names another"]),
            ("v1.30.0", Some("1.12"), ["RINGSIDE_KUBERNETES", "1.30, 1.31"]),
        ] {
            install(assets.path(), &[&KUBE_APISERVER, &KUBECTL], version);
            let environment = Environment { kubernetes: named.map(str::to_owned), ..environment.clone() };
            let message = kube_controller_manager(&environment).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
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
