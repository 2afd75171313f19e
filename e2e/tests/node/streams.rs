//! What is no request and answer but a stream both ways, to and from a real pod: with the proxy and without it, by SPDY and
//! by WebSocket, as kubectl speaks them. All four have to be alike.

pub(crate) mod attach;
pub(crate) mod ends;
pub(crate) mod exec;
pub(crate) mod logs;
pub(crate) mod port_forward;
pub(crate) mod protocols;
pub(crate) mod terminal;

use std::{
    ops::Deref,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::Result;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use ringside_e2e::{
    eventually::eventually,
    manifests,
    node::{GUEST, Node},
    process::Folder,
    proxy::{self, Identity},
};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    sync::RwLockReadGuard,
    time::timeout,
};

use crate::Shared;

/// Generous for a loaded machine: all that is waited for here takes a second or two.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The name of a pod that serves on two ports.
pub(crate) const POD: &str = "streams";

/// Where the pod sends back what it is sent.
pub(crate) const ECHO: u16 = 7000;

/// Where the pod sends [`MUCH`] and closes.
pub(crate) const GIVE: u16 = 7001;

/// Many times what any buffer on the way holds.
pub(crate) const MUCH: usize = 8 << 20;

/// The ring of the proxies: of a resource that nobody here uses.
const RING: &str = "
apiVersion: sharding.timebertt.dev/v1alpha1
kind: ClusterRing
metadata: {name: streams}
spec: {resources: [{group: '', resource: podtemplates}]}
";

/// How kubectl speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Spdy,
    WebSocket,
}

/// A way from kubectl to the pod.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    protocol: Protocol,
    name: String,
}

/// The proxy and the pod of all these cases.
pub(crate) struct Streams {
    kubectl: PathBuf,
    direct: PathBuf,
    pub(crate) proxy: Proxy,
}

/// A proxy with all rights. Gone when dropped.
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    running: proxy::Proxy,
    _folder: Folder,
}

impl Streams {
    pub(crate) async fn start(shared: &Shared) -> Result<Self> {
        // With it the resource ClusterRing is there.
        let _: &crate::Deployed = shared.deployed().await;
        let client = shared.node.client();
        manifests::apply(&client, &manifests::parse(RING)?).await?;
        start_pod(&shared.node, POD, "", &format!("[serve, '{ECHO}', '{GIVE}', '{MUCH}']")).await?;
        Ok(Self {
            kubectl: shared.node.control_plane().kubectl().to_owned(),
            direct: shared.node.control_plane().kubeconfig_path(),
            proxy: Proxy::start(shared, "streams-0").await?,
        })
    }

    /// With and without the proxy, by both protocols.
    pub(crate) fn ways(&self) -> Vec<Way> {
        let proxied = self.proxy.kubeconfig();
        let ways = [("directly", &self.direct), ("through the proxy", &proxied)].map(|(name, kubeconfig)| {
            [Protocol::Spdy, Protocol::WebSocket].map(|protocol| self.way(name, kubeconfig, protocol))
        });
        ways.into_iter().flatten().collect()
    }

    /// The ways that begin at a proxy.
    pub(crate) fn ways_by(&self, proxy: &Proxy) -> [Way; 2] {
        [Protocol::Spdy, Protocol::WebSocket].map(|protocol| self.way(proxy.name, &proxy.kubeconfig(), protocol))
    }

    fn way(&self, name: &str, kubeconfig: &Path, protocol: Protocol) -> Way {
        let (kubectl, kubeconfig) = (self.kubectl.clone(), kubeconfig.to_owned());
        Way { kubectl, kubeconfig, protocol, name: format!("{name}, {protocol:?}") }
    }

    /// Runs kubectl each way at once, and returns what all have said and how they ended.
    pub(crate) async fn run(&self, arguments: &[&str], stdin: &[u8]) -> Output {
        let ways = self.ways();
        let mut outputs = join_all(ways.iter().map(|way| way.run(arguments, stdin))).await;
        let last = outputs.pop().unwrap();
        for (way, output) in ways.iter().zip(outputs) {
            assert!(output == last, "{}: {}\nbut {}", way.name, show(&output), show(&last));
        }
        last
    }
}

impl Way {
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        let websocket = (self.protocol == Protocol::WebSocket).to_string();
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", &websocket)
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", &websocket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().unwrap()
    }

    async fn run(&self, arguments: &[&str], stdin: &[u8]) -> Output {
        let mut child = self.start(arguments);
        let mut input = child.stdin.take().unwrap();
        let write = async {
            // Who does not read it has ended, which is seen below.
            let _ = input.write_all(stdin).await;
            drop(input);
        };
        let both = async { tokio::join!(write, child.wait_with_output()).1.unwrap() };
        timeout(DEADLINE, both).await.unwrap_or_else(|_| panic!("{}: kubectl {arguments:?} does not end", self.name))
    }
}

impl Proxy {
    pub(crate) async fn start(shared: &Shared, name: &'static str) -> Result<Self> {
        let folder = Folder::create("streams")?;
        let mut command = std::process::Command::new(&shared.programs.proxy);
        command.arg("--kubeconfig").arg(shared.node.control_plane().kubeconfig_path());
        let identity = Identity { ring: "streams", shard: name, namespace: "default" };
        let running = proxy::Proxy::start(command, identity, folder.path())?;
        running.until_ready().await?;
        Ok(Self { name, running, _folder: folder })
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
    _kubelet: RwLockReadGuard<'a, ()>,
}

pub(crate) async fn of(shared: &Shared) -> Held<'_> {
    let kubelet = shared.kubelet.read().await;
    Held { streams: shared.streams.get(Streams::start(shared)).await, _kubelet: kubelet }
}

impl Deref for Held<'_> {
    type Target = Streams;

    fn deref(&self) -> &Streams {
        self.streams
    }
}

/// Runs a pod of the guest, and waits until its container runs or has ended.
pub(crate) async fn start_pod(node: &Node, name: &str, more: &str, arguments: &str) -> Result<()> {
    let manifest = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}}, spec: {{restartPolicy: Never, \
         terminationGracePeriodSeconds: 0, containers: [{{name: guest, image: '{GUEST}', args: {arguments}, {more}}}]}}}}"
    );
    manifests::apply(&node.client(), &manifests::parse(&manifest)?).await?;
    let pods: Api<Pod> = Api::namespaced(node.client(), "default");
    eventually(&format!("the pod {name}"), DEADLINE, || async {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
        if ["Running", "Succeeded"].contains(&phase.as_str()) { Ok(()) } else { Err(phase) }
    })
    .await?;
    Ok(())
}

/// As the guest's `fill` makes them.
pub(crate) fn filling(count: usize) -> Vec<u8> {
    use sha2::{Digest as _, Sha256};
    let mut block = Sha256::digest([]);
    let mut bytes = Vec::with_capacity(count + block.len());
    while bytes.len() < count {
        bytes.extend_from_slice(&block);
        block = Sha256::digest(block);
    }
    bytes.truncate(count);
    bytes
}

fn show(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    format!("{}, {} bytes: {out:?}, error: {err:?}", output.status, output.stdout.len())
}
