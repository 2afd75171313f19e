//! What is open to more than the pod is said in the log.

use std::{fs, process::Command};

use ringside_e2e::{
    eventually::eventually,
    ports::free_port,
    process::Process,
    shard_identity::ShardIdentity,
    toolchain::{self, Environment},
};

use super::{DEADLINE, World, elsewhere::NAMESPACE};

const SHARD: &str = "shard-exposed";
/// Of no ring that there is: it only listens.
const RING: &str = "nowhere";
const SAID: &str = "is not a loopback address";

pub(crate) async fn warned_of(world: &World) {
    let (control_plane, dir) = (world.system.control_plane(), world.system.dir());
    let identity = ShardIdentity::create(control_plane, NAMESPACE, "website-controller", SHARD, dir).await.unwrap();
    let access = dir.join(format!("{SHARD}.access"));
    fs::create_dir_all(&access).unwrap();
    let [listen, admin] = [free_port().unwrap(), free_port().unwrap()].map(|port| format!("0.0.0.0:{port}"));
    let mut command = Command::new(toolchain::ringside(&Environment::of_process()).unwrap().proxy);
    command.args(["--ring", RING, "--shard-name", SHARD, "--lease-namespace", NAMESPACE]);
    command.arg("--kubeconfig").arg(identity.kubeconfig()).arg("--access-dir").arg(&access);
    command.args([format!("--listen={listen}"), format!("--admin-listen={admin}")]);
    let process = Process::spawn(SHARD, &command, &dir.join(format!("{SHARD}-proxy.log"))).unwrap();
    let sentences = [
        format!(
            "--listen {listen} {SAID}: a client that reaches it and has the token of the access folder acts with this pod's"
        ),
        format!("--admin-listen {admin} {SAID}: a client that reaches it can read the metrics"),
    ];
    eventually("both are warned of", DEADLINE, || async {
        process.check_running().map_err(|error| error.to_string())?;
        let log = fs::read_to_string(process.log()).map_err(|error| error.to_string())?;
        let warned = |sentence: &String| log.lines().any(|line| line.contains("WARN") && line.contains(sentence));
        if sentences.iter().all(warned) { Ok(()) } else { Err(log) }
    })
    .await
    .unwrap();
    // Nothing is said of one that only its pod can reach.
    let log = fs::read_to_string(world.elsewhere.0.process.log()).unwrap();
    assert!(!log.is_empty() && !log.contains(SAID), "{log}");
}
