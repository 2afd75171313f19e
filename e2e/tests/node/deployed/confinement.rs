//! What the manifests say about privileges holds for the processes that run.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::{EXAMPLE, IN_CLUSTER};
use crate::Fixture;

/// In `/proc/PID/status`: the user, no way to more privileges, no capabilities, and a seccomp filter.
const CONFINED: [&str; 5] =
    ["Uid:\t65532\t65532", "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "Seccomp:\t2"];

/// As the kernel shortens them.
pub(crate) const PROXY: &str = "ringside-proxy";
const CONTROLLER: &str = "website-operato";

const SERVICE_ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";

pub(crate) async fn runs_as_confined_as_its_manifest_says(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    deployed.complete().await.unwrap();
    let mut pods = deployed.pods(EXAMPLE).await;
    pods.extend(deployed.pods(IN_CLUSTER).await);
    let sharders = deployed.sharders().await;
    assert_eq!((pods.len(), sharders.len()), (4, 2), "{pods:?} {sharders:?}");
    for (pods, programs) in [(pods, [PROXY, CONTROLLER].as_slice()), (sharders, &["ringside-sharde"])] {
        for pod in pods {
            programs.iter().for_each(|program| check(&process(&pod, program)));
        }
    }
}

/// Not for a client that looks at the service account's folder first, as that of kube-rs does, either.
pub(crate) async fn nothing_leads_the_controller_past_the_proxy(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    deployed.settled().await;
    for deployment in [EXAMPLE, IN_CLUSTER] {
        for pod in deployed.pods(deployment).await {
            let (controller, proxy) = (process(&pod, CONTROLLER), process(&pod, PROXY));
            let environment = read(&controller, "environ");
            let variables: Vec<_> =
                environment.split('\0').filter(|it| it.starts_with("KUBERNETES_SERVICE_")).collect();
            for wanted in ["KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=6443"] {
                assert!(variables.contains(&wanted), "{variables:?}");
            }
            let token = read(&controller, &format!("root/{SERVICE_ACCOUNT}/token"));
            assert_eq!(token, read(&proxy, "root/var/run/ringside/token"), "what the proxy accepts");
            let own = read(&proxy, &format!("root/{SERVICE_ACCOUNT}/token"));
            assert!(own.matches('.').count() == 2 && own != token, "the proxy's is a JSON Web Token");
            let mounts = &pod.spec.as_ref().unwrap().containers[0].volume_mounts;
            let others: Vec<_> = mounts.iter().flatten().filter(|mount| mount.name != "ringside").collect();
            assert!(others.is_empty(), "{others:?}");
        }
    }
}

/// Its clients' way in is for the pod alone, and its probes run inside.
pub(crate) async fn only_the_metrics_of_the_proxy_listen_beyond_loopback(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    deployed.settled().await;
    for deployment in [EXAMPLE, IN_CLUSTER] {
        for pod in deployed.pods(deployment).await {
            let listening = listening(&process(&pod, PROXY));
            // The way in, and probes and metrics.
            assert_eq!(listening.len(), 2, "{}: {listening:?}", pod.name_any());
            let is_beyond = |address: &&String| !LOOPBACK.iter().any(|begin| address.starts_with(begin));
            let beyond: Vec<_> = listening.iter().filter(is_beyond).collect();
            let is_metrics = |address: &&String| address.ends_with(METRICS);
            assert!(beyond.len() == 1 && beyond.iter().all(is_metrics), "{}: {listening:?}", pod.name_any());
        }
    }
}

/// The port of the example's metrics, 6444, as the kernel writes it.
const METRICS: &str = ":192C";
/// 127.0.0.1 and ::1, as the kernel writes them on machines that put the lowest byte first.
const LOOPBACK: [&str; 2] = ["0100007F:", "00000000000000000000000001000000:"];

/// Where a process listens, by what the kernel says of the sockets that it has open.
fn listening(process: &Path) -> Vec<String> {
    /// `TCP_LISTEN`.
    const LISTEN: &str = "0A";
    let open = fs::read_dir(process.join("fd")).unwrap().filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    let open: Vec<_> = open.map(|link| link.to_string_lossy().into_owned()).collect();
    let sockets = read(process, "net/tcp") + &read(process, "net/tcp6");
    // number, local address, remote address, state, queues, timer, retransmits, user, timeout, inode
    let sockets = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = sockets.filter(|fields| fields.get(3) == Some(&LISTEN));
    let own = listening.filter(|fields| open.contains(&format!("socket:[{}]", fields[9])));
    own.map(|fields| fields[1].to_owned()).collect()
}

fn check(process: &Path) {
    let status = read(process, "status");
    for line in CONFINED {
        assert!(status.contains(line), "{line}: {status}");
    }
    let mounts = read(process, "mountinfo");
    // mount, parent, device, root, place, options
    let root = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| fields[4] == "/").unwrap();
    assert!(root[5].split(',').any(|option| option == "ro"), "its file system can be written: {mounts}");
}

/// The process of a pod that runs that program.
pub(crate) fn process(pod: &Pod, program: &str) -> PathBuf {
    let processes = processes(&pod.uid().unwrap());
    let found = processes.iter().find(|process| read(process, "comm").trim_end() == program);
    found.unwrap_or_else(|| panic!("{} runs no {program}: {processes:?}", pod.name_any())).clone()
}

/// The processes in a pod's cgroup.
fn processes(uid: &str) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| read(path, "cgroup").contains(&format!("/pod{uid}/"))).collect()
}

/// Empty when the process is gone.
fn read(process: &Path, file: &str) -> String {
    fs::read_to_string(process.join(file)).unwrap_or_default()
}
