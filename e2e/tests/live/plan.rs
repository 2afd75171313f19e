//! `ringside plan`: what it says is what the sharder then does, and it writes nothing.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use ringside_e2e::{case, live::Group};
use ringside_e2e::{
    eventually::eventually,
    manifests::{apply, parse, read},
    shard_identity::ShardIdentity,
    system::{NAMESPACE, Return, Settings, System},
    toolchain::{self, built},
    website::Website,
    workload::Workload,
};
use ringside_ring::{ClusterRing, RingLabels, labels::LEASE_STATE};
use serde_json::{Value, json};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "plan",
        vec![
            case!(what_is_planned_is_what_comes_about).works(),
            case!(what_goes_past_a_late_shard_is_planned_so).works(),
            case!(what_leaves_the_ring_is_planned_too).works(),
        ],
    )
}

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
  verbs: [get, list]
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [get, list]
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
        let programs = built(toolchain::ringside).await.unwrap();
        Self { program: programs.cli, identity }
    }

    /// The exit code, and what was printed.
    async fn run(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new(&self.program);
        command.args(["plan", "websites"]).args(arguments).env("KUBECONFIG", self.identity.kubeconfig());
        let Output { status, stdout, stderr } =
            tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let text = format!("{}{}", String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        (status.code().unwrap(), text)
    }

    /// How many objects would lose their labels: after their shard has let go of them, and at once.
    async fn leaving(&self) -> (u64, u64) {
        let (code, text) = self.run(&["--output", "json"]).await;
        assert_eq!(code, 0);
        let plan: Value = serde_json::from_str(&text).unwrap();
        let going = |how: &str| -> u64 {
            let changes = plan["changes"].as_array().unwrap().iter().filter(|change| change["how"] == how);
            changes.map(|change| change["objects"].as_u64().unwrap()).sum()
        };
        assert_eq!(plan["objects"], 0, "none is the ring's");
        (going("withdrawn"), going("released"))
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

/// A system of these shards, at rest.
async fn balanced(settings: Settings, shards: &[&str]) -> System {
    let mut system = System::start(settings).await.unwrap();
    system.start_sharding(1).await.unwrap();
    for shard in shards {
        system.add_shard(shard).await.unwrap();
    }
    system.share_out(&Workload::idle("site", OBJECTS), DEADLINE).await.unwrap();
    system
}

async fn what_is_planned_is_what_comes_about() {
    let mut system = balanced(Settings::default(), &["shard-0", "shard-1"]).await;
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

    let (code, text) = planner.run(&["--replicas=4"]).await;
    assert!(code == 0 && text.starts_with("3 -> 4 replicas: ") && text.contains("of 60 objects move"), "{text}");
    assert_eq!(planner.run(&["--replicas=many"]).await.0, 64, "wrong usage is told from a difference");
    let (planned, moved, _) = planner.forecast(&["--remove-shard=shard-0"]).await;
    assert_eq!(moved, owned(&system)["shard-0"]);
    system.remove_shard("shard-0").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    assert_eq!(owned(&system), planned);

    let (code, text) = planner.run(&["--remove-shard=shard-9"]).await;
    assert!(code == 1 && text.contains("the ring has no shard 'shard-9'"), "{text}");
    let mut command = Command::new(&planner.program);
    command.args(["plan", "nothing"]).env("KUBECONFIG", planner.identity.kubeconfig());
    let refused = command.output().unwrap();
    assert!(
        !refused.status.success() && String::from_utf8(refused.stderr).unwrap().contains("no ClusterRing 'nothing'")
    );
}

/// Waits until the sharder says that the shard's Lease has run out.
async fn until_expired(system: &System, shard: &str) {
    let leases: Api<Lease> = Api::namespaced(system.control_plane().client(), NAMESPACE);
    let expired = eventually("the shard is late", DEADLINE, || async {
        let lease = leases.get(shard).await.map_err(|error| error.to_string())?;
        let state = lease.labels().get(LEASE_STATE).cloned();
        if state.as_deref() == Some("expired") { Ok(()) } else { Err(format!("{state:?}")) }
    });
    expired.await.unwrap();
}

async fn what_goes_past_a_late_shard_is_planned_so() {
    // Time for a plan, and for what it says, between the end of a Lease and the end of its shard.
    let settings = Settings { lease_duration: Duration::from_secs(20), ..Settings::default() };
    let mut system = balanced(settings, &["shard-0", "shard-1", "shard-2"]).await;
    let planner = Planner::new(&system).await;
    system.kill_shard("shard-1").await.unwrap();
    until_expired(&system, "shard-1").await;
    let (planned, moved, _) = planner.forecast(&["--remove-shard=shard-0"]).await;
    assert_eq!((planned.get("shard-1"), moved), (owned(&system).get("shard-1"), owned(&system)["shard-0"]));
    system.remove_shard("shard-0").await.unwrap();
    let came_about = eventually("what was planned comes about", DEADLINE, || async {
        let owned = owned(&system);
        if owned == planned { Ok(()) } else { Err(format!("{owned:?}")) }
    });
    came_about.await.unwrap();
}

/// How many Websites, ConfigMaps and Secrets have labels of the ring.
async fn labelled(system: &System) -> usize {
    let client = system.control_plane().client();
    let labelled = ListParams::default().labels(&RingLabels::of(&"websites".parse().unwrap()).shard);
    let websites = Api::<Website>::all(client.clone()).list_metadata(&labelled).await.unwrap().items.len();
    let config_maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::all(client.clone());
    let secrets = Api::<k8s_openapi::api::core::v1::Secret>::all(client);
    let children = config_maps.list_metadata(&labelled).await.unwrap().items.len()
        + secrets.list_metadata(&labelled).await.unwrap().items.len();
    websites + children
}

async fn what_leaves_the_ring_is_planned_too() {
    let mut system = balanced(Settings::default(), &["shard-0", "shard-1"]).await;
    let planner = Planner::new(&system).await;
    let rings: Api<ClusterRing> = Api::all(system.control_plane().client());
    let stored = rings.get("websites").await.unwrap().spec;
    // The namespace leaves it, then all that is left leaves it with its resource.
    let leavings = [
        json!({"namespaceSelector": {"matchLabels": {"team": "nobody"}}}),
        json!({"resources": [{"group": "networking.k8s.io", "resource": "ingresses"}], "drainDeadlineSeconds": 5}),
    ];
    for spec in leavings {
        system.kill_sharders().await.unwrap();
        let patch = Patch::Merge(json!({"spec": spec}));
        rings.patch("websites", &PatchParams::default(), &patch).await.unwrap();
        let objects = OBJECTS as u64;
        assert_eq!((planner.leaving().await, labelled(&system).await), ((objects, 2 * objects), 3 * OBJECTS), "{spec}");
        system.return_sharders(Return::SamePod).await.unwrap();
        let bare = eventually("no label is left", DEADLINE, || async {
            match labelled(&system).await {
                0 => Ok(()),
                labelled => Err(format!("{labelled} have labels")),
            }
        });
        bare.await.unwrap();
        assert_eq!(planner.leaving().await, (0, 0));
        let restored = Patch::Merge(
            json!({"spec": {"namespaceSelector": stored.namespace_selector, "resources": stored.resources}}),
        );
        rings.patch("websites", &PatchParams::default(), &restored).await.unwrap();
        system.until_balanced(DEADLINE).await.unwrap();
        system.until_settled(DEADLINE).await.unwrap();
    }
}
