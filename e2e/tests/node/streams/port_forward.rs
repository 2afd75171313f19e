//! TCP connections to a port of a pod.

use std::sync::Arc;

use futures::future::join_all;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::{DEADLINE, ECHO, GIVE, MUCH, POD, Way, filling, protocols::TELL};
use crate::Shared;

/// The end of our half is not seen in the pod: containerd ends both with one. So it is the end that is waited for here,
/// after all has come back.
pub(crate) async fn much_comes_back_whole(shared: Arc<Shared>) {
    everywhere(shared, ECHO, &filling(MUCH)).await;
}

pub(crate) async fn the_end_that_the_pod_makes_is_seen_after_all_it_sent(shared: Arc<Shared>) {
    everywhere(shared, GIVE, b"").await;
}

/// Two connections each way, all at once. Each has to receive the same, whole, and then the end.
async fn everywhere(shared: Arc<Shared>, port: u16, input: &[u8]) {
    let streams = super::of(&shared).await;
    let ways = streams.ways();
    let wanted = filling(MUCH);
    let answers = join_all(ways.iter().map(|way| two_connections(way, port, input))).await;
    for (way, answers) in ways.iter().zip(answers) {
        for answer in answers {
            assert!(answer == wanted, "{}: {} of {} bytes", way.name, answer.len(), wanted.len());
        }
    }
}

/// Through one kubectl.
async fn two_connections(way: &Way, port: u16, input: &[u8]) -> [Vec<u8>; 2] {
    let mut child = way.start(&["port-forward", TELL, &format!("pod/{POD}"), &format!(":{port}")]);
    // Open to the end: it says something for each connection.
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(DEADLINE, said.next_line()).await.unwrap_or_else(|_| panic!("{}: no port", way.name));
    let line = line.unwrap().unwrap_or_default();
    let local = line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next());
    let local = local.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{}: {line}", way.name));
    let (one, other) = tokio::join!(there_and_back(way, local, input), there_and_back(way, local, input));
    child.start_kill().unwrap();
    way.assert_spoken(&child.wait_with_output().await.unwrap().stderr, POD, "portforward");
    [one, other]
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
