//! Sessions of kubectl: much at once, both ways, by SPDY and by WebSocket.

use std::sync::Arc;

use futures::future::join_all;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::{DEADLINE, ECHO, GIVE, MUCH, POD, Way, filling, start_pod, way::show};
use crate::Fixture;

pub(crate) async fn exec_passes_both_ways(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    let input = filling(MUCH);
    for site in streams.sites() {
        let command =
            |rest: &[&'static str]| [&["exec", "-n", site.namespace, "-i", POD, "--", "/guest"], rest].concat();
        let output = streams.run(&fixture, &site, &command(&["cat"]), &input).await;
        assert!(output.status.success() && output.stdout == input, "{}", show(&output));
        let output = streams.run(&fixture, &site, &command(&["say", "to stdout", "to stderr\n", "7"]), b"").await;
        assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"to stdout"[..]), "{}", show(&output));
        assert!(output.stderr.starts_with(b"to stderr\n"), "{}", show(&output));
    }
}

pub(crate) async fn attach_passes_both_ways(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    for site in streams.sites() {
        start_pod(&fixture.node, site.namespace, "attached", ("[echo]", "stdin: true"), "Running").await.unwrap();
        let ways = streams.ways(&fixture, site.proxy).await;
        // One after the other, or both would see the answers of both.
        for way in &ways {
            let mut child = way.start(&["attach", "-n", site.namespace, "-i", "attached"]);
            let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let mut stdout = BufReader::new(stdout).lines();
            for word in ["one", "two", "three"] {
                stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
                let line = timeout(DEADLINE, stdout.next_line()).await;
                let line = line.unwrap_or_else(|_| panic!("{:?}: no answer", way.protocol)).unwrap();
                assert_eq!(line, Some(format!("heard {word}")), "{:?}", way.protocol);
            }
            child.kill().await.unwrap();
        }
        streams.assert_alike(site.proxy, &ways).await;
    }
}

/// One kubectl by each protocol, both at once: through each two connections that come back, and two that the pod ends.
pub(crate) async fn port_forward_passes_both_ways(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    for site in streams.sites() {
        let ways = streams.ways(&fixture, site.proxy).await;
        join_all(ways.iter().map(|way| forward(site.namespace, way))).await;
        streams.assert_alike(site.proxy, &ways).await;
    }
}

async fn forward(namespace: &str, way: &Way) {
    let (pod, by) = (format!("pod/{POD}"), way.protocol);
    let ports = [ECHO, GIVE];
    let [echo, give] = ports.map(|port| format!(":{port}"));
    let mut child = way.start(&["port-forward", "-n", namespace, &pod, &echo, &give]);
    // Open to the end: kubectl says something for each connection.
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut local = Vec::new();
    while local.len() < ports.len() {
        let line = timeout(DEADLINE, said.next_line()).await.unwrap_or_else(|_| panic!("{by:?}: no port"));
        let line = line.unwrap().unwrap_or_else(|| panic!("{by:?}: {} ports", local.len()));
        if let Some(rest) = line.strip_prefix("Forwarding from 127.0.0.1:") {
            let (here, there) = rest.split_once(" -> ").unwrap();
            assert_eq!(there, ports[local.len()].to_string(), "{by:?}");
            local.push(here.parse::<u16>().unwrap());
        }
    }
    let much = filling(MUCH);
    let answers = [(local[0], &much[..]), (local[0], &much[..]), (local[1], &much[..0]), (local[1], &much[..0])];
    for answer in join_all(answers.map(|(port, input)| timeout(DEADLINE, there_and_back(port, input)))).await {
        let answer = answer.unwrap_or_else(|_| panic!("{by:?}: no end"));
        assert!(answer == much, "{by:?}: {} of {} bytes", answer.len(), much.len());
    }
    assert_eq!(child.try_wait().unwrap(), None, "{by:?}");
    child.kill().await.unwrap();
}

/// The end of the client's half is seen in the pod a while before nothing comes back any more: containerd ends both with one.
/// So the client ends its half only after all has come back.
async fn there_and_back(port: u16, input: &[u8]) -> Vec<u8> {
    let (mut read, mut write) = TcpStream::connect(("127.0.0.1", port)).await.unwrap().into_split();
    let mut answer = vec![0; MUCH];
    let (sent, received) = tokio::join!(write.write_all(input), read.read_exact(&mut answer));
    sent.unwrap();
    received.unwrap();
    if !input.is_empty() {
        write.shutdown().await.unwrap();
    }
    read.read_to_end(&mut answer).await.unwrap();
    answer
}
