//! The binary `up`: a control plane starts, works, and is gone with its owner.

use std::{path::Path, process::Command, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use ringside_e2e::{
    case,
    control_plane::{START_DEADLINE, client_of},
    eventually::eventually,
    live::Group,
    process::Process,
};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new("control_plane", vec![case!(nothing_is_left_when_the_owner_is_killed)])
}

const DEADLINE: Duration = Duration::from_secs(30);

async fn nothing_is_left_when_the_owner_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_up"));
    command.arg("--dir").arg(dir.path());
    // It writes to a file: whoever waits for the end of this test's output must not wait for it.
    let up = Process::spawn("up", &command, &dir.path().join("log")).unwrap();
    // It says so once the kubeconfig is written.
    let started = eventually("the control plane", 2 * START_DEADLINE + DEADLINE, || async {
        if let Err(error) = up.check_running() {
            return Ok(Err(error));
        }
        let text = std::fs::read_to_string(up.log()).map_err(|error| error.to_string())?;
        let logs = text.split("logs in ").nth(1).and_then(|rest| Some(rest.split_once('\n')?.0.to_owned()));
        logs.map(Ok).ok_or(text)
    });
    let logs = started.await.unwrap().unwrap();
    let namespaces: Api<Namespace> = Api::all(client_of(&dir.path().join("kubeconfig")).await.unwrap());
    namespaces.get("default").await.unwrap();
    assert!(Path::new(&logs).exists());
    // By SIGKILL, and as it happens in a test that fails.
    drop(up);
    eventually("API server and folder are gone", DEADLINE, || async {
        let answers = namespaces.get("default").await.is_ok();
        if answers || Path::new(&logs).exists() { Err(format!("{logs}, answers: {answers}")) } else { Ok(()) }
    })
    .await
    .unwrap();
}
