//! Clients of two languages, by kubeconfig alone and by the service account's folder alone: each sees its shard.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use kube::{Api, Client, ResourceExt, api::ListParams};
use ringside_e2e::{
    in_cluster,
    system::NAMESPACE,
    toolchain::{self, built},
    website::Website,
};
use ringside_ring::{RingLabels, ShardName};
use tokio::time::timeout;

use super::{DEADLINE, OBJECTS, World, elsewhere};

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

/// A shard, as its clients reach it, and what they see there.
struct Place {
    kubeconfig: PathBuf,
    access: PathBuf,
    address: SocketAddr,
    namespace: &'static str,
    /// What selects the shard's objects.
    owned: String,
}

impl Place {
    /// A shard whose pod is in `default`, and one whose pod is not.
    fn all(world: &World) -> [Self; 2] {
        let shard = world.system.shards().next().unwrap();
        let name: ShardName = shard.name().parse().unwrap();
        let (proxy, owned) = &world.elsewhere;
        [
            Self {
                kubeconfig: shard.kubeconfig(),
                access: shard.access().to_owned(),
                address: shard.address(),
                namespace: NAMESPACE,
                owned: RingLabels::of(&world.ring).owned_by(&name),
            },
            Self {
                kubeconfig: proxy.kubeconfig(),
                access: proxy.access.clone(),
                address: ([127, 0, 0, 1], proxy.port).into(),
                namespace: elsewhere::NAMESPACE,
                owned: owned.clone(),
            },
        ]
    }

    fn by_kubeconfig(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("KUBECONFIG", &self.kubeconfig);
        command
    }

    fn in_container(&self, program: &Path) -> Command {
        in_cluster::command(program, &self.access, self.address)
    }
}

pub(crate) async fn kubectl_by_kubeconfig(world: &World) {
    for place in Place::all(world) {
        let command = with_arguments_of_kubectl(world, place.by_kubeconfig(&kubectl().await));
        sees_its_shard(world, &place, command).await;
    }
}

pub(crate) async fn kubectl_in_cluster(world: &World) {
    for place in Place::all(world) {
        let command = with_arguments_of_kubectl(world, place.in_container(&kubectl().await));
        sees_its_shard(world, &place, command).await;
    }
}

pub(crate) async fn kube_rs_by_kubeconfig(world: &World) {
    for place in Place::all(world) {
        let mut command = place.by_kubeconfig(&this_program());
        command.arg(KUBE_RS);
        sees_its_shard(world, &place, command).await;
    }
}

pub(crate) async fn kube_rs_in_cluster(world: &World) {
    for place in Place::all(world) {
        let mut command = place.in_container(&this_program());
        command.arg(KUBE_RS);
        sees_its_shard(world, &place, command).await;
    }
}

/// controller-runtime with all that it does: discovery, leader election, watches, writes.
pub(crate) async fn operators_in_cluster(world: &World) {
    let websites: Api<Website> = Api::namespaced(world.system.control_plane().client(), NAMESPACE);
    let done = websites.list(&ListParams::default()).await.unwrap();
    let workers: BTreeSet<_> = done.iter().map(|it| it.status.clone().unwrap_or_default().reconciled_by).collect();
    assert_eq!(workers, world.system.shards().map(|shard| shard.instance().to_owned()).collect());
    for shard in world.system.shards() {
        let environment = std::fs::read_to_string(format!("/proc/{}/environ", shard.operator().id())).unwrap();
        let names: Vec<_> = environment.split_terminator('\0').filter_map(|pair| pair.split('=').next()).collect();
        assert_eq!(names, ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"]);
    }
}

async fn kubectl() -> PathBuf {
    built(toolchain::kubectl).await.unwrap()
}

fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn with_arguments_of_kubectl(world: &World, mut command: Command) -> Command {
    command.args(["get", "websites", "--output=name", "--cache-dir"]).arg(world.system.dir().join("kubectl-cache"));
    command
}

/// Runs a client that lists all Websites of its own namespace, and compares what it saw with what the API server knows.
async fn sees_its_shard(world: &World, place: &Place, client: Command) {
    let output = timeout(DEADLINE, tokio::process::Command::from(client).kill_on_drop(true).output());
    let output = output.await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let seen: BTreeSet<_> = lines.lines().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect();

    let owned = ListParams::default().labels(&place.owned);
    let websites: Api<Website> = Api::namespaced(world.system.control_plane().client(), place.namespace);
    let owned: BTreeSet<_> = websites.list(&owned).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(seen, owned);
    assert!((1..OBJECTS).contains(&seen.len()), "{seen:?} is no share");
}
