//! `ringside-sharder plan`: what it says is what the sharder then does, and it writes nothing.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout, reason = "what was said is part of the result")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use kube::{Api, api::ListParams};
use ringside_e2e::{
    manifests::{apply, parse, read},
    shard_identity::ShardIdentity,
    system::{NAMESPACE, Settings, System},
    toolchain::{self, Environment},
    website::Website,
    workload::Workload,
};
use serde_json::Value;

const OBJECTS: usize = 60;
const DEADLINE: Duration = Duration::from_secs(60);

/// Somebody who may do what `deploy/plan-role.yaml` says, and read the objects of the ring.
const PLANNER: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: planner, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: planner-objects}
rules:
- apiGroups: [web.example.com]
  resources: [websites]
  verbs: [list]
- apiGroups: [""]
  resources: [configmaps, secrets]
  verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: planner-objects}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: planner-objects}
subjects: [{kind: ServiceAccount, name: planner, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: planner}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ringside-plan}
subjects: [{kind: ServiceAccount, name: planner, namespace: default}]
"#;

struct Planner {
    program: PathBuf,
    identity: ShardIdentity,
}

impl Planner {
    async fn new(system: &System) -> Self {
        let client = system.control_plane().client();
        let role = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/plan-role.yaml");
        apply(&client, &read(&role).unwrap()).await.unwrap();
        apply(&client, &parse(PLANNER).unwrap()).await.unwrap();
        let identity =
            ShardIdentity::create(system.control_plane(), NAMESPACE, "planner", "planner", system.dir()).await.unwrap();
        let programs = tokio::task::spawn_blocking(|| toolchain::ringside(&Environment::of_process()));
        Self { program: programs.await.unwrap().unwrap().sharder, identity }
    }

    /// The exit code, and what was printed.
    async fn run(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new(&self.program);
        command.args(["plan", "--ring", "websites"]).args(arguments).env("KUBECONFIG", self.identity.kubeconfig());
        let Output { status, stdout, stderr } =
            tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let text = format!("{}{}", String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        println!("plan {arguments:?}: {status}\n{text}");
        (status.code().unwrap(), text)
    }

    /// The objects of each shard as they would be, and how many would be moved and would follow.
    async fn forecast(&self, arguments: &[&str]) -> (BTreeMap<String, u64>, u64, u64) {
        let (code, text) = self.run(&[arguments, &["--output", "json"]].concat()).await;
        assert_eq!(code, 0);
        let plan: Value = serde_json::from_str(&text).unwrap();
        let shards = plan["shards"].as_array().unwrap().iter().filter(|shard| shard["then"] != 0);
        let shards = shards.map(|it| (it["name"].as_str().unwrap().to_owned(), it["then"].as_u64().unwrap()));
        let going = |follows: bool| -> u64 {
            let changes = plan["changes"].as_array().unwrap().iter();
            let these = changes.filter(|change| (change["how"] == "follows") == follows);
            these.map(|change| change["objects"].as_u64().unwrap()).sum()
        };
        (shards.collect(), going(false), going(true))
    }
}

async fn versions(system: &System) -> Vec<Option<String>> {
    let websites: Api<Website> = Api::all(system.control_plane().client());
    let all = websites.list_metadata(&ListParams::default()).await.unwrap();
    all.items.into_iter().map(|website| website.metadata.resource_version).collect()
}

fn owned(system: &System) -> BTreeMap<String, u64> {
    system.monitor().picture().owned.into_iter().map(|(shard, objects)| (shard, objects as u64)).collect()
}

#[tokio::test]
async fn what_is_planned_is_what_comes_about() {
    let mut system = System::start(Settings::default()).await.unwrap();
    system.start_sharding(1).await.unwrap();
    for shard in ["shard-0", "shard-1"] {
        system.add_shard(shard).await.unwrap();
    }
    system.share_out(&Workload::idle("site", OBJECTS), DEADLINE).await.unwrap();
    let planner = Planner::new(&system).await;
    let before = versions(&system).await;

    let (code, text) = planner.run(&["--exit-code"]).await;
    assert_eq!(code, 0, "nothing is to be done");
    assert!(text.contains(&format!("{OBJECTS} objects: {OBJECTS} stay, 0 to be assigned, 0 to be moved")), "{text}");
    assert_eq!(planner.run(&["--exit-code", "--add-shard=shard-2"]).await.0, 2);
    assert_eq!(planner.forecast(&[]).await, (owned(&system), 0, 0));

    let (planned, moved, following) = planner.forecast(&["--add-shard=shard-2"]).await;
    assert_eq!((moved, following), (planned["shard-2"], 2 * planned["shard-2"]), "each with two children");
    assert_eq!(versions(&system).await, before, "it wrote nothing");
    system.add_shard("shard-2").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    assert_eq!(owned(&system), planned);
    assert_eq!(planner.forecast(&[]).await, (planned, 0, 0));

    let (planned, moved, _) = planner.forecast(&["--remove-shard=shard-0"]).await;
    assert_eq!(moved, owned(&system)["shard-0"]);
    system.remove_shard("shard-0").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    assert_eq!(owned(&system), planned);

    let (code, text) = planner.run(&["--remove-shard=shard-9"]).await;
    assert!(code == 1 && text.contains("the ring has no shard 'shard-9'"), "{text}");
    let mut command = Command::new(&planner.program);
    command.args(["plan", "--ring", "nothing"]).env("KUBECONFIG", planner.identity.kubeconfig());
    let refused = command.output().unwrap();
    assert!(
        !refused.status.success() && String::from_utf8(refused.stderr).unwrap().contains("no ClusterRing 'nothing'")
    );
}
