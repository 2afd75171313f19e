//! What the manifests say about privileges holds for the processes that run.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Pod, VolumeMount};
use kube::ResourceExt as _;

use crate::Fixture;

/// In `/proc/PID/status`: the user, no way to more privileges, no capabilities, and a seccomp filter.
const CONFINED: [&str; 5] =
    ["Uid:\t65532\t65532", "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "Seccomp:\t2"];

/// As the kernel shortens them.
pub(super) const PROXY: &str = "ringside-proxy";
const CONTROLLER: &str = "website-operato";
const SHARDER: &str = "ringside-sharde";

const SERVICE_ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// The port of the example's metrics, 6444, as the kernel writes it.
const METRICS: &str = ":192C";
/// 127.0.0.1 and ::1, as the kernel writes them on machines that put the lowest byte first.
const LOOPBACK: [&str; 2] = ["0100007F:", "00000000000000000000000001000000:"];

pub(crate) async fn pods_are_as_confined_as_their_manifests_say(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    deployed.settled().await;
    let (shards, sharders) = (deployed.shards().await, deployed.sharders().await);
    assert_eq!((shards.len(), sharders.len()), (4, 2), "{shards:?} {sharders:?}");
    sharders.iter().for_each(|pod| runs_confined(&process(pod, SHARDER)));
    for pod in &shards {
        let (controller, proxy) = (process(pod, CONTROLLER), process(pod, PROXY));
        [&controller, &proxy].into_iter().for_each(|process| runs_confined(process));
        nothing_leads_past_the_proxy(pod, &controller, &proxy);
        only_metrics_listen_beyond_loopback(&proxy);
    }
}

fn runs_confined(process: &Path) {
    let status = read(process, "status");
    for line in CONFINED {
        assert!(status.contains(line), "{line}: {status}");
    }
    let mounts = read(process, "mountinfo");
    // mount, parent, device, root, place, options
    let root = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| fields[4] == "/").unwrap();
    assert!(root[5].split(',').any(|option| option == "ro"), "its file system can be written: {mounts}");
}

/// Not for a client that looks at the service account's folder first, as that of kube-rs does, either.
fn nothing_leads_past_the_proxy(pod: &Pod, controller: &Path, proxy: &Path) {
    let environment = read(controller, "environ");
    for wanted in ["KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=6443"] {
        assert!(environment.split('\0').any(|variable| variable == wanted), "{environment}");
    }
    let token = read(controller, &format!("root/{SERVICE_ACCOUNT}/token"));
    assert_eq!(token, read(proxy, "root/var/run/ringside/token"), "what the proxy accepts");
    let own = read(proxy, &format!("root/{SERVICE_ACCOUNT}/token"));
    assert!(own.matches('.').count() == 2 && own != token, "the proxy's is a JSON Web Token");
    let mounts = &pod.spec.as_ref().unwrap().containers[0].volume_mounts;
    // Of the volume with the token the file without it, for injectors that look for such a mount.
    let is_without_token = |mount: &VolumeMount| match mount.name.as_str() {
        "ringside-token" => mount.sub_path.as_deref() == Some("namespace"),
        name => name == "ringside",
    };
    assert!(mounts.iter().flatten().all(is_without_token), "{mounts:?}");
}

/// Its clients' way in is for the pod alone, and its probes run inside.
fn only_metrics_listen_beyond_loopback(proxy: &Path) {
    /// `TCP_LISTEN`.
    const LISTEN: &str = "0A";
    let open = fs::read_dir(proxy.join("fd")).unwrap().filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    let open: Vec<_> = open.map(|link| link.to_string_lossy().into_owned()).collect();
    let sockets = read(proxy, "net/tcp") + &read(proxy, "net/tcp6");
    // number, local address, remote address, state, queues, timer, retransmits, user, timeout, inode
    let sockets = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let is_own =
        |fields: &Vec<&str>| fields.get(3) == Some(&LISTEN) && open.contains(&format!("socket:[{}]", fields[9]));
    let listening: Vec<_> = sockets.filter(is_own).map(|fields| fields[1].to_owned()).collect();
    let is_loopback = |address: &&String| LOOPBACK.iter().any(|begin| address.starts_with(begin));
    let (loopback, beyond): (Vec<_>, Vec<_>) = listening.iter().partition(is_loopback);
    assert!(loopback.len() == 1 && beyond.len() == 1 && beyond[0].ends_with(METRICS), "{listening:?}");
}

/// The process of a pod that runs that program.
pub(super) fn process(pod: &Pod, program: &str) -> PathBuf {
    let group = format!("/pod{}/", pod.uid().unwrap());
    let all = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let processes: Vec<_> = all.filter(|path| read(path, "cgroup").contains(&group)).collect();
    let found = processes.iter().find(|process| read(process, "comm").trim_end() == program);
    found.unwrap_or_else(|| panic!("{} runs no {program}: {processes:?}", pod.name_any())).clone()
}

/// Empty when the process is gone.
fn read(process: &Path, file: &str) -> String {
    fs::read_to_string(process.join(file)).unwrap_or_default()
}
