//! What is no request and answer but a stream both ways, to and from a real pod: with the proxy and without it, by SPDY and
//! by WebSocket, as kubectl and other clients speak them. Of each way everything is kept that passed, and compared.

mod by_hand;
mod ends;
mod kubectl;
mod logs;
mod passage;
mod way;

use std::{
    fs,
    ops::Deref,
    path::PathBuf,
    process::Output,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures::future::{LocalBoxFuture, join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use ringside_e2e::{
    compatibility::{Outcome, Row, Section, Task, client::Endpoint, table},
    control_plane::ControlPlane,
    eventually::eventually,
    live::{Case, Group},
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

use self::way::{Protocol, Way, show};
use crate::{Fixture, case};

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

/// Where another pod is attached to by hand, in each namespace.
const ATTACHED: &str = "attached-by-hand";

/// What is written of the page about compatibility.
const SECTION: Section = Section { name: "pods", test: "node -- --include-ignored" };

const BY_KUBECTL: &str = "SPDY, WebSocket";
const BY_HTTP: &str = "HTTP/1.1, HTTP/2";

/// A case that compares what passes through the proxy with what passes without it.
struct Compared {
    name: &'static str,
    behaviour: &'static str,
    representation: &'static str,
    run: fn(Arc<Fixture>) -> LocalBoxFuture<'static, ()>,
}

/// Beside those of [`by_hand::STREAMS`].
const COMPARED: [Compared; 7] = [
    Compared {
        name: "exec_by_kubectl",
        behaviour: "exec: 8 MiB both ways at once, the end of input, output and exit code",
        representation: BY_KUBECTL,
        run: |fixture| Box::pin(kubectl::exec(fixture)),
    },
    Compared {
        name: "attach_by_kubectl",
        behaviour: "attach: input and output",
        representation: BY_KUBECTL,
        run: |fixture| Box::pin(kubectl::attach(fixture)),
    },
    Compared {
        name: "port_forward_by_kubectl",
        behaviour: "port-forward of three ports: 8 MiB both ways on each of two connections, 8 MiB from the pod, which then \
                    closes, and the end of the client's half, as the pod sees it",
        representation: BY_KUBECTL,
        run: |fixture| Box::pin(kubectl::port_forward(fixture)),
    },
    Compared {
        name: "a_session_ends_with_its_client",
        behaviour: "a session ends in the pod when its client is gone",
        representation: BY_KUBECTL,
        run: |fixture| Box::pin(ends::with_its_client(fixture)),
    },
    Compared {
        name: "log_by_http",
        behaviour: "log: whole, followed to its end, the last lines, the first bytes with the time of each line",
        representation: BY_HTTP,
        run: |fixture| Box::pin(by_hand::log_by_http(fixture)),
    },
    Compared {
        name: "a_line_comes_when_it_is_written",
        behaviour: "log, followed while it is written: each line before the next one is written",
        representation: BY_HTTP,
        run: |fixture| Box::pin(logs::a_line_comes_when_it_is_written(fixture)),
    },
    Compared {
        name: "log_by_websocket",
        behaviour: "log, followed to its end",
        representation: "WebSocket by hand: binary.k8s.io, base64.binary.k8s.io",
        run: |fixture| Box::pin(by_hand::log_by_websocket(fixture)),
    },
];

/// The cases.
pub(crate) fn group() -> Group {
    let compared = COMPARED
        .into_iter()
        .map(|case| Case::new(case.name, move || Box::pin(async move { (case.run)(crate::fixture().await).await })));
    let by_hand = by_hand::STREAMS.into_iter().map(|stream| {
        Case::new(stream.name, move || Box::pin(async move { stream.run(&*crate::fixture().await).await }))
    });
    let ends = [case!(ends::with_the_proxy), case!(ends::with_the_lease)];
    crate::group("streams", compared.chain(by_hand).chain(ends)).settles(settle)
}

/// Compares the page with what was seen, or writes it.
fn settle() -> Result<(), String> {
    let compared = COMPARED.into_iter().map(|case| (case.behaviour, case.representation.to_owned()));
    let by_hand = by_hand::STREAMS.into_iter().map(|stream| (stream.behaviour, stream.representation()));
    let row = |(behaviour, representation): (&str, _)| Row {
        behaviour: behaviour.to_owned(),
        representation,
        outcome: Outcome::Same,
    };
    let rows: Vec<_> = compared.chain(by_hand).map(row).collect();
    SECTION.settle(&table(&rows), Task::of_process()).map_err(|error| error.to_string())
}

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
    pub(crate) async fn start(fixture: &Fixture) -> Result<Self> {
        // With it the resource ClusterRing is there, and the roles of proxies.
        fixture.deployed().await;
        let control_plane = fixture.node.control_plane();
        manifests::apply(&fixture.node.client(), &manifests::parse(MANIFESTS)?).await?;
        for namespace in ["default", FENCED] {
            let serve = format!("[serve, '{ECHO}', '{GIVE}', '{MUCH}', '{TAKE}']");
            start_pod_in(&fixture.node, namespace, POD, "", &serve).await?;
            start_pod_in(&fixture.node, namespace, ATTACHED, "stdin: true", "[echo]").await?;
        }
        let door = Relay::start(control_plane, Offer::Both).await?;
        let proxy = Proxy::start(fixture, &door, "streams", "streams-0").await?;
        let fenced = Proxy::start(fixture, &door, "streams-fenced", "streams-fenced-0").await?;
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
    streams: Arc<Streams>,
    control_plane: &'a ControlPlane,
    _kubelet: RwLockReadGuard<'a, ()>,
}

pub(crate) async fn of(fixture: &Fixture) -> Held<'_> {
    let kubelet = fixture.kubelet.read().await;
    let streams = fixture.streams.get(async || Streams::start(fixture).await.unwrap()).await;
    Held { streams, control_plane: fixture.node.control_plane(), _kubelet: kubelet }
}

impl Deref for Held<'_> {
    type Target = Streams;

    fn deref(&self) -> &Streams {
        &self.streams
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
    pub(crate) async fn another(&self, fixture: &Fixture, name: &'static str) -> Proxy {
        Proxy::start(fixture, &self.door, "streams", name).await.unwrap()
    }

    /// Runs kubectl each way at once, compares all that passed, and returns what all have said and how they ended.
    async fn run(&self, site: &Site<'_>, arguments: &[&str], stdin: &[u8]) -> Output {
        let ways = self.ways_to(site).await;
        let mut outputs = join_all(ways.iter().map(|way| way.run(arguments, stdin))).await;
        let last = outputs.pop().unwrap();
        for (way, output) in ways.iter().zip(outputs) {
            assert!(output == last, "{}: {}\nbut {}", way.name, show(&output), show(&last));
        }
        self.assert_alike(site, &ways).await;
        last
    }
}

/// Runs a pod of the guest, and waits until its container runs, as its state says from then on, or has ended.
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
