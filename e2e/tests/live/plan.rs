//! `ringside plan`: what it says is what the sharder then does, and it writes nothing. Shards have weights, said by themselves or
//! by a person who annotates their Leases.

use std::{collections::BTreeMap, path::Path, time::Duration};

use k8s_openapi::api::{coordination::v1::Lease, events::v1::Event};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use ringside_e2e::{
    case,
    eventually::eventually,
    live::Group,
    manifests::{apply, parse, read},
    ring_status::{condition, until_status},
    shard_identity::ShardIdentity,
    system::{NAMESPACE, RING, Return, Settings, System},
    website::Website,
    workload::Workload,
};
use ringside_ring::{ClusterRing, labels::LEASE_WEIGHT};
use serde_json::{Value, json};

use crate::command::ringside;

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "plan",
        vec![case!(changes_of_shards_and_weights_come_about_as_planned).works().costs("two minutes of changes")],
    )
}

const OBJECTS: usize = 240;
const DEADLINE: Duration = Duration::from_secs(90);

/// Numbers of objects.
type Counts = BTreeMap<String, usize>;

/// A user who may do what `deploy/plan-role.yaml` says, and read the objects of the ring.
const PLANNER: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: planner, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: planner-objects}
rules:
- {apiGroups: [web.example.com], resources: [websites], verbs: [list]}
- {apiGroups: [""], resources: [configmaps, secrets], verbs: [list]}
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

struct Planner(ShardIdentity);

impl Planner {
    async fn new(system: &System) -> Self {
        let client = system.control_plane().client();
        let role = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/plan-role.yaml");
        apply(&client, &read(&role).unwrap()).await.unwrap();
        apply(&client, &parse(PLANNER).unwrap()).await.unwrap();
        let plane = system.control_plane();
        Self(ShardIdentity::create(plane, NAMESPACE, "planner", "planner", system.dir()).await.unwrap())
    }

    /// The exit code, and what was printed.
    async fn run(&self, ring: &str, arguments: &[&str]) -> (i32, String) {
        ringside(self.0.kubeconfig(), &[&["plan", ring], arguments].concat()).await
    }

    /// The objects of each shard as they would be, and how many objects would change, by what happens to them.
    async fn forecast(&self, arguments: &[&str]) -> (Counts, Counts) {
        let (code, text) = self.run("websites", &[arguments, &["--output", "json"]].concat()).await;
        assert_eq!(code, 0);
        let plan: Value = serde_json::from_str(&text).unwrap();
        let counts = |list: &str, name: &str, count: &str| {
            let mut counts = Counts::new();
            for row in plan[list].as_array().unwrap().iter().filter(|row| row[count] != 0) {
                let number = usize::try_from(row[count].as_u64().unwrap()).unwrap();
                *counts.entry(row[name].as_str().unwrap().to_owned()).or_default() += number;
            }
            counts
        };
        (counts("shards", "name", "then"), counts("changes", "how", "objects"))
    }

    /// Waits until the shards have what was planned.
    async fn until_so(&self, system: &System, planned: &Counts) {
        system.until_owned(planned, DEADLINE).await.unwrap();
        assert_eq!(self.forecast(&[]).await, (planned.clone(), Counts::new()), "nothing is left to do");
    }
}

async fn versions(system: &System) -> Vec<Option<String>> {
    let websites: Api<Website> = Api::all(system.control_plane().client());
    let all = websites.list_metadata(&ListParams::default()).await.unwrap();
    all.items.into_iter().map(|website| website.metadata.resource_version).collect()
}

/// As `kubectl annotate lease shard-1 ringside.dev/weight=…` does; without a weight it takes the annotation off.
async fn weigh(system: &System, weight: Option<&str>) {
    let leases: Api<Lease> = Api::namespaced(system.control_plane().client(), NAMESPACE);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {LEASE_WEIGHT: weight}}}));
    leases.patch("shard-1", &PatchParams::default(), &patch).await.unwrap();
}

/// Fails unless the objects are shared in these proportions, as far as so few can be.
#[track_caller]
fn are_shared(owned: &Counts, weights: [f64; 3]) {
    let (whole, objects): (f64, _) = (weights.iter().sum(), OBJECTS as f64);
    for (number, weight) in weights.into_iter().enumerate() {
        let share = objects * weight / whole;
        let has = owned.get(&format!("shard-{number}")).copied().unwrap_or_default() as f64;
        assert!((has - share).abs() <= (share / 2.0).min(objects / whole / 4.0), "{owned:?} {weights:?}");
    }
}

/// Waits until the ring, which is no less ready, and an Event on it say that a weight is none; so does the log.
async fn until_told(system: &System) {
    let names_it = |text: &str| text.contains("'shard-1'") && text.contains("'much' is not a weight");
    let (client, ring) = (system.control_plane().client(), RING.parse().unwrap());
    until_status(&client, &ring, "the ring tells of it", DEADLINE, |status| {
        let (ready, valid) = (condition(status, "Ready")?, condition(status, "WeightsValid")?);
        let told = ready.status == "True" && valid.status == "False" && names_it(&valid.message);
        if told { Ok(()) } else { Err(format!("{:?}", status.conditions)) }
    })
    .await
    .unwrap();
    let events: Api<Event> = Api::all(system.control_plane().client());
    eventually("an Event tells of it", DEADLINE, || async {
        let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let notes = all.iter().filter(|event| event.reason.as_deref() == Some("InvalidWeight"));
        let notes: Vec<_> = notes.filter_map(|event| event.note.as_deref()).collect();
        if notes.iter().any(|note| names_it(note)) { Ok(()) } else { Err(format!("{notes:?}")) }
    })
    .await
    .unwrap();
    let log = std::fs::read_to_string(system.sharders().next().unwrap().process().log()).unwrap();
    let said = |line: &str| line.contains("its weight can't be read") && line.contains("shard-1");
    assert!(log.lines().any(said), "{log}");
}

async fn changes_of_shards_and_weights_come_about_as_planned() {
    let mut system = System::start(Settings::default()).await.unwrap();
    system.start_sharding(1).await.unwrap();
    for shard in ["shard-0", "shard-1"] {
        system.add_shard(shard).await.unwrap();
    }
    let (work, interval) = (Duration::from_millis(20), Duration::from_millis(100));
    let workload = Workload { work, interval, ..Workload::idle("site", OBJECTS) };
    system.share_out(&workload, DEADLINE).await.unwrap();
    let planner = Planner::new(&system).await;
    let planned = plans(&system, &planner).await;

    let updates = workload.start_updates(&system.control_plane().client());
    // It says its weight itself.
    system.add_weighted_shard("shard-2", "2").await.unwrap();
    planner.until_so(&system, &planned).await;
    are_shared(&planned, [1.0, 1.0, 2.0]);
    weights(&system, &planner).await;
    planner.until_so(&system, &planned).await;
    updates.stop().await.unwrap();
    system.until_all_worked_on(&workload, DEADLINE).await.unwrap();
    let (report, writes) = (system.report(DEADLINE).await.unwrap(), system.judge_writes().await.unwrap());
    assert!(report.is_clean(), "{report:#?}");
    assert!(writes.is_clean() && report.second_creates == 0, "{writes:#?}");

    let (planned, mut changes) = planner.forecast(&["--remove-shard=shard-0"]).await;
    changes.remove("follows");
    assert_eq!(changes.values().sum::<usize>(), system.monitor().picture().owned["shard-0"]);
    system.remove_shard("shard-0").await.unwrap();
    system.until_owned(&planned, DEADLINE).await.unwrap();
    leaves(&mut system, &planner).await;
}

/// Asks for plans, none of which writes. Returns what one shard more of weight 2 would lead to.
async fn plans(system: &System, planner: &Planner) -> Counts {
    let before = versions(system).await;
    let (planned, changes) = planner.forecast(&["--add-shard=shard-2=2"]).await;
    let moved = planned["shard-2"];
    let with_children = [("drained".to_owned(), moved), ("follows".to_owned(), 2 * moved)];
    assert_eq!(changes, Counts::from(with_children));
    for (ring, arguments, expected, said) in [
        ("websites", "--exit-code", 0, "240 objects: 240 stay, 0 to be assigned, 0 to be moved"),
        ("websites", "--add-shard=shard-2 --exit-code", 2, "shard-2"),
        ("websites", "--replicas=4", 0, "of 240 objects move"),
        ("websites", "--replicas=many", 64, "invalid value"),
        ("websites", "--remove-shard=shard-9", 1, "the ring has no shard 'shard-9'"),
        ("nothing", "", 1, "no ClusterRing 'nothing'"),
    ] {
        let arguments: Vec<_> = arguments.split_whitespace().collect();
        let (code, text) = planner.run(ring, &arguments).await;
        assert!(code == expected && text.contains(said), "{ring} {arguments:?}: {code} {text}");
    }
    assert_eq!(versions(system).await, before, "it wrote nothing");
    planned
}

/// A person empties one, which stays a member; gives it little at first, as a canary; slips, which counts as 1; and ends it.
async fn weights(system: &System, planner: &Planner) {
    for (weight, counts) in [("0", 0.0), ("0.25", 0.25), ("much", 1.0)] {
        let (planned, _) = planner.forecast(&[&format!("--add-shard=shard-1={counts}")]).await;
        weigh(system, Some(weight)).await;
        planner.until_so(system, &planned).await;
        are_shared(&planned, [1.0, counts, 2.0]);
        assert_eq!(planned.contains_key("shard-1"), counts > 0.0);
        let (client, ring) = (system.control_plane().client(), RING.parse().unwrap());
        until_status(&client, &ring, "the status counts what each shard has", DEADLINE, |status| {
            let shards = status.objects.iter().flat_map(|counts| &counts.shards).filter(|shard| shard.objects > 0);
            let counted = shards.map(|shard| (shard.name.clone(), usize::try_from(shard.objects).unwrap()));
            let counted = counted.collect::<Counts>();
            if counted == planned && status.available_shards == 3 { Ok(()) } else { Err(format!("{counted:?}")) }
        })
        .await
        .unwrap();
    }
    until_told(system).await;
    weigh(system, None).await;
}

/// The namespace leaves the ring while no sharder runs.
async fn leaves(system: &mut System, planner: &Planner) {
    system.kill_sharders().await.unwrap();
    let leaves = Patch::Merge(json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "nobody"}}}}));
    let rings: Api<ClusterRing> = Api::all(system.control_plane().client());
    rings.patch("websites", &PatchParams::default(), &leaves).await.unwrap();
    let leaving = [("withdrawn".to_owned(), OBJECTS), ("released".to_owned(), 2 * OBJECTS)];
    assert_eq!(planner.forecast(&[]).await, (Counts::new(), Counts::from(leaving)));
    system.return_sharders(Return::SamePod).await.unwrap();
    eventually("nothing of it has labels", DEADLINE, || async {
        let planned = planner.forecast(&[]).await;
        if planned == (Counts::new(), Counts::new()) { Ok(()) } else { Err(format!("{planned:?}")) }
    })
    .await
    .unwrap();
}
