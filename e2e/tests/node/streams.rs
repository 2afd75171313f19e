//! What is no request and answer but a stream both ways, to and from a real pod, through the proxy: by SPDY and by WebSocket, as
//! kubectl speaks them. Everything is kept that passes, before the proxy and behind it, and compared.

mod ends;
mod kubectl;
mod logs;
mod passage;
mod way;

use std::{
    fs,
    path::PathBuf,
    process::Output,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures::future::join;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use ringside_e2e::{
    compatibility::{Outcome, Row, Section, Task, client::Endpoint, table},
    eventually::eventually,
    live::Group,
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

use self::way::{Protocol, Way, show};
use crate::{Fixture, case};

/// Generous for a loaded machine: all that is waited for here takes a second or two.
const DEADLINE: Duration = Duration::from_secs(60);

/// The name of a pod that serves on two ports.
const POD: &str = "streams";

/// Where the pod sends back what it is sent.
const ECHO: u16 = 7000;

/// Where the pod sends [`MUCH`] and closes.
const GIVE: u16 = 7001;

/// Many times what any buffer on the way holds.
const MUCH: usize = 8 << 20;

/// The ring, and what the pods of its proxies may do.
const MANIFESTS: &str = include_str!("streams.yaml");

/// Where the pods are that are a ring's.
const FENCED: &str = "streams-fenced";

/// Whom the proxies' pods are.
const ACCOUNT: &str = "streams";

/// What is written of the page about compatibility: behaviour and representation, of each case that compares.
const SECTION: Section = Section { name: "pods", test: "in_pods -- --include-ignored" };
const BY_KUBECTL: &str = "SPDY, WebSocket";
const BY_HTTP: &str = "HTTP/1.1, HTTP/2";
const ROWS: [(&str, &str); 6] = [
    ("exec: 8 MiB both ways at once, the end of input, output and exit code", BY_KUBECTL),
    ("attach: input and output", BY_KUBECTL),
    (
        "port-forward of two ports: 8 MiB both ways on each of two connections, and 8 MiB from the pod, which then closes",
        BY_KUBECTL,
    ),
    ("a session ends in the pod when its client is gone", BY_KUBECTL),
    ("log: whole, followed to its end, the last lines, the first bytes with the time of each line", BY_HTTP),
    ("log, followed while it is written: each line before the next one is written", BY_HTTP),
];

/// The cases.
pub(crate) fn group() -> Group {
    let cases = [
        case!(kubectl::exec_passes_both_ways),
        case!(kubectl::attach_passes_both_ways),
        case!(kubectl::port_forward_passes_both_ways),
        case!(ends::a_session_ends_with_its_client),
        case!(ends::a_session_ends_with_the_lease),
        case!(logs::a_log_is_read_as_without_the_proxy),
        case!(logs::a_line_comes_when_it_is_written),
    ];
    crate::group("streams", cases).settles(settle)
}

/// Compares the page with what was seen, or writes it.
fn settle() -> Result<(), String> {
    let row = |(behaviour, representation): (&str, &str)| Row {
        behaviour: behaviour.to_owned(),
        representation: representation.to_owned(),
        outcome: Outcome::Same,
    };
    SECTION.settle(&table(&ROWS.map(row)), Task::of_process()).map_err(|error| error.to_string())
}

/// The proxies and the pods of all these cases.
pub(crate) struct Streams {
    kubectl: PathBuf,
    /// Before the API server: keeps what the proxies send.
    door: Relay,
    /// The API server itself, asked by the pod of the proxy.
    direct: Endpoint,
    proxy: Proxy,
    /// Of a ring of pods, in a namespace of their own: each session passes the fence.
    fenced: Proxy,
    sessions: AtomicUsize,
    folder: Folder,
}

/// A proxy with the identity and the permissions of a sidecar. Gone when dropped.
struct Proxy {
    name: &'static str,
    running: proxy::Proxy,
    /// As the controller beside it asks it.
    endpoint: Endpoint,
    /// How the API server sees it: asked at the door, by the pod.
    as_seen: Endpoint,
    _folder: Folder,
}

/// A namespace with pods, and the proxy by which they are reached.
struct Site<'a> {
    namespace: &'static str,
    proxy: &'a Proxy,
}

/// What all these cases share, started by the first that asks.
async fn of(fixture: &Fixture) -> Arc<Streams> {
    fixture.streams.get(async || Streams::start(fixture).await.unwrap()).await
}

impl Streams {
    async fn start(fixture: &Fixture) -> Result<Self> {
        // With it the resource ClusterRing is there, and the roles of proxies.
        fixture.deployed().await;
        let control_plane = fixture.node.control_plane();
        manifests::apply(&fixture.node.client(), &manifests::parse(MANIFESTS)?).await?;
        for namespace in ["default", FENCED] {
            let serve = format!("[serve, '{ECHO}', '{GIVE}', '{MUCH}']");
            start_pod(&fixture.node, namespace, POD, (&serve, ""), "Running").await?;
        }
        let door = Relay::start(control_plane, Offer::Both).await?;
        let proxy = Proxy::start(fixture, &door, "streams", "streams-0").await?;
        let fenced = Proxy::start(fixture, &door, "streams-fenced", "streams-fenced-0").await?;
        Ok(Self {
            kubectl: built(toolchain::kubectl).await?,
            door,
            direct: Endpoint::new(control_plane.address(), &control_plane.ca_path(), proxy.as_seen.token())?,
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

    /// Pods without a ring, and those of a ring.
    fn sites(&self) -> [Site<'_>; 2] {
        [Site { namespace: "default", proxy: &self.proxy }, Site { namespace: FENCED, proxy: &self.fenced }]
    }

    /// A way through a proxy by each protocol.
    async fn ways(&self, fixture: &Fixture, proxy: &Proxy) -> [Way; 2] {
        let way = |protocol| self.way(fixture, proxy, protocol);
        [way(Protocol::Spdy).await, way(Protocol::WebSocket).await]
    }

    async fn way(&self, fixture: &Fixture, proxy: &Proxy, protocol: Protocol) -> Way {
        let (mark, control_plane, endpoint) = (self.mark(), fixture.node.control_plane(), &proxy.endpoint);
        let ca = proxy.running.access.join("ca.crt");
        let front = Relay::marking(control_plane, endpoint.address(), &ca, &mark).await.unwrap();
        let kubeconfig = self.folder.path().join(format!("{mark}.kubeconfig"));
        control_plane.write_kubeconfig(&kubeconfig, endpoint.token(), "default").unwrap();
        let text = fs::read_to_string(&kubeconfig).unwrap();
        fs::write(&kubeconfig, text.replace(&control_plane.url(), &front.url())).unwrap();
        Way { kubectl: self.kubectl.clone(), kubeconfig, protocol, mark, front }
    }

    /// Runs kubectl by both protocols at once, compares all that passed, and returns what both have said and how they ended.
    async fn run(&self, fixture: &Fixture, site: &Site<'_>, arguments: &[&str], stdin: &[u8]) -> Output {
        let ways = self.ways(fixture, site.proxy).await;
        let (spdy, websocket) = join(ways[0].run(arguments, stdin), ways[1].run(arguments, stdin)).await;
        assert!(spdy == websocket, "SPDY: {}\nbut WebSocket: {}", show(&spdy), show(&websocket));
        self.assert_alike(site.proxy, &ways).await;
        spdy
    }
}

impl Proxy {
    async fn start(fixture: &Fixture, door: &Relay, ring: &str, name: &'static str) -> Result<Self> {
        let (folder, control_plane) = (Folder::create("streams")?, fixture.node.control_plane());
        let identity = ShardIdentity::create(control_plane, "default", ACCOUNT, name, folder.path()).await?;
        let kubeconfig = fs::read_to_string(identity.kubeconfig())?;
        let read: Value = serde_json::from_str(&kubeconfig)?;
        let token = read["users"][0]["user"]["token"].as_str().context("a token")?;
        let to_door = folder.path().join("door.kubeconfig");
        fs::write(&to_door, kubeconfig.replace(&control_plane.url(), &door.url()))?;
        let mut command = std::process::Command::new(&fixture.programs.proxy);
        // Whole bodies are compared, of Pods of a ring too.
        command.arg("--show-labels");
        command.arg("--kubeconfig").arg(&to_door);
        let running =
            proxy::Proxy::start(command, Identity { ring, shard: name, namespace: "default" }, folder.path())?;
        running.until_ready().await?;
        let local = fs::read_to_string(running.access.join("token"))?;
        let address = ([127, 0, 0, 1], running.port).into();
        let endpoint = Endpoint::new(address, &running.access.join("ca.crt"), local.trim())?;
        let as_seen = Endpoint::new(door.address(), &control_plane.ca_path(), token)?;
        Ok(Self { name, running, endpoint, as_seen, _folder: folder })
    }
}

/// Runs a pod of the guest, and waits until it is in this phase.
async fn start_pod(
    node: &Node,
    namespace: &str,
    name: &str,
    (arguments, more): (&str, &str),
    phase: &str,
) -> Result<()> {
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
        let now = pods.get(name).await.map_err(|error| error.to_string())?.status.and_then(|status| status.phase);
        if now.as_deref() == Some(phase) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await?;
    Ok(())
}

/// What the guest gives.
fn filling(count: usize) -> Vec<u8> {
    let mut block = Sha256::digest([]);
    let mut bytes = Vec::with_capacity(count + block.len());
    while bytes.len() < count {
        bytes.extend_from_slice(&block);
        block = Sha256::digest(block);
    }
    bytes.truncate(count);
    bytes
}
