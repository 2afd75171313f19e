//! A real node: kubelet, containerd, scheduler and kube-proxy beside a control plane, so that pods run.
//!
//! Everything is in a network of its own, and what runs pods in mount and process namespaces and a cgroup of its own as
//! well: several stand side by side, and of each nothing is left when its owner ends. It needs root, and no container
//! engine or registry.

mod commands;
mod image;
mod images;
mod namespaces;
mod requirements;

use std::{
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{Api, Client};

use self::{
    commands::Layout,
    images::Archive,
    namespaces::{ADDRESS, Namespaces},
};
pub use self::{images::GUEST, requirements::Requirements};
use crate::{
    control_plane::{self, ControlPlane, NODE, START_DEADLINE},
    eventually::eventually,
    files::failed,
    process::{Cgroup, Folder, Process, keep_logs},
    toolchain::{self, Environment, NodePrograms, say},
};

/// Unpacking an image takes about a second; a loaded machine needs longer.
const IMPORT_DEADLINE: Duration = Duration::from_secs(60);

/// A running node with its control plane.
pub struct Node {
    // Dropped in this order: the kubelet first, which keeps pods alive, before the pods, which end with the namespaces; the
    // cgroup and the folder once no process uses them.
    _processes: Vec<Process>,
    control_plane: ControlPlane,
    ground: Ground,
    layout: Layout,
}

/// What is there before the node.
struct Ground {
    namespaces: Namespaces,
    archives: Vec<Archive>,
    programs: NodePrograms,
    kubectl: PathBuf,
    cni_plugins: PathBuf,
    cgroup: Cgroup,
    folder: Folder,
}

/// Runs `work` beside a node, and ends the node after it. The thread that calls this stays in the network of the node, and
/// so does everything that it starts: it has to be one that has not started others yet.
///
/// The first time on a machine this builds the programs of the node and of its images.
pub fn with_node<T>(options: control_plane::Options, work: impl AsyncFnOnce(Node) -> T) -> anyhow::Result<T> {
    let requirements = Requirements::check()?;
    let ground = Ground::prepare(requirements)?;
    ground.namespaces.enter_network()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        say(format_args!("starting a node, 10 to 20 s"));
        Ok(work(Node::start(ground, options).await?).await)
    })
}

impl Ground {
    /// Blocks, for minutes where something has to be built.
    fn prepare(requirements: Requirements) -> anyhow::Result<Self> {
        let environment = Environment::of_process();
        // All that goes into the network of the node is built before: nothing is downloaded from there.
        toolchain::control_plane(&environment)?;
        toolchain::kube_controller_manager(&environment)?;
        let kubectl = toolchain::kubectl(&environment)?;
        let programs = toolchain::node(&environment)?;
        let folder = Folder::create("node").map_err(failed("create a folder in", &std::env::temp_dir()))?;
        let archives = images::pack(&environment, folder.path())?;
        // As unique as the folder, and easy to find from it.
        let name = folder.path().file_name().unwrap_or_default().to_string_lossy();
        let cgroup = Cgroup::create(&name).context("make a cgroup")?;
        let namespaces = Namespaces::create(folder.path())?;
        Ok(Self { namespaces, archives, programs, kubectl, cni_plugins: requirements.cni, cgroup, folder })
    }
}

impl Node {
    async fn start(ground: Ground, options: control_plane::Options) -> anyhow::Result<Self> {
        let options = control_plane::Options { node_address: Some(ADDRESS), controller_manager: true, ..options };
        let control_plane = ControlPlane::start(options).await?;
        let layout = Layout {
            dir: ground.folder.path().to_owned(),
            admin: control_plane.kubeconfig_path(),
            cni_plugins: ground.cni_plugins.clone(),
            cgroup: ground.cgroup.name().to_owned(),
        };
        layout.write()?;
        layout.write_kubectl(&ground.namespaces, &ground.kubectl)?;
        control_plane.write_kubeconfig(&layout.kubelet_kubeconfig(), control_plane.node_token(), "default")?;
        let (namespaces, programs) = (&ground.namespaces, &ground.programs);
        let spawn = |name: &str, command: &Command| spawn(&layout, name, command);
        let containerd = spawn("containerd", &commands::containerd(namespaces, &layout))?;
        let scheduler = spawn("kube-scheduler", &commands::scheduler(namespaces, programs, &layout))?;
        let kube_proxy = spawn("kube-proxy", &commands::kube_proxy(namespaces, programs, &layout))?;
        until_listening(&containerd, &layout.containerd_socket()).await?;
        for archive in &ground.archives {
            import(&ground, &layout, archive).await?;
        }
        let kubelet = spawn("kubelet", &commands::kubelet(namespaces, programs, &layout))?;
        let processes = vec![kubelet, containerd, scheduler, kube_proxy];
        until_ready(&control_plane.client(), &processes).await?;
        Ok(Self { _processes: processes, control_plane, ground, layout })
    }

    /// The control plane that it belongs to.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// A client with all rights.
    pub fn client(&self) -> Client {
        self.control_plane.client()
    }

    /// The folder with its data and logs.
    pub fn dir(&self) -> &Path {
        &self.layout.dir
    }

    /// A kubectl for a caller that is not in the network of the node: it goes there, and has all rights.
    pub fn kubectl(&self) -> PathBuf {
        self.layout.kubectl()
    }

    /// Copies the logs of all processes and pods to a folder that stays.
    pub fn keep_logs(&self) -> io::Result<Option<PathBuf>> {
        // Links with the names of pods and containers, which the kubelet makes for collectors of logs.
        let pods = self.ground.namespaces.outside(Path::new("/var/log/containers"));
        keep_logs(&[self.dir(), self.control_plane.dir(), &pods])
    }
}

fn spawn(layout: &Layout, name: &str, command: &Command) -> anyhow::Result<Process> {
    Ok(Process::spawn(name, command, &layout.file(&format!("{name}.log")))?)
}

async fn until_listening(process: &Process, socket: &Path) -> anyhow::Result<()> {
    eventually("containerd listens", START_DEADLINE, || async {
        match process.check_running() {
            Err(ended) => Ok(Err(ended)),
            Ok(()) => UnixStream::connect(socket).map(|_| Ok(())).map_err(|error| error.to_string()),
        }
    })
    .await??;
    Ok(())
}

async fn import(ground: &Ground, layout: &Layout, archive: &Archive) -> anyhow::Result<()> {
    let process = spawn(layout, "import", &commands::import(&ground.namespaces, layout, &archive.path))?;
    if process.wait(IMPORT_DEADLINE).await?.success() {
        return Ok(());
    }
    bail!("import the image {}:\n{}", archive.reference, process.log_tail())
}

/// Until pods are scheduled on it: it says that it is ready, and its first taint is gone.
async fn until_ready(client: &Client, processes: &[Process]) -> anyhow::Result<()> {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    eventually("the node is ready", START_DEADLINE, || async {
        if let Some(ended) = processes.iter().find_map(|process| process.check_running().err()) {
            return Ok(Err(ended));
        }
        let node = nodes.get(NODE).await.map_err(|error| error.to_string())?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        if ready && taints.is_empty() { Ok(Ok(())) } else { Err(format!("{conditions:?} {taints:?}")) }
    })
    .await??;
    Ok(())
}
