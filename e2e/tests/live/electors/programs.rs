//! Programs that take part in an election, and say `leading` and `lost`.

use std::{path::Path, process::Command, time::Duration};

use ringside_e2e::toolchain::{self, Environment};

use super::fixture::NAMESPACE;

/// How long a lock lasts without a renewal, as all of them have it by default.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// What starts a program for a lock and a candidate. It connects as KUBECONFIG says.
pub(crate) type Program = fn(&str, &str) -> Command;

pub(crate) fn client_go(lock: &str, identity: &str) -> Command {
    by_go("client-go", lock, identity)
}

pub(crate) fn controller_runtime(lock: &str, identity: &str) -> Command {
    by_go("controller-runtime", lock, identity)
}

fn by_go(way: &str, lock: &str, identity: &str) -> Command {
    let mut command = Command::new(toolchain::elector(&Environment::of_process()).unwrap());
    command.args(["--way", way, "--namespace", NAMESPACE, "--lock", lock, "--identity", identity]);
    command
}

pub(crate) fn fabric8(lock: &str, identity: &str) -> Command {
    by_fabric8("lease", lock, identity)
}

pub(crate) fn fabric8_by_configmap(lock: &str, identity: &str) -> Command {
    by_fabric8("configmap", lock, identity)
}

fn by_fabric8(kind: &str, lock: &str, identity: &str) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("electors/fabric8");
    let mut command = toolchain::java(&Environment::of_process(), &folder, "Elector.java").unwrap();
    command.args([kind, NAMESPACE, lock, identity]);
    command
}

/// A library for kube-rs, which patches the lock without a word about what it was. It relies on the time that is
/// written in the lock, of which the ring leaves less than a busy machine may take.
pub(crate) fn kube_leader_election(lock: &str, identity: &str) -> Command {
    let mut command = Command::new(toolchain::rust_elector(&Environment::of_process()).unwrap());
    // Less than a shard's Lease lasts, after which a proxy is back that lost it.
    command.args([NAMESPACE, lock, identity, "10"]);
    command
}
