//! Control planes start, work, stand side by side, and are gone afterwards.

use std::{collections::BTreeMap, fs, net::TcpStream, path::Path, process::Command, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, api::PostParams, config::Kubeconfig};
use ringside_e2e::{case, live::Group};
use ringside_e2e::{
    control_plane::{ControlPlane, Options, START_DEADLINE, client_of},
    eventually::eventually,
    process::Process,
    toolchain::{self, built},
};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "control_plane",
        vec![case!(two_stand_side_by_side_and_are_gone_when_dropped), case!(nothing_is_left_when_the_owner_is_killed)],
    )
}

const DEADLINE: Duration = Duration::from_secs(30);

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap { data: Some(BTreeMap::new()), ..ConfigMap::default() };
    object.metadata.name = Some(name.to_owned());
    object
}

async fn two_stand_side_by_side_and_are_gone_when_dropped() {
    let (first, second) =
        tokio::join!(ControlPlane::start(Options::default()), ControlPlane::start(Options::default()));
    let (first, second) = (first.unwrap(), second.unwrap());
    let here: Api<ConfigMap> = Api::default_namespaced(first.client());
    let there: Api<ConfigMap> = Api::default_namespaced(second.client());
    here.create(&PostParams::default(), &config_map("here")).await.unwrap();
    assert!(there.get_opt("here").await.unwrap().is_none(), "they share data");

    let (dir, url) = (first.dir().to_owned(), first.url());
    drop(first);
    assert!(!dir.exists());
    assert!(TcpStream::connect(url.trim_start_matches("https://")).is_err());
    there.create(&PostParams::default(), &config_map("there")).await.unwrap();
}

async fn nothing_is_left_when_the_owner_is_killed() {
    let (dir, up) = up().await;
    let namespaces: Api<Namespace> = Api::all(client_of(&dir.path().join("kubeconfig")).await.unwrap());
    namespaces.get("default").await.unwrap();
    let logs = eventually("the folder's name", DEADLINE, || async {
        let text = fs::read_to_string(up.log()).map_err(|error| error.to_string())?;
        let logs = text.split("logs in ").nth(1).and_then(|rest| Some(rest.split_once('\n')?.0));
        logs.map(str::to_owned).ok_or(text)
    });
    let logs = logs.await.unwrap();
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

/// The binary `up`, once its control plane is ready. Gone when dropped, and it writes to a file: whoever waits for the end
/// of this test's output must not wait for it.
async fn up() -> (tempfile::TempDir, Process) {
    // Built before, if need be: the deadline is for starting.
    built(toolchain::control_plane).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_up"));
    command.arg("--dir").arg(dir.path());
    let up = Process::spawn("up", &command, &dir.path().join("log")).unwrap();
    // It is written when the control plane is ready, and the copy is not atomic: so until it can be read.
    eventually("the kubeconfig", 2 * START_DEADLINE + DEADLINE, || async {
        if let Err(error) = up.check_running() {
            return Ok(Err(error));
        }
        let kubeconfig = Kubeconfig::read_from(dir.path().join("kubeconfig"));
        kubeconfig.map(|_| Ok(())).map_err(|error| format!("{error}\n{}", up.log_tail()))
    })
    .await
    .unwrap()
    .unwrap();
    (dir, up)
}
