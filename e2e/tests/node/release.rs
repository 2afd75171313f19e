//! The chart on a node of its own, as Helm runs it: install, upgrade, rollback and uninstall, of which nothing is left.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use kube::CustomResourceExt as _;
use ringside_e2e::{
    case,
    eventually::eventually,
    helm::{Chart, deploy},
    live::Group,
    process::Process,
    toolchain::built,
    website::Website,
};
use serde_json::Value;

/// A node starts in about 12 s; beside another one it needs longer.
const START_DEADLINE: Duration = Duration::from_secs(180);

/// Pods start and end: seconds each, on a loaded machine more.
const DEADLINE: Duration = Duration::from_secs(120);

const NAMESPACE: &str = "ringside-system";

/// The cases.
pub(crate) fn group() -> Group {
    crate::group("release", [case!(release_is_upgraded_rolled_back_and_uninstalled_without_a_trace)])
}

/// A node of the case's own, and the commands of its administrator.
struct Cluster {
    process: Process,
    /// The start of a command in the network of the node.
    inside: Vec<String>,
    kubectl: PathBuf,
    folder: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Command::new(env!("CARGO_BIN_EXE_node"));
        let process = Process::spawn("node", &node, &folder.path().join("log")).unwrap();
        let kubectl = eventually("the node's kubectl", START_DEADLINE, || async {
            process.check_running().map_err(|ended| ended.to_string())?;
            let text = fs::read_to_string(process.log()).map_err(|error| error.to_string())?;
            let kubectl = text.lines().find_map(|line| line.trim().strip_suffix(" get pods --all-namespaces"));
            kubectl.map(PathBuf::from).ok_or(text)
        });
        let kubectl = kubectl.await.unwrap();
        // nsenter '--net=...' env 'KUBECONFIG=...' 'kubectl'
        let script = fs::read_to_string(&kubectl).unwrap();
        let quoted: Vec<_> = script.split('\'').skip(1).step_by(2).map(str::to_owned).collect();
        let inside = ["nsenter", &quoted[0], "env", &quoted[1]].map(str::to_owned).to_vec();
        Self { process, inside, kubectl, folder }
    }

    /// Runs a command that succeeds, and prints both.
    fn run(&self, program: &Path, arguments: &[&str]) -> String {
        let name = program.file_name().unwrap().to_string_lossy();
        println!("$ {name} {}", arguments.join(" "));
        let mut command = Command::new(&self.inside[0]);
        command.args(&self.inside[1..]).arg(program).args(arguments);
        command.env("HELM_CACHE_HOME", self.folder.path()).env("HELM_CONFIG_HOME", self.folder.path());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("{said}");
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let mut kubectl = Command::new(&self.kubectl);
        println!("$ kubectl {}", arguments.join(" "));
        let output = kubectl.args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Prints what kubectl says.
    fn show(&self, arguments: &[&str]) -> String {
        let said = self.kubectl(arguments);
        println!("{said}");
        said
    }

    fn apply(&self, file: &Path) {
        self.kubectl(&["apply", "--server-side", "-f", file.to_str().unwrap()]);
    }

    /// What there is with these words in its name.
    fn traces(&self) -> Vec<String> {
        let kinds = self.kubectl(&["api-resources", "--verbs=list", "--output=name"]);
        let kinds: Vec<_> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
        let all = self.kubectl(&["get", &kinds.join(","), "--all-namespaces", "--output=name", "--ignore-not-found"]);
        let is_trace = |line: &&str| ["ringside", "sharding", "clusterring"].iter().any(|word| line.contains(word));
        all.lines().filter(is_trace).map(str::to_owned).collect()
    }

    /// The data of the Secret with the webhook's certificates.
    fn certificates(&self) -> Value {
        let secret = ["get", "secret", "ringside-sharder-webhook", "--namespace", NAMESPACE, "--output=json"];
        serde_json::from_str::<Value>(&self.kubectl(&secret)).unwrap()["data"].clone()
    }

    async fn ring_is_ready(&self) {
        eventually("the ring is ready", DEADLINE, || async {
            let ready = r#"--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
            let said = self.kubectl(&["get", "clusterring", "websites", ready]);
            if said == "True" { Ok(()) } else { Err(said) }
        })
        .await
        .unwrap();
    }
}

async fn release_is_upgraded_rolled_back_and_uninstalled_without_a_trace() {
    let chart = built(Chart::find).await.unwrap();
    let cluster = Cluster::start().await;
    let helm = |arguments: &[&str]| cluster.run(chart.program(), &[arguments, &["--namespace", NAMESPACE]].concat());
    assert_eq!(cluster.traces(), Vec::<String>::new());

    cluster.kubectl(&["create", "namespace", NAMESPACE]);
    cluster.kubectl(&["label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted"]);
    helm(&["install", "ringside", chart.folder().to_str().unwrap(), "--wait", "--timeout=3m"]);
    let rolled_out = cluster.show(&["-n", NAMESPACE, "rollout", "status", "deployment/ringside-sharder"]);
    assert!(rolled_out.contains("successfully rolled out"), "{rolled_out}");
    cluster.show(&["-n", NAMESPACE, "get", "lease", "ringside-sharder"]);
    let website = cluster.folder.path().join("website.yaml");
    fs::write(&website, serde_json::to_string(&Website::crd()).unwrap()).unwrap();
    cluster.apply(&website);
    for file in ["example/roles.yaml", "example/ring.yaml"] {
        cluster.apply(&deploy(file));
    }
    cluster.ring_is_ready().await;
    cluster.show(&["get", "clusterring"]);
    let webhook = r#"jsonpath={.status.conditions[?(@.type=="WebhookReachable")]}"#;
    eventually("the API server reaches the webhook", DEADLINE, || async {
        let said = cluster.show(&["get", "clusterring", "websites", "-o", webhook]);
        if said.contains(r#""status":"True""#) { Ok(()) } else { Err(said) }
    })
    .await
    .unwrap();
    let certificates = cluster.certificates();
    assert!(certificates["tls.crt"].is_string(), "{certificates}");

    let next = chart.next_release(cluster.folder.path()).unwrap();
    let upgrade = ["upgrade", "ringside", next.folder().to_str().unwrap(), "--set=sharder.logFormat=text"];
    helm(&[&upgrade[..], &["--wait", "--timeout=3m"]].concat());
    assert!(helm(&["list"]).contains("ringside-0.1.1"));
    cluster.ring_is_ready().await;
    assert_eq!(cluster.certificates(), certificates, "an upgrade keeps what the sharder wrote");

    helm(&["rollback", "ringside", "1", "--wait", "--timeout=3m"]);
    assert!(helm(&["history", "ringside"]).contains("Rollback to 1"));
    cluster.ring_is_ready().await;
    assert_eq!(cluster.certificates(), certificates);

    cluster.kubectl(&["delete", "clusterring", "websites"]);
    cluster.kubectl(&["delete", "-f", deploy("example/roles.yaml").to_str().unwrap()]);
    let said = helm(&["uninstall", "ringside", "--wait", "--timeout=3m"]);
    assert!(said.contains("clusterrings.sharding.timebertt.dev"), "it says what it keeps: {said}");
    cluster.kubectl(&["delete", "crd", "clusterrings.sharding.timebertt.dev"]);
    cluster.kubectl(&["delete", "namespace", NAMESPACE]);
    eventually("nothing is left", DEADLINE, || async {
        let traces = cluster.traces();
        if traces.is_empty() { Ok(()) } else { Err(format!("{traces:#?}")) }
    })
    .await
    .unwrap();
    cluster.process.terminate().unwrap();
    cluster.process.wait(DEADLINE).await.unwrap();
}
