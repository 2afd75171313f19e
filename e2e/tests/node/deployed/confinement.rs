//! What the manifests say about privileges holds for the processes that run.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use kube::ResourceExt as _;

use super::{EXAMPLE, IN_CLUSTER};
use crate::Shared;

/// In `/proc/PID/status`: the user, no way to more privileges, no capabilities, and a seccomp filter.
const CONFINED: [&str; 5] =
    ["Uid:\t65532\t65532", "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "Seccomp:\t2"];

pub(crate) async fn runs_as_confined_as_its_manifest_says(shared: Arc<Shared>) {
    let deployed = shared.deployed().await;
    let _alone = deployed.membership.lock().await;
    deployed.settled().await;
    let mut pods = deployed.pods(EXAMPLE).await;
    pods.extend(deployed.pods(IN_CLUSTER).await);
    let sharders = deployed.sharders().await;
    assert!(pods.len() == 4 && sharders.len() == 2);
    for (pods, programs) in [(pods, ["ringside-proxy", "website-operato"].as_slice()), (sharders, &["ringside-sharde"])]
    {
        for pod in pods {
            let processes = processes(&pod.uid().unwrap());
            for program in programs {
                let process = processes.iter().find(|process| read(process, "comm").trim_end() == *program);
                check(process.unwrap_or_else(|| panic!("{} runs no {program}: {processes:?}", pod.name_any())));
            }
        }
    }
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

/// The processes in a pod's cgroup.
fn processes(uid: &str) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| read(path, "cgroup").contains(&format!("/pod{uid}/"))).collect()
}

/// Empty when the process is gone.
fn read(process: &Path, file: &str) -> String {
    fs::read_to_string(process.join(file)).unwrap_or_default()
}
