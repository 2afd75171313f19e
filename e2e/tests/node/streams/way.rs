//! A way from kubectl to the pod. It begins at a relay of its own, which keeps what kubectl sends and is answered.

use std::{
    path::PathBuf,
    process::{Output, Stdio},
};

use ringside_e2e::relay::Relay;
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    time::timeout,
};

use super::DEADLINE;

/// How kubectl speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Spdy,
    WebSocket,
}

/// From kubectl to a server.
pub(super) struct Way {
    pub(super) kubectl: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) protocol: Protocol,
    /// On all that passes.
    pub(super) mark: String,
    pub(super) front: Relay,
}

impl Way {
    pub(super) fn start(&self, arguments: &[&str]) -> Child {
        let websocket = (self.protocol == Protocol::WebSocket).to_string();
        Command::new(&self.kubectl)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            // Kept by the server's address: each way asks again.
            .env("KUBECACHEDIR", self.kubeconfig.with_extension("cache"))
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", &websocket)
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", &websocket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    pub(super) async fn run(&self, arguments: &[&str], stdin: &[u8]) -> Output {
        let mut child = self.start(arguments);
        let mut input = child.stdin.take().unwrap();
        let write = async {
            // Who does not read it has ended, which is seen below.
            let _ = input.write_all(stdin).await;
            drop(input);
        };
        let both = async { tokio::join!(write, child.wait_with_output()).1.unwrap() };
        timeout(DEADLINE, both)
            .await
            .unwrap_or_else(|_| panic!("{:?}: kubectl {arguments:?} does not end", self.protocol))
    }
}

pub(super) fn show(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    format!("{}, {} bytes: {out:?}, error: {err:?}", output.status, output.stdout.len())
}
