//! Namespaces of a node's own, so that nothing of it is left when they end, and nothing outside is changed.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;

use super::requirements::SYSTEM_PATH;
use crate::{
    files::failed,
    process::{Process, enter_network},
};

/// The node, in the network of its pods: the bridge that they hang on.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);

/// The network of the pods.
pub(super) const PODS: &str = "10.88.0.0/24";

/// The addresses of Services, as the API server hands them out.
const SERVICES: &str = "10.0.0.0/24";

const HOLD: &str = include_str!("hold.sh");

/// A few mounts and links: less than 0.1 s on an idle machine.
const DEADLINE: Duration = Duration::from_secs(30);

const INTERVAL: Duration = Duration::from_millis(10);

/// Namespaces for network, mounts and processes, and the process that holds them. When it ends, which it does when this
/// is dropped or its owner is gone, the kernel ends all processes in them, whatever these have made of their sessions and
/// groups.
#[derive(Debug)]
pub(super) struct Namespaces {
    holder: Process,
}

impl Namespaces {
    /// Makes them, and waits until they are ready.
    pub(super) fn create(folder: &Path) -> anyhow::Result<Self> {
        let (script, ready) = (folder.join("hold.sh"), folder.join("namespaces-are-ready"));
        fs::write(&script, HOLD).map_err(failed("write", &script))?;
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private"])
            .arg("/bin/sh")
            .args([&script, &ready])
            .args([&format!("{ADDRESS}/24"), SERVICES])
            .env("PATH", SYSTEM_PATH);
        let holder = Process::spawn("namespaces", &command, &folder.join("namespaces.log"))?;
        let begin = Instant::now();
        while !ready.exists() {
            holder.check_running()?;
            if begin.elapsed() > DEADLINE {
                bail!("the namespaces are not ready after {DEADLINE:?}:\n{}", holder.log_tail());
            }
            thread::sleep(INTERVAL);
        }
        Ok(Self { holder })
    }

    /// Moves the calling thread into the network: with it the threads and processes that it starts from now on.
    pub(super) fn enter_network(&self) -> anyhow::Result<()> {
        let path = self.network();
        enter_network(&path).map_err(failed("enter the network", &path))
    }

    /// A command that runs in all of them.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        for (option, namespace) in [("--net", "net"), ("--mount", "mnt"), ("--pid", "pid_for_children")] {
            command.arg(format!("{option}={}", self.of_holder(&format!("ns/{namespace}")).display()));
        }
        command.arg("--").arg(program).env("PATH", SYSTEM_PATH);
        command
    }

    /// Where a file that is seen inside is seen from outside.
    pub(super) fn outside(&self, path: &Path) -> PathBuf {
        self.of_holder("root").join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The network, as a file to enter it by.
    pub(super) fn network(&self) -> PathBuf {
        self.of_holder("ns/net")
    }

    fn of_holder(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.holder.id()))
    }
}
