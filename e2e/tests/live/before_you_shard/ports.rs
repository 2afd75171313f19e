//! Two proxies at one address, as on a node's network.

use std::{fs, process::Command};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use ringside_e2e::{
    ports::free_port,
    process::Process,
    shard_identity::ShardIdentity,
    toolchain::{self, Environment},
};

use super::{DEADLINE, NAME, World};

const SHARD: &str = "shard-on-the-host";

pub(super) async fn taken(world: &World) {
    let dir = world.system.dir();
    let [other, _] = world.shards();
    let control_plane = world.system.control_plane();
    let identity = ShardIdentity::create(control_plane, NAME, "website-controller", SHARD, dir).await.unwrap();
    let access = dir.join(format!("{SHARD}.access"));
    fs::create_dir_all(&access).unwrap();
    let (free, taken) = (format!("127.0.0.1:{}", free_port().unwrap()), other.address().to_string());
    for (listen, admin, flag) in [(&taken, &free, "--listen"), (&free, &taken, "--admin-listen")] {
        let mut command = Command::new(toolchain::ringside(&Environment::of_process()).unwrap().proxy);
        command.args(["--ring", NAME, "--shard-name", SHARD, "--lease-namespace", NAME]);
        command.arg("--kubeconfig").arg(identity.kubeconfig()).arg("--access-dir").arg(&access);
        command.args([format!("--listen={listen}"), format!("--admin-listen={admin}")]);
        let process = Process::spawn(SHARD, &command, &dir.join(format!("{SHARD}{flag}.log"))).unwrap();
        let status = process.wait(DEADLINE).await.unwrap();
        let said = process.log_tail();
        assert!(!status.success(), "{said}");
        assert!(said.contains(&format!("can't listen on {taken} ({flag})")), "{said}");
        assert!(said.contains("choose another address"), "{said}");
    }
    let leases: Api<Lease> = Api::namespaced(world.client(), NAME);
    assert!(leases.get_opt(SHARD).await.unwrap().is_none(), "it is no shard");
    assert!(leases.get_opt(other.name()).await.unwrap().is_some());
}
