//! Programs that take part in an election, and say `leading` and `lost`.

use std::{collections::BTreeMap, env, path::Path, process::Command, sync::Arc, time::Duration};

use kube::Client;
use ringside_e2e::toolchain::{self, Environment};
use ringside_runtime::{
    clock::{Boottime, SharedClock},
    lease::{Terms, keep},
    shutdown::Shutdown,
};

use super::{elsewhere::ELSEWHERE, fixture::NAMESPACE};

/// What a program is told when it is this one: the lock, and who takes part.
const STAND: &str = "stand-for-election";

/// As of 15 s, in a third of the time, as all of them have it.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// What starts a program for a lock and somebody who takes part. It connects as KUBECONFIG says.
pub(crate) type Program = fn(&str, &str) -> Command;

pub(crate) fn client_go(lock: &str, identity: &str) -> Command {
    by_go("client-go", NAMESPACE, lock, identity)
}

/// In a namespace of its own choice.
pub(crate) fn client_go_elsewhere(lock: &str, identity: &str) -> Command {
    by_go("client-go", ELSEWHERE, lock, identity)
}

pub(crate) fn controller_runtime(lock: &str, identity: &str) -> Command {
    by_go("controller-runtime", NAMESPACE, lock, identity)
}

fn by_go(way: &str, namespace: &str, lock: &str, identity: &str) -> Command {
    let mut command = Command::new(toolchain::elector(&Environment::of_process()).unwrap());
    command.args(["--way", way, "--namespace", namespace, "--lock", lock, "--identity", identity]);
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

/// A library for kube-rs, which patches the lock without a word about what it was. It goes by the time that is written in the
/// lock, of which the ring leaves less than a busy machine may take.
pub(crate) fn kube_leader_election(lock: &str, identity: &str) -> Command {
    let mut command = Command::new(toolchain::rust_elector(&Environment::of_process()).unwrap());
    // Less than a shard's Lease lasts, after which a proxy is back that lost it.
    command.args([NAMESPACE, lock, identity, "10"]);
    command
}

/// The keeper of Leases that the sharder's replicas elect by, with kube-rs.
pub(crate) fn kube_rs(lock: &str, identity: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([STAND, lock, identity]);
    command
}

/// Who takes part by kube-rs.
pub(crate) struct Candidacy {
    lock: String,
    identity: String,
}

impl Candidacy {
    /// What this process was started for, unless it is the test.
    pub(crate) fn of_process() -> Option<Self> {
        let mut arguments = env::args().skip(1);
        (arguments.next()? == STAND).then_some(())?;
        Some(Self { lock: arguments.next()?, identity: arguments.next()? })
    }

    /// Takes part until it is ended.
    #[allow(clippy::print_stdout, reason = "it is read there")]
    pub(crate) async fn stand(self) {
        let terms = Terms {
            namespace: NAMESPACE.to_owned(),
            name: self.lock,
            holder: self.identity,
            duration: LEASE,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            facts: tokio::sync::watch::channel(BTreeMap::new()).1,
            prompt: false,
        };
        let clock: SharedClock = Arc::new(Boottime);
        let (tenure, keeping) = keep(Client::try_default().await.unwrap(), terms, clock, Shutdown::new());
        let saying = async {
            loop {
                tenure.until_held().await;
                println!("leading");
                tenure.until_lost().await;
                println!("lost");
            }
        };
        tokio::select! {
            () = keeping => {}
            () = saying => {}
        }
    }
}
