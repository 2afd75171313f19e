//! Sessions of kubectl: much at once, both ways, by SPDY and by WebSocket.

use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use ringside_e2e::eventually::eventually;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::{DEADLINE, ECHO, GIVE, MUCH, POD, TAKE, Way, digest, filling, start_pod_in, way::show};
use crate::Fixture;

pub(crate) async fn exec(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    let input = filling(MUCH);
    for site in streams.sites() {
        let command =
            |rest: &[&'static str]| [&["exec", "-n", site.namespace, "-i", POD, "--", "/guest"], rest].concat();
        let output = streams.run(&site, &command(&["cat"]), &input).await;
        assert!(output.status.success() && output.stdout == input, "{}", show(&output));
        let output = streams.run(&site, &command(&["say", "to stdout", "to stderr\n", "7"]), b"").await;
        assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"to stdout"[..]), "{}", show(&output));
        assert!(output.stderr.starts_with(b"to stderr\n"), "{}", show(&output));
    }
}

pub(crate) async fn attach(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    for site in streams.sites() {
        start_pod_in(&fixture.node, site.namespace, "attached", "stdin: true", "[echo]").await.unwrap();
        let ways = streams.ways_to(&site).await;
        // One after the other, or all would see the answers of all.
        for way in &ways {
            let mut child = way.start(&["attach", "-n", site.namespace, "-i", "attached"]);
            let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let mut stdout = BufReader::new(stdout).lines();
            for word in ["one", "two", "three"] {
                stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
                let line = timeout(DEADLINE, stdout.next_line()).await;
                let line = line.unwrap_or_else(|_| panic!("{}: no answer", way.name)).unwrap();
                assert_eq!(line, Some(format!("heard {word}")), "{}", way.name);
            }
            child.kill().await.unwrap();
        }
        streams.assert_alike(&site, &ways).await;
    }
}

/// One kubectl each way, all at once: through each two connections that come back, two that the pod ends, and one that
/// the client ends.
pub(crate) async fn port_forward(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    for site in streams.sites() {
        let ways = streams.ways_to(&site).await;
        let pods = Api::namespaced(fixture.node.client(), site.namespace);
        join_all(ways.iter().enumerate().map(|(number, way)| forward(&pods, site.namespace, way, number))).await;
        streams.assert_alike(&site, &ways).await;
    }
}

async fn forward(pods: &Api<Pod>, namespace: &str, way: &Way, number: usize) {
    let ports = [ECHO, GIVE, TAKE];
    let arguments = ports.map(|port| format!(":{port}"));
    let pod = format!("pod/{POD}");
    let mut child = way.start(&["port-forward", "-n", namespace, &pod, &arguments[0], &arguments[1], &arguments[2]]);
    // Open to the end: kubectl says something for each connection.
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut local = Vec::new();
    while local.len() < ports.len() {
        let line = timeout(DEADLINE, said.next_line()).await.unwrap_or_else(|_| panic!("{}: no port", way.name));
        let line = line.unwrap().unwrap_or_else(|| panic!("{}: {} ports", way.name, local.len()));
        if let Some(rest) = line.strip_prefix("Forwarding from 127.0.0.1:") {
            let (here, there) = rest.split_once(" -> ").unwrap();
            assert_eq!(there, ports[local.len()].to_string(), "{}", way.name);
            local.push(here.parse::<u16>().unwrap());
        }
    }
    let much = filling(MUCH);
    let answers = [(local[0], &much[..]), (local[0], &much[..]), (local[1], &much[..0]), (local[1], &much[..0])];
    for answer in join_all(answers.map(|(port, input)| there_and_back(way, port, input))).await {
        assert!(answer == much, "{}: {} of {} bytes", way.name, answer.len(), much.len());
    }
    half(pods, way, local[2], HALF + number).await;
    assert_eq!(child.try_wait().unwrap(), None, "{}", way.name);
    child.kill().await.unwrap();
}

/// The end of the client's half is seen in the pod a while before nothing comes back any more: containerd ends both with one.
/// So the client ends its half only after all has come back.
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

/// What a client sends that then ends its half. By its length each way is known from the others.
const HALF: usize = 1 << 20;

/// The client ends its half and keeps the other: in the pod that ends what is read. The pod says so in its log, while
/// kubectl and the connection to it are there.
async fn half(pods: &Api<Pod>, way: &Way, port: u16, length: usize) {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let input = filling(length);
    connection.write_all(&input).await.unwrap();
    let (digest, mark) = (digest(&input), format!("{length} "));
    let log = async || pods.logs(POD, &LogParams::default()).await.map_err(|error| error.to_string());
    assert!(!log().await.unwrap().lines().any(|line| line.starts_with(&mark)), "{}: ended before its end", way.name);
    connection.shutdown().await.unwrap();
    let what = format!("{}: the pod sees the end", way.name);
    let line = eventually(&what, DEADLINE, || async {
        let log = log().await?;
        let line = log.lines().find(|line| line.starts_with(&mark)).map(ToOwned::to_owned);
        line.ok_or_else(|| format!("the pod says {log}"))
    });
    assert_eq!(line.await.unwrap(), format!("{length} {digest}"), "{}", way.name);
}
