//! A session ends with what it needs: its client, and the Lease that lets it pass.

use std::{fs, sync::Arc};

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use ringside_e2e::eventually::eventually;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin},
    time::timeout,
};

use super::{DEADLINE, POD, Proxy, Way};
use crate::Fixture;

pub(crate) async fn a_session_ends_with_its_client(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    let sessions = open(streams.ways(&fixture, &streams.proxy).await, "client").await;
    let mut ways = Vec::new();
    for mut session in sessions {
        session.child.kill().await.unwrap();
        ways.push(session.way);
    }
    until_none_runs("client").await;
    streams.assert_alike(&streams.proxy, &ways).await;
}

pub(crate) async fn a_session_ends_with_the_lease(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    let proxy = Proxy::start(&fixture, &streams.door, "streams", "streams-lost").await.unwrap();
    let sessions = open(streams.ways(&fixture, &proxy).await, "lease").await;
    let leases: Api<Lease> = Api::namespaced(fixture.node.client(), "default");
    let taken = json!({"spec": {"holderIdentity": "somebody-else"}});
    leases.patch(proxy.name, &PatchParams::default(), &Patch::Merge(taken)).await.unwrap();
    for mut session in sessions {
        // Of a connection that is cut kubectl says nothing when it speaks SPDY, and exits with 0.
        let status = timeout(DEADLINE, session.child.wait()).await;
        status.unwrap_or_else(|_| panic!("{:?}: kubectl goes on", session.way.protocol)).unwrap();
    }
    until_none_runs("lease").await;
}

/// A command that waits for more input.
struct Session {
    way: Way,
    child: Child,
    _stdin: ChildStdin,
}

/// Opens one each way; `mark` is in the command line of what they run.
async fn open(ways: impl IntoIterator<Item = Way>, mark: &str) -> Vec<Session> {
    let session = |way: Way| async move {
        let mut child = way.start(&["exec", "-i", POD, "--", "/guest", "cat", &marked(mark)]);
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"here\n").await.unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap();
        assert_eq!(line.as_deref(), Some("here"), "{:?}", way.protocol);
        Session { way, child, _stdin: stdin }
    };
    let sessions = join_all(ways.into_iter().map(session)).await;
    assert_eq!(running(mark), sessions.len());
    sessions
}

fn marked(mark: &str) -> String {
    format!("opened-until-the-end-of-the-{mark}")
}

/// Of the processes in the container.
async fn until_none_runs(mark: &str) {
    eventually("the commands in the pod have ended", DEADLINE, || async {
        match running(mark) {
            0 => Ok(()),
            count => Err(format!("{count} run")),
        }
    })
    .await
    .unwrap();
}

/// How many guests run with that mark.
fn running(mark: &str) -> usize {
    let wanted = format!("/guest\0cat\0{}\0", marked(mark)).into_bytes();
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cmdline"));
    processes.filter(|path| fs::read(path).is_ok_and(|command| command == wanted)).count()
}
