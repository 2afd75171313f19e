//! What is no request and answer but a stream both ways, to and from a real pod: with the proxy and without it, by SPDY and
//! by WebSocket, as kubectl and other clients speak them. Of each way everything is kept that passed, and compared.

pub(crate) mod attach;
pub(crate) mod by_hand;
pub(crate) mod ends;
pub(crate) mod exec;
pub(crate) mod logs;
mod passage;
pub(crate) mod port_forward;
pub(crate) mod terminal;
mod way;

use std::{
    fs,
    ops::Deref,
    path::PathBuf,
    process::Output,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use ringside_e2e::{
    compatibility::client::Endpoint,
    control_plane::ControlPlane,
    eventually::eventually,
    manifests,
    node::{GUEST, Node},
    process::Folder,
    proxy::{self, Identity},
    relay::{Offer, Relay},
    shard_identity::ShardIdentity,
    toolchain::{self, built},
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::RwLockReadGuard;

pub(crate) use self::way::Way;
use self::way::{Protocol, show};
use crate::Shared;

/// Generous for a loaded machine: all that is waited for here takes a second or two.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The name of a pod that serves on three ports.
pub(crate) const POD: &str = "streams";

/// Where the pod sends back what it is sent.
pub(crate) const ECHO: u16 = 7000;

/// Where the pod sends [`MUCH`] and closes.
pub(crate) const GIVE: u16 = 7001;

/// Where the pod takes what it is sent, and says so once no more will come.
pub(crate) const TAKE: u16 = 7002;

/// Many times what any buffer on the way holds.
pub(crate) const MUCH: usize = 8 << 20;

/// The ring, and what the pods of its proxies may do.
const MANIFESTS: &str = include_str!("streams.yaml");

/// Where the pods are that are a ring's.
const FENCED: &str = "streams-fenced";

/// Whom the proxies' pods are.
const ACCOUNT: &str = "streams";

/// Who answers as an API server does.
struct Server {
    name: &'static str,
    /// Who asks is the proxy's pod, in both cases.
    endpoint: Endpoint,
    ca: PathBuf,
}

/// The proxy and the pod of all these cases.
pub(crate) struct Streams {
    kubectl: PathBuf,
    /// Before the API server: keeps what the proxies send.
    door: Relay,
    /// The API server itself.
    direct: Server,
    pub(crate) proxy: Proxy,
    /// Of a ring of pods, in a namespace of their own: each session passes the fence.
    fenced: Proxy,
    sessions: AtomicUsize,
    folder: Folder,
}

/// A proxy with the identity and the permissions of a sidecar. Gone when dropped.
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    running: proxy::Proxy,
    /// Who asks is the controller beside it.
    server: Server,
    /// How the API server sees it: asked at the door, by the pod.
    as_seen: Endpoint,
    _folder: Folder,
}

impl Streams {
    pub(crate) async fn start(shared: &Shared) -> Result<Self> {
        // With it the resource ClusterRing is there, and the roles of proxies.
        let _: &crate::Deployed = shared.deployed().await;
        let control_plane = shared.node.control_plane();
        manifests::apply(&shared.node.client(), &manifests::parse(MANIFESTS)?).await?;
        start_pod(&shared.node, POD, "", &format!("[serve, '{ECHO}', '{GIVE}', '{MUCH}', '{TAKE}']")).await?;
        let door = Relay::start(control_plane, Offer::Both).await?;
        start_pod_in(&shared.node, FENCED, POD, "", &format!("[serve, '{ECHO}', '{GIVE}', '{MUCH}', '{TAKE}']"))
            .await?;
        let proxy = Proxy::start(shared, &door, "streams", "streams-0").await?;
        let fenced = Proxy::start(shared, &door, "streams-fenced", "streams-fenced-0").await?;
        let (address, ca) = (control_plane.url().trim_start_matches("https://").parse()?, control_plane.ca_path());
        let endpoint = Endpoint::new(address, &ca, proxy.as_seen.token())?;
        Ok(Self {
            kubectl: built(toolchain::kubectl).await?,
            door,
            direct: Server { name: "directly", endpoint, ca },
            proxy,
            fenced,
            sessions: AtomicUsize::new(0),
            folder: Folder::create("ways")?,
        })
    }

    /// One that no other session has.
    fn mark(&self) -> String {
        format!("streams-{}", self.sessions.fetch_add(1, Ordering::Relaxed))
    }
}

impl Proxy {
    async fn start(shared: &Shared, door: &Relay, ring: &str, name: &'static str) -> Result<Self> {
        let (folder, control_plane) = (Folder::create("streams")?, shared.node.control_plane());
        let identity = ShardIdentity::create(control_plane, "default", ACCOUNT, name, folder.path()).await?;
        let kubeconfig = fs::read_to_string(identity.kubeconfig())?;
        let read: Value = serde_json::from_str(&kubeconfig)?;
        let token = read["users"][0]["user"]["token"].as_str().context("a token")?;
        let to_door = folder.path().join("door.kubeconfig");
        fs::write(&to_door, kubeconfig.replace(&control_plane.url(), &door.url()))?;
        let mut command = std::process::Command::new(&shared.programs.proxy);
        command.arg("--kubeconfig").arg(&to_door);
        let running =
            proxy::Proxy::start(command, Identity { ring, shard: name, namespace: "default" }, folder.path())?;
        running.until_ready().await?;
        let ca = running.access.join("ca.crt");
        let local = fs::read_to_string(running.access.join("token"))?;
        let endpoint = Endpoint::new(([127, 0, 0, 1], running.port).into(), &ca, local.trim())?;
        let server = Server { name: "through the proxy", endpoint, ca };
        let as_seen = Endpoint::new(door.address(), &control_plane.ca_path(), token)?;
        Ok(Self { name, running, server, as_seen, _folder: folder })
    }
}

impl Deref for Proxy {
    type Target = proxy::Proxy;

    fn deref(&self) -> &proxy::Proxy {
        &self.running
    }
}

/// The fixture, started by the first case that asks; while a case has it the kubelet is not restarted.
pub(crate) struct Held<'a> {
    streams: &'a Streams,
    control_plane: &'a ControlPlane,
    _kubelet: RwLockReadGuard<'a, ()>,
}

pub(crate) async fn of(shared: &Shared) -> Held<'_> {
    let kubelet = shared.kubelet.read().await;
    let streams = shared.streams.get(Streams::start(shared)).await;
    Held { streams, control_plane: shared.node.control_plane(), _kubelet: kubelet }
}

impl Deref for Held<'_> {
    type Target = Streams;

    fn deref(&self) -> &Streams {
        self.streams
    }
}

/// Pods, and the proxy by which they are reached.
pub(crate) struct Site<'a> {
    pub(crate) namespace: &'static str,
    proxy: &'a Proxy,
}

impl Held<'_> {
    /// Pods that are nobody's business, and those of a ring.
    pub(crate) fn sites(&self) -> [Site<'_>; 2] {
        [Site { namespace: "default", proxy: &self.proxy }, Site { namespace: FENCED, proxy: &self.fenced }]
    }

    /// By each protocol a pair: without the proxy and with it.
    pub(crate) async fn ways(&self) -> Vec<Way> {
        self.ways_to(&self.sites()[0]).await
    }

    /// The same to other pods.
    async fn ways_to(&self, site: &Site<'_>) -> Vec<Way> {
        let mut ways = Vec::new();
        for protocol in [Protocol::Spdy, Protocol::WebSocket] {
            let mark = self.mark();
            for server in [&self.direct, &site.proxy.server] {
                ways.push(self.way(server, protocol, &mark).await);
            }
        }
        ways
    }

    /// The ways that begin at a proxy.
    pub(crate) async fn ways_by(&self, proxy: &Proxy) -> [Way; 2] {
        let mark = [self.mark(), self.mark()];
        let way = async |protocol, mark| self.way(&proxy.server, protocol, mark).await;
        [way(Protocol::Spdy, &mark[0]).await, way(Protocol::WebSocket, &mark[1]).await]
    }

    async fn way(&self, server: &Server, protocol: Protocol, mark: &str) -> Way {
        let address = server.endpoint.address();
        let front = Relay::marking(self.control_plane, address, &server.ca, mark).await.unwrap();
        // Ports come back: the mark is of this session alone, and so is what kubectl keeps beside the file.
        let kubeconfig = self.folder.path().join(format!("{mark}-{}.kubeconfig", front.address().port()));
        self.control_plane.write_kubeconfig(&kubeconfig, server.endpoint.token(), "default").unwrap();
        let text = fs::read_to_string(&kubeconfig).unwrap();
        fs::write(&kubeconfig, text.replace(&self.control_plane.url(), &front.url())).unwrap();
        let name = format!("{}, {protocol:?}", server.name);
        Way { kubectl: self.kubectl.clone(), kubeconfig, protocol, name, mark: mark.to_owned(), front }
    }

    /// Another proxy, for a case to end.
    pub(crate) async fn another(&self, shared: &Shared, name: &'static str) -> Proxy {
        Proxy::start(shared, &self.door, "streams", name).await.unwrap()
    }

    /// Runs kubectl each way at once, compares all that passed, and returns what all have said and how they ended.
    pub(crate) async fn run(&self, arguments: &[&str], stdin: &[u8]) -> Output {
        self.run_at(&self.sites()[0], arguments, stdin).await
    }

    /// The same for other pods.
    pub(crate) async fn run_at(&self, site: &Site<'_>, arguments: &[&str], stdin: &[u8]) -> Output {
        let ways = self.ways_to(site).await;
        let mut outputs = join_all(ways.iter().map(|way| way.run(arguments, stdin))).await;
        let last = outputs.pop().unwrap();
        for (way, output) in ways.iter().zip(outputs) {
            assert!(output == last, "{}: {}\nbut {}", way.name, show(&output), show(&last));
        }
        self.assert_alike_at(site, &ways).await;
        last
    }
}

/// Runs a pod of the guest, and waits until its container runs, as its state says from then on, or has ended.
pub(crate) async fn start_pod(node: &Node, name: &str, more: &str, arguments: &str) -> Result<()> {
    start_pod_in(node, "default", name, more, arguments).await
}

/// The same in another namespace.
pub(crate) async fn start_pod_in(node: &Node, namespace: &str, name: &str, more: &str, arguments: &str) -> Result<()> {
    let manifest = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{restartPolicy: Never, \
         terminationGracePeriodSeconds: 0, containers: [{{name: guest, image: '{GUEST}', args: {arguments}, {more}}}]}}}}"
    );
    let objects = manifests::parse(&manifest)?;
    // A new namespace has its service account some time later.
    eventually(&format!("the pod {name} is taken"), DEADLINE, || async {
        manifests::apply(&node.client(), &objects).await.map_err(|error| error.to_string())
    })
    .await?;
    let pods: Api<Pod> = Api::namespaced(node.client(), namespace);
    eventually(&format!("the pod {name}"), DEADLINE, || async {
        let status = pods.get(name).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let ready = status.conditions.iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True");
        let ended = status.phase.as_deref() == Some("Succeeded");
        if ready || ended { Ok(()) } else { Err(format!("{:?}", status.phase)) }
    })
    .await?;
    Ok(())
}

/// As the guest says it.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As the guest's `fill` makes them.
pub(crate) fn filling(count: usize) -> Vec<u8> {
    let mut block = Sha256::digest([]);
    let mut bytes = Vec::with_capacity(count + block.len());
    while bytes.len() < count {
        bytes.extend_from_slice(&block);
        block = Sha256::digest(block);
    }
    bytes.truncate(count);
    bytes
}
