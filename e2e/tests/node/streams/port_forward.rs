//! TCP connections to a port of a pod.

use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use ringside_e2e::eventually::eventually;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStdout},
    time::timeout,
};

use super::{DEADLINE, ECHO, GIVE, Held, MUCH, POD, Site, TAKE, Way, filling};
use crate::Shared;

/// What is sent.
const HALF: usize = 1 << 20;

/// The end of our half is seen in the pod a while before nothing comes back any more: containerd ends both with one. So it is
/// the end that is waited for here, after all has come back.
pub(crate) async fn much_comes_back_whole(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    everywhere(&streams, &streams.sites()[0], ECHO, &filling(MUCH)).await;
}

/// The fence asks first whose the pod is.
pub(crate) async fn to_a_pod_of_the_ring(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let [_, site] = streams.sites();
    everywhere(&streams, &site, ECHO, &filling(MUCH)).await;
    everywhere(&streams, &site, GIVE, b"").await;
}

pub(crate) async fn the_end_that_the_pod_makes_is_seen_after_all_it_sent(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    everywhere(&streams, &streams.sites()[0], GIVE, b"").await;
}

/// We end our half and keep the other: in the pod it is the end of what is read. As it says itself, in its log, while
/// kubectl and the connection to it are there.
pub(crate) async fn the_end_of_our_half_is_seen_in_the_pod(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let ways = streams.ways().await;
    // By its length each is known from the others.
    join_all(ways.iter().enumerate().map(|(number, way)| half(&shared, way, HALF + number))).await;
    streams.assert_alike(&ways).await;
}

async fn half(shared: &Shared, way: &Way, length: usize) {
    let (mut forwarding, local) = Forwarding::start(way, "default", TAKE).await;
    let mut connection = TcpStream::connect(("127.0.0.1", local)).await.unwrap();
    let input = filling(length);
    connection.write_all(&input).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(shared.node.client(), "default");
    let (digest, mark) = (super::digest(&input), format!("{length} "));
    let log = async || pods.logs(POD, &LogParams::default()).await.map_err(|error| error.to_string());
    assert!(!log().await.unwrap().lines().any(|line| line.starts_with(&mark)), "{}: ended before its end", way.name);
    connection.shutdown().await.unwrap();
    eventually(&format!("{}: the pod sees the end", way.name), DEADLINE, || async {
        let log = log().await?;
        let line = log.lines().find(|line| line.starts_with(&mark)).map(ToOwned::to_owned);
        line.ok_or_else(|| format!("the pod says {log}"))
    })
    .await
    .map(|line| assert_eq!(line, format!("{length} {digest}"), "{}", way.name))
    .unwrap();
    assert_eq!(forwarding.child.try_wait().unwrap(), None, "{}", way.name);
    drop(connection);
    forwarding.child.kill().await.unwrap();
}

/// Two connections each way, all at once. Each has to receive the same, whole, and then the end.
async fn everywhere(streams: &Held<'_>, site: &Site<'_>, port: u16, input: &[u8]) {
    let ways = streams.ways_to(site).await;
    let wanted = filling(MUCH);
    let answers = join_all(ways.iter().map(|way| two_connections(way, site.namespace, port, input))).await;
    for (way, answers) in ways.iter().zip(answers) {
        for answer in answers {
            assert!(answer == wanted, "{}: {} of {} bytes", way.name, answer.len(), wanted.len());
        }
    }
    streams.assert_alike_at(site, &ways).await;
}

/// Through one kubectl.
async fn two_connections(way: &Way, namespace: &str, port: u16, input: &[u8]) -> [Vec<u8>; 2] {
    let (mut forwarding, local) = Forwarding::start(way, namespace, port).await;
    let (one, other) = tokio::join!(there_and_back(way, local, input), there_and_back(way, local, input));
    forwarding.child.kill().await.unwrap();
    [one, other]
}

/// A kubectl that takes connections to a port of the pod.
struct Forwarding {
    child: Child,
    /// Open to the end: it says something for each connection.
    _said: Lines<BufReader<ChildStdout>>,
}

impl Forwarding {
    /// With the port to connect to.
    async fn start(way: &Way, namespace: &str, port: u16) -> (Self, u16) {
        let mut child = way.start(&["port-forward", "-n", namespace, &format!("pod/{POD}"), &format!(":{port}")]);
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(DEADLINE, said.next_line()).await.unwrap_or_else(|_| panic!("{}: no port", way.name));
        let line = line.unwrap().unwrap_or_default();
        let local = line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next());
        let local = local.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{}: {line}", way.name));
        (Self { child, _said: said }, local)
    }
}

async fn there_and_back(way: &Way, port: u16, input: &[u8]) -> Vec<u8> {
    let (mut read, mut write) = TcpStream::connect(("127.0.0.1", port)).await.unwrap().into_split();
    let mut answer = vec![0; MUCH];
    let both = async {
        let (sent, received) = tokio::join!(write.write_all(input), read.read_exact(&mut answer));
        sent.unwrap_or_else(|error| panic!("{}: send: {error}", way.name));
        received.unwrap_or_else(|error| panic!("{}: receive: {error}", way.name));
        if !input.is_empty() {
            write.shutdown().await.unwrap();
        }
        read.read_to_end(&mut answer).await.unwrap_or_else(|error| panic!("{}: end: {error}", way.name));
    };
    timeout(DEADLINE, both).await.unwrap_or_else(|_| panic!("{}: no end", way.name));
    answer
}
