//! What a node needs of the machine that it stands on.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use rustix::process::geteuid;

use super::namespaces::Namespaces;
use crate::process::{Cgroup, Folder};

/// Where the programs of distributions are, and where those of the node look for each other.
pub(super) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Programs, and the packages of Debian and its kin that have them.
const PROGRAMS: [(&str, &str); 9] = [
    ("containerd", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
];

/// Where the CNI plugins are: Debian's place, and that of their own releases.
const CNI_FOLDERS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];

/// The plugins that are used: the second hands out addresses for the first, and containerd itself uses the third.
const CNI_PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];

const CNI_PACKAGE: &str = "containernetworking-plugins";

/// A machine that has what a node needs.
#[derive(Debug, Clone)]
pub struct Requirements {
    /// The folder of the CNI plugins.
    pub(super) cni: PathBuf,
}

impl Requirements {
    /// Looks at this machine.
    ///
    /// # Errors
    /// Says in one line what is missing.
    pub fn check() -> Result<Self> {
        ensure!(geteuid().is_root(), "a node needs root, for its namespaces, mounts and cgroups: run this as root");
        let folders: Vec<_> = SYSTEM_PATH.split(':').map(Path::new).collect();
        let requirements = Self::look(&folders, &CNI_FOLDERS.map(Path::new))?;
        try_out()?;
        Ok(requirements)
    }

    fn look(folders: &[&Path], cni_folders: &[&Path]) -> Result<Self> {
        let missing = |(program, _): &(&str, &str)| !folders.iter().any(|folder| folder.join(program).is_file());
        let (mut programs, mut packages): (Vec<_>, Vec<_>) = PROGRAMS.into_iter().filter(missing).unzip();
        packages.dedup();
        let complete = |folder: &&&Path| CNI_PLUGINS.iter().all(|plugin| folder.join(plugin).is_file());
        match cni_folders.iter().find(complete) {
            Some(cni) if programs.is_empty() => return Ok(Self { cni: (*cni).to_owned() }),
            Some(_) => {}
            None => {
                programs.push("the CNI plugins");
                packages.push(CNI_PACKAGE);
            }
        }
        let (programs, packages) = (programs.join(", "), packages.join(" "));
        bail!("a node needs {programs}, not found on this machine: apt-get install {packages}")
    }
}

/// Makes what is made for a node, and drops it: what the kernel allows depends on capabilities, seccomp filters, mounts
/// and settings, and nothing but trying tells it. Most containers take it away from root.
fn try_out() -> Result<()> {
    let refused = |what: &str, why: &dyn ToString| {
        let why = why.to_string();
        // Above it is what ran, and where its log was.
        let why = why.trim_end().lines().last().unwrap_or_default();
        anyhow!("a node needs {what}, refused here: {why}; in a container it needs one with all privileges")
    };
    let folder = Folder::create("node-trial").map_err(|error| refused("a folder for temporary files", &error))?;
    let name = folder.path().file_name().unwrap_or_default().to_string_lossy();
    let _cgroup = Cgroup::create(&name).map_err(|error| refused("cgroups of its own", &error))?;
    let namespaces = Namespaces::create(folder.path());
    namespaces.map(drop).map_err(|error| refused("namespaces and mounts of its own", &error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_packages_in_one_line() {
        let (programs, plugins) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let look = || Requirements::look(&[programs.path()], &[plugins.path()]);
        for (program, _) in PROGRAMS.iter().filter(|(_, package)| !["containerd", "runc"].contains(package)) {
            fs::write(programs.path().join(program), "").unwrap();
        }
        assert_eq!(
            look().unwrap_err().to_string(),
            "a node needs containerd, containerd-shim-runc-v2, ctr, runc, the CNI plugins, not found on this machine: \
             apt-get install containerd runc containernetworking-plugins"
        );
        for (program, _) in PROGRAMS {
            fs::write(programs.path().join(program), "").unwrap();
        }
        assert!(look().unwrap_err().to_string().ends_with("apt-get install containernetworking-plugins"));
        for plugin in CNI_PLUGINS {
            fs::write(plugins.path().join(plugin), "").unwrap();
        }
        assert_eq!(look().unwrap().cni, plugins.path());
    }
}
