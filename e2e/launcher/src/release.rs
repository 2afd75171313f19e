//! The releases of Kubernetes that tests and demo run on, each built from published modules.

use std::{fmt, fs, io, path::Path};

/// Names the minor version to run on, such as `1.31`.
pub const VARIABLE: &str = "RINGSIDE_KUBERNETES";

/// The flag of each build in a module that was [written](Module::write): Go adds what the module needs, each package by its
/// checksum of the public database.
pub const WRITTEN: &str = "-mod=mod";

/// A release of Kubernetes, and the etcd that it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Of `1.minor`.
    pub minor: u32,
    patch: u32,
    /// The version of etcd, of the minor that kubeadm installs with it.
    etcd: &'static str,
}

/// All that are built, the oldest first; the last is the usual one. Of 1.29, and of some newer patch releases, not all modules are
/// published.
pub const RELEASES: [Release; 8] = [
    Release { minor: 30, patch: 14, etcd: "3.5.35" },
    Release { minor: 31, patch: 13, etcd: "3.5.35" },
    Release { minor: 32, patch: 9, etcd: "3.5.35" },
    Release { minor: 33, patch: 13, etcd: "3.5.35" },
    Release { minor: 34, patch: 12, etcd: "3.6.16" },
    Release { minor: 35, patch: 8, etcd: "3.6.16" },
    Release { minor: 36, patch: 5, etcd: "3.6.16" },
    Release { minor: 37, patch: 2, etcd: "3.7.3" },
];

/// The modules in k8s.io/kubernetes' own folder `staging`, of any release: it names them by relative paths, which a dependent
/// has to replace.
const STAGING: [&str; 34] = [
    "api",
    "apiextensions-apiserver",
    "apimachinery",
    "apiserver",
    "cli-runtime",
    "client-go",
    "cloud-provider",
    "cluster-bootstrap",
    "code-generator",
    "component-base",
    "component-helpers",
    "controller-manager",
    "cri-api",
    "cri-client",
    "cri-streaming",
    "csi-translation-lib",
    "dynamic-resource-allocation",
    "endpointslice",
    "externaljwt",
    "kms",
    "kube-aggregator",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "legacy-cloud-providers",
    "metrics",
    "mount-utils",
    "pod-security-admission",
    "sample-apiserver",
    "sample-cli-plugin",
    "sample-controller",
    "streaming",
];

/// A module of which programs are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// k8s.io/kubernetes.
    Kubernetes,
    /// go.etcd.io/etcd/server/v3, whose package at the root is the program.
    Etcd,
}

impl Release {
    /// The usual one.
    pub const LATEST: Self = RELEASES[RELEASES.len() - 1];

    /// The one of that minor version.
    pub fn of_minor(minor: u32) -> Option<Self> {
        RELEASES.into_iter().find(|release| release.minor == minor)
    }

    /// The one that a user names by its minor version, such as `1.31`.
    ///
    /// # Errors
    /// Names those that there are.
    pub fn named(name: &str) -> Result<Self, String> {
        let minor = name.trim_start_matches('v').strip_prefix("1.").and_then(|minor| minor.parse().ok());
        minor.and_then(Self::of_minor).ok_or_else(|| {
            let all: Vec<_> = RELEASES.iter().map(|release| format!("1.{}", release.minor)).collect();
            format!("Kubernetes {name} can't be built here: name one of {}", all.join(", "))
        })
    }

    /// The version of a module, as Go names it.
    pub fn version(&self, module: Module) -> String {
        match module {
            Module::Kubernetes => format!("v{self}"),
            Module::Etcd => format!("v{}", self.etcd),
        }
    }

    /// The name of the folder that its programs are built into.
    pub fn folder(&self) -> String {
        format!("controlplane-v{self}")
    }
}

/// As `1.31.14`.
impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}.{}", self.minor, self.patch)
    }
}

impl Module {
    /// Its path.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Kubernetes => "k8s.io/kubernetes",
            Self::Etcd => "go.etcd.io/etcd/server/v3",
        }
    }

    /// The name of the folder that it is written to.
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Kubernetes => "module-of-kubernetes",
            Self::Etcd => "module-of-etcd",
        }
    }

    /// The go.mod of a module that depends on it and builds its programs.
    fn go_mod(self, release: Release) -> String {
        let (path, version) = (self.path(), release.version(self));
        let mut text = format!("module ringside.example/controlplane\n\ngo 1.26.0\n\nrequire {path} {version}\n");
        if self == Self::Kubernetes {
            let staged = format!("v0.{}.{}", release.minor, release.patch);
            text += "\nreplace (\n";
            for name in STAGING {
                text += &format!("\tk8s.io/{name} => k8s.io/{name} {staged}\n");
            }
            text += ")\n";
        }
        text
    }

    /// Leaves a module in `folder` in which the programs of a release can be built. What Go added to it stays.
    ///
    /// # Errors
    /// When the folder can't be written.
    pub fn write(self, release: Release, folder: &Path) -> io::Result<()> {
        let (go_mod, wanted) = (folder.join("go.mod"), self.go_mod(release));
        // Beside it, as Go sorts its lines and adds some.
        let template = folder.join("go.mod.template");
        if go_mod.is_file() && fs::read_to_string(&template).is_ok_and(|before| before == wanted) {
            return Ok(());
        }
        fs::create_dir_all(folder)?;
        fs::write(go_mod, &wanted)?;
        fs::write(template, wanted)
    }
}
