//! Clients of two languages, by kubeconfig alone and by the service account's folder alone: each sees its shard.

use std::{collections::BTreeSet, process::Command};

use kube::{Api, Client, ResourceExt, api::ListParams};
use ringside_e2e::{in_cluster, system::System, website::Website};
use tokio::time::timeout;

use super::{DEADLINE, OBJECTS, owned};

/// What this program is told when it is to be a client itself: kube-rs, set up by nothing but its surroundings.
pub(crate) const KUBE_RS: &str = "list-by-kube-rs";

#[allow(clippy::print_stdout, reason = "it is read there")]
pub(crate) async fn list_by_kube_rs() {
    let client = Client::try_default().await.unwrap();
    let websites: Api<Website> = Api::default_namespaced(client);
    for website in websites.list(&ListParams::default()).await.unwrap() {
        println!("{}", website.name_any());
    }
}

pub(crate) async fn kube_rs_by_kubeconfig_sees_the_shard(system: &System) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env_clear().env("KUBECONFIG", system.shards().next().unwrap().kubeconfig());
    sees_its_shard(system, command).await;
}

pub(crate) async fn kube_rs_in_cluster_sees_the_shard(system: &System) {
    let shard = system.shards().next().unwrap();
    let command = in_cluster::command(&std::env::current_exe().unwrap(), shard.access(), shard.address());
    sees_its_shard(system, command).await;
}

/// Runs this program as a client that lists all Websites of its own namespace, and compares what it saw with what the API
/// server knows.
async fn sees_its_shard(system: &System, mut client: Command) {
    client.arg(KUBE_RS);
    let output = timeout(4 * DEADLINE, tokio::process::Command::from(client).kill_on_drop(true).output());
    let output = output.await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let seen: BTreeSet<_> = lines.lines().map(str::to_owned).collect();
    let owned = ListParams::default().labels(&owned(system));
    let owned: BTreeSet<_> = websites(system).list(&owned).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(seen, owned);
    assert!((1..OBJECTS).contains(&seen.len()), "{seen:?} is no share");
}

/// controller-runtime with all that it does: discovery, leader election, watches, writes.
pub(crate) async fn a_go_operator_in_cluster_does_its_work(system: &System) {
    let done = websites(system).list(&ListParams::default()).await.unwrap();
    let workers: BTreeSet<_> = done.iter().map(|it| it.status.clone().unwrap_or_default().reconciled_by).collect();
    assert_eq!(workers, system.shards().map(|shard| shard.instance().to_owned()).collect());
    for shard in system.shards() {
        let environment = std::fs::read_to_string(format!("/proc/{}/environ", shard.operator().id())).unwrap();
        let names: Vec<_> = environment.split_terminator('\0').filter_map(|pair| pair.split('=').next()).collect();
        assert_eq!(names, ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"]);
    }
}

fn websites(system: &System) -> Api<Website> {
    Api::namespaced(system.control_plane().client(), system.namespace())
}
