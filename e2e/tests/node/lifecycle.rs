//! A node is gone when its owner is, whatever its end: processes, mounts, cgroups, folders. Where there can be none, one line
//! says why.

use std::{
    env,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use ringside_e2e::{case, eventually::eventually, live::Group, process::Process};
use rustix::process::{Pid, Signal, kill_process};

/// A node starts in about 12 s; two beside each other and beside other tests need longer.
const START_DEADLINE: Duration = Duration::from_secs(180);

const DEADLINE: Duration = Duration::from_secs(120);

/// The cases. SIGTERM is what a CI system sends.
pub(crate) fn group() -> Group {
    let cases = [
        case!("gone_after_sigkill", gone_after(Signal::KILL)),
        case!("gone_after_sigterm", gone_after(Signal::TERM)),
        case!(where_there_can_be_no_node_one_line_says_why),
    ];
    crate::group("lifecycle", cases)
}

/// The owner ends in order, but where it is killed.
async fn gone_after(signal: Signal) {
    let owner = Owner::start().await;
    let pid = Pid::from_raw(i32::try_from(owner.process.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
    let ended = owner.process.wait(DEADLINE).await.unwrap();
    assert_eq!(ended.success(), signal != Signal::KILL, "{}", owner.process.log_tail());
    owner.assert_cleaned_up().await;
}

async fn where_there_can_be_no_node_one_line_says_why() {
    // Where another user may look for it.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let node = folder.path().join("node");
    fs::copy(env!("CARGO_BIN_EXE_node"), &node).unwrap();
    // They are mounted read-only in containers that have capabilities, but not all privileges.
    let read_only = r#"
        for hierarchy in $(grep ' - cgroup' /proc/self/mountinfo | cut -d ' ' -f 5); do
            mount -o remount,bind,ro "$hierarchy" || exit 2
        done
        exec "$0""#;
    let refusals: [(&[&str], &str); 3] = [
        (&["setpriv", "--reuid=65534", "--clear-groups"], "needs root"),
        // As root is in most containers.
        (&["setpriv", "--inh-caps=-all", "--bounding-set=-sys_admin"], "needs namespaces"),
        (&["unshare", "--mount", "/bin/sh", "-c", read_only], "needs cgroups"),
    ];
    for (line, words) in refusals {
        let output = Command::new(line[0]).args(&line[1..]).arg(&node).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.lines().count() == 1 && text.contains(words), "{text}");
    }
}

/// The binary `node` with a pod that runs on it.
struct Owner {
    process: Process,
    folders: [PathBuf; 2],
    _notes: tempfile::TempDir,
}

impl Owner {
    async fn start() -> Self {
        let notes = tempfile::tempdir().unwrap();
        let process = Process::spawn("node", &Command::new(env!("CARGO_BIN_EXE_node")), &notes.path().join("log"));
        let process = process.unwrap();
        let kubectl = eventually("the node's kubectl", START_DEADLINE, || async {
            if let Err(ended) = process.check_running() {
                return Ok(Err(ended));
            }
            let text = fs::read_to_string(process.log()).map_err(|error| error.to_string())?;
            let kubectl = text.lines().find_map(|line| line.trim().strip_suffix(" get pods --all-namespaces"));
            kubectl.map(|kubectl| Ok(PathBuf::from(kubectl))).ok_or(text)
        });
        let kubectl = kubectl.await.unwrap().unwrap();
        // nsenter '--net=...' env 'KUBECONFIG=...' 'kubectl'
        let script = fs::read_to_string(&kubectl).unwrap();
        let part = |begin: &str| {
            let rest = script.split(begin).nth(1).and_then(|rest| rest.split('\'').next());
            PathBuf::from(rest.unwrap())
        };
        let folders = [kubectl.as_path(), &part("KUBECONFIG=")].map(|file| file.parent().unwrap().to_owned());
        let run = Command::new(&kubectl).args(["run", "guest", "--image=guest:1"]).output().unwrap();
        assert!(run.status.success(), "{run:?}");
        let owner = Self { process, folders, _notes: notes };
        // What the end is later looked for in is there now: so its absence will mean something.
        eventually("the pod's process", DEADLINE, || async {
            let traces = owner.traces();
            let all = ["containerd-shim", "/guest", "kubelet", "etcd", "/sys/fs/cgroup/", "namespaces.log"];
            let missing = all.iter().find(|part| !traces.iter().any(|trace| trace.contains(**part)));
            missing.map_or(Ok(()), |missing| Err(format!("no {missing} in {traces:#?}")))
        })
        .await
        .unwrap();
        kube_proxy_keeps_to_the_node(&part("--net=")).await;
        owner
    }

    async fn assert_cleaned_up(self) {
        eventually("nothing is left", DEADLINE, || async {
            let traces = self.traces();
            if traces.is_empty() { Ok(()) } else { Err(format!("{traces:#?}")) }
        })
        .await
        .unwrap();
        let links = fs::read_to_string("/proc/1/net/dev").unwrap();
        assert!(!links.contains("cni0"), "the bridge is in the machine's own network:\n{links}");
    }

    /// What there is of this node: processes, mounts, cgroups, files.
    fn traces(&self) -> Vec<String> {
        let cgroup = self.folders[0].file_name().unwrap().to_str().unwrap();
        let of_it = |text: &str| {
            self.folders.iter().any(|folder| text.contains(folder.to_str().unwrap())) || text.contains(cgroup)
        };
        let mut traces: Vec<String> = processes().into_iter().filter(|text| of_it(text)).collect();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        traces.extend(mounts.lines().filter(|line| of_it(line)).map(str::to_owned));
        let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().map(|hierarchy| hierarchy.unwrap().path());
        let mut places: Vec<_> = hierarchies.map(|hierarchy| hierarchy.join(cgroup)).collect();
        places.push(Path::new("/sys/fs/cgroup").join(cgroup));
        places.extend(self.folders.iter().flat_map(|folder| [folder.clone(), folder.join("namespaces.log")]));
        let existing = places.into_iter().filter(|place| place.exists());
        traces.extend(existing.map(|place| place.display().to_string()));
        traces
    }
}

/// The rules of Services are in the node's network, and none of them in the one that the test was started in.
async fn kube_proxy_keeps_to_the_node(node: &Path) {
    eventually("the rules of kube-proxy", DEADLINE, || async {
        let rules = rules(node);
        if rules.contains("KUBE-") { Ok(()) } else { Err(rules) }
    })
    .await
    .unwrap();
    // This process itself is in the network of the node that cases share.
    let parent = rustix::process::getppid().unwrap();
    let ours = rules(Path::new(&format!("/proc/{}/ns/net", parent.as_raw_nonzero())));
    assert!(ours.contains("PREROUTING") && !ours.contains("KUBE-"), "{ours}");
}

/// What iptables has in that network for addresses that are translated. It is there: a node needs it.
fn rules(network: &Path) -> String {
    let path = format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default());
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", network.display())).env("PATH", path);
    let listed = command.args(["iptables", "--wait", "--table", "nat", "--list-rules"]).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    String::from_utf8(listed.stdout).unwrap()
}

/// All processes: command line, working folder and cgroups of each.
fn processes() -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let path = entry.unwrap().path();
        // It may be gone by now.
        let command = fs::read(path.join("cmdline")).ok()?;
        let cwd = fs::read_link(path.join("cwd")).ok()?;
        let cgroups = fs::read_to_string(path.join("cgroup")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        Some(format!("{}: {command}\n{}\n{cgroups}", path.display(), cwd.display()))
    });
    processes.collect()
}
