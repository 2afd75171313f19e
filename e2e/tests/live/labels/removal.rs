//! A ring that is removed leaves nothing behind, whoever takes it off.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod, Secret},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
};
use ringside_e2e::{
    control_plane::{ControlPlane, Options},
    eventually::eventually,
    system::{NAMESPACE, Settings},
    toolchain::{self, built},
    website::Website,
};
use ringside_ring::{ClusterRing, RingLabels, RingName, cluster_ring::Fence};
use serde_json::json;

use crate::labels::{
    belongings::{FENCE, KINDS, api},
    fixture::{DEADLINE, Fixture},
};
use crate::planes::Keeps;

/// The resources of the ring, as they are counted.
const RESOURCES: [&str; 3] = ["websites.web.example.com", "configmaps", "secrets"];

/// A ring with all that can be made for one, on a plane of its own.
async fn start() -> Fixture {
    let settings = Settings { fence: Fence::ApiServer, ..Settings::default() };
    with_all(Fixture::start(Keeps::Both, settings).await).await
}

async fn with_all(fixture: Fixture) -> Fixture {
    assert_eq!(belongings(&fixture).await, KINDS.into_iter().chain(FENCE).collect::<Vec<_>>());
    fixture
}

/// The kinds of what is there of all that is made for the ring.
async fn belongings(fixture: &Fixture) -> Vec<&'static str> {
    let (name, mut there) = (fixture.ring.made_for(), Vec::new());
    for kind in KINDS.into_iter().chain(FENCE) {
        there.extend(api(&fixture.client(), kind).get_opt(&name).await.unwrap().map(|_| kind));
    }
    there
}

/// How many objects of each resource carry labels of the ring.
async fn labelled(fixture: &Fixture) -> [usize; 3] {
    let any = |key: &str| ListParams::default().labels(key);
    let mut counts = [0; 3];
    for selector in [fixture.labels.shard.clone(), format!("!{},{}", fixture.labels.shard, fixture.labels.drain)] {
        let client = fixture.client();
        counts[0] += Api::<Website>::all(client.clone()).list_metadata(&any(&selector)).await.unwrap().items.len();
        counts[1] += Api::<ConfigMap>::all(client.clone()).list_metadata(&any(&selector)).await.unwrap().items.len();
        counts[2] += Api::<Secret>::all(client).list_metadata(&any(&selector)).await.unwrap().items.len();
    }
    counts
}

async fn delete_ring(fixture: &Fixture) -> ClusterRing {
    let rings: Api<ClusterRing> = Api::all(fixture.client());
    let ring = rings.get(fixture.ring.name()).await.unwrap();
    rings.delete(fixture.ring.name(), &DeleteParams::default()).await.unwrap();
    ring
}

async fn assert_nothing_is_left(fixture: &Fixture) {
    eventually("nothing is left of the ring", DEADLINE, || async {
        let (labelled, there) = (labelled(fixture).await, belongings(fixture).await);
        let nothing = labelled == [0; 3] && there.is_empty();
        if nothing { Ok(()) } else { Err(format!("{labelled:?} have labels, and there are {there:?}")) }
    })
    .await
    .unwrap();
}

/// Runs `ringside cleanup` with the rights of an administrator.
async fn cleanup(fixture: &Fixture, arguments: &[&str]) -> (bool, String) {
    cleanup_of(&fixture.ring, fixture.system.control_plane().kubeconfig_path(), arguments).await
}

async fn cleanup_of(ring: &RingName, kubeconfig: PathBuf, arguments: &[&str]) -> (bool, String) {
    let program = built(toolchain::ringside).await.unwrap();
    let mut command = Command::new(program.cli);
    command.args(["cleanup", ring.name()]).args(arguments);
    command.env("KUBECONFIG", kubeconfig);
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = format!("{}{}", String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    eprintln!("cleanup {arguments:?}: {status}\n{text}");
    (status.success(), text)
}

/// The numbers that a table says of a resource.
fn row<'a>(table: &'a str, resource: &str) -> Vec<&'a str> {
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(resource));
    row.unwrap_or_default().split_whitespace().skip(1).collect()
}

/// What a line of a log says of something.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

pub(crate) async fn removing_the_ring_takes_everything_off() {
    let fixture = with_all(Fixture::fenced("labels-removed").await).await;
    let before = labelled(&fixture).await;
    assert!(before.iter().all(|count| *count > 0), "{before:?}");
    let ring = delete_ring(&fixture).await;
    assert_nothing_is_left(&fixture).await;
    let log = fixture.system.sharders().next().unwrap().process().log().to_owned();
    let (said, total) = eventually("the sharder says how many", DEADLINE, || async {
        let said = std::fs::read_to_string(&log).unwrap();
        let line = said
            .lines()
            .find(|line| line.contains("cleaned up after a ring") && line.contains(fixture.ring.name()))
            .ok_or("it does not")?;
        let total = field(line, "objects").ok_or(line)?.to_owned();
        Ok::<_, String>((said, total))
    })
    .await
    .unwrap();
    assert_eq!(total, before.iter().sum::<usize>().to_string());
    for (resource, count) in RESOURCES.into_iter().zip(before) {
        let line = said.lines().find(|line| {
            line.contains("took the labels")
                && field(line, "ring") == Some(fixture.ring.name())
                && field(line, "resource") == Some(resource)
        });
        assert_eq!(field(line.unwrap(), "taken"), Some(&*count.to_string()), "{resource}");
    }

    // It comes back, and so does everything.
    let rings: Api<ClusterRing> = Api::all(fixture.client());
    let again = ClusterRing::new(&ring.name_any(), ring.spec);
    rings.create(&Default::default(), &again).await.unwrap();
    fixture.system.until_balanced(DEADLINE).await.unwrap();
}

pub(crate) async fn the_command_takes_off_what_no_sharder_saw_go() {
    let fixture = start().await;
    let before = labelled(&fixture).await;
    for sharder in fixture.system.sharders() {
        sharder.process().kill().unwrap();
        sharder.process().wait(DEADLINE).await.unwrap();
    }
    // There is no garbage collector: all of it is left to the command.
    delete_ring(&fixture).await;
    eventually("the ring is gone", DEADLINE, || async {
        let ring = Api::<ClusterRing>::all(fixture.client()).get_opt(fixture.ring.name()).await;
        ring.map_err(|error| error.to_string())?.map_or(Ok(()), |ring| Err(format!("{:?}", ring.metadata)))
    })
    .await
    .unwrap();
    let kinds = belongings(&fixture).await;
    let (clean, table) = cleanup(&fixture, &["--dry-run"]).await;
    assert!(clean && table.matches(": there\n").count() == kinds.len(), "{table}");
    for (resource, count) in RESOURCES.into_iter().zip(before) {
        assert_eq!(row(&table, resource), [count.to_string(), count.to_string()]);
    }
    assert_eq!((labelled(&fixture).await, belongings(&fixture).await), (before, kinds.clone()), "it was dry");
    let (clean, table) = cleanup(&fixture, &[]).await;
    assert!(clean && table.matches(": removed\n").count() == kinds.len(), "{table}");
    for (resource, count) in RESOURCES.into_iter().zip(before) {
        assert_eq!(row(&table, resource), [count.to_string(), "0".to_owned()]);
    }
    assert_nothing_is_left(&fixture).await;
    let (clean, table) = cleanup(&fixture, &["--resource=websites.web.example.com"]).await;
    assert!(clean && row(&table, "all") == ["0", "0"], "{table}");
    let (clean, table) = cleanup(&fixture, &["--resource=things.example.com"]).await;
    assert!(!clean && table.contains("does not serve things.example.com"), "{table}");
}

pub(crate) async fn the_command_takes_a_whole_ring_off_while_everything_runs() {
    let fixture = with_all(Fixture::fenced("labels-command").await).await;
    let before = labelled(&fixture).await;
    let (clean, table) = cleanup(&fixture, &[]).await;
    assert!(clean && table.contains(&format!("ClusterRing {}: removed", fixture.ring)), "{table}");
    for (resource, count) in RESOURCES.into_iter().zip(before) {
        assert_eq!(row(&table, resource), [count.to_string(), "0".to_owned()]);
    }
    assert_nothing_is_left(&fixture).await;
}

/// A Deployment was written with the labels of a ring that is gone, in its selector as well: without them its Pods would be
/// replaced, and these again.
pub(crate) async fn the_command_leaves_what_a_selector_needs_and_names_it() {
    const PODS: usize = 3;
    let options = Options { controller_manager: true, ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let ring: RingName = "gone".parse().unwrap();
    let labels = json!({"app": "db", RingLabels::of(&ring).shard: "shard-0"});
    let deployment = json!({"metadata": {"name": "db"}, "spec": {"replicas": PODS, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "db:1"}]}}}});
    let deployments: Api<Deployment> = Api::namespaced(plane.client(), NAMESPACE);
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    let config_map = json!({"metadata": {"name": "alone", "labels": labels}});
    let config_maps: Api<ConfigMap> = Api::namespaced(plane.client(), NAMESPACE);
    config_maps.create(&PostParams::default(), &serde_json::from_value(config_map).unwrap()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(plane.client(), NAMESPACE);
    let names = async || -> Vec<String> {
        let pods = pods.list(&ListParams::default().labels("app=db")).await.unwrap();
        pods.iter().map(kube::ResourceExt::name_any).collect()
    };
    eventually("the Pods are there", DEADLINE, || async {
        let count = names().await.len();
        if count == PODS { Ok(()) } else { Err(format!("{count} are")) }
    })
    .await
    .unwrap();
    let before = names().await;

    for arguments in [&["--dry-run"][..], &[], &[]] {
        let (clean, table) = cleanup_of(&ring, plane.kubeconfig_path(), arguments).await;
        let template = format!(
            "template: deployments.apps {NAMESPACE}/db: the ring's label is in spec.selector.matchLabels, spec.template.metadata.labels"
        );
        assert!(!clean && table.contains(&template) && table.matches("template: ").count() == 1, "{table}");
        assert!(table.contains(&format!("copies left: {PODS} pods controlled by ReplicaSet")), "{table}");
        assert_eq!(row(&table, "pods"), [PODS.to_string(), PODS.to_string()]);
    }
    assert_eq!(names().await, before);
    let alone = config_maps.get("alone").await.unwrap().metadata.labels.unwrap();
    assert_eq!(alone.into_keys().collect::<Vec<_>>(), ["app"]);
}
