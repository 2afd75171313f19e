//! The story.

use std::{
    fs,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Pod},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use ringside_e2e::{eventually::eventually, helm::Chart};
use ringside_ring::RingLabels;
use serde_json::{Value, json};

use crate::{
    Fixture,
    inventory::Inventory,
    terminal::Terminal,
    work::{all_are_worked_on, verdict},
};

const CONTROLLER: &str = "website-controller";
/// For Pods that end: the usual grace, and time for a busy machine.
const DEADLINE: Duration = Duration::from_secs(90);

pub(crate) async fn tell(fixture: &Fixture) {
    let (node, client) = (&fixture.node, fixture.node.client());
    let terminal = Terminal::open(&fixture.programs, node.control_plane().kubeconfig_path());
    terminal.run("kubectl apply -k deploy/sample");
    terminal.run("kubectl apply -f deploy/sample/websites.yaml");
    rolled_out(&terminal);
    all_are_worked_on(&client, "before").await;
    let (before, plain) = (Inventory::take(&client).await, template(&client).await);

    let begun = Instant::now();
    let install =
        "helm install ringside deploy/helm/ringside -n ringside-system --create-namespace --wait --timeout 3m";
    terminal.run(install);
    terminal.run("ringside check --pre");
    terminal.run("ringside check default/website-controller");
    let ring = terminal.run("ringside ring init default/website-controller --name websites");
    fs::write(terminal.folder().join("ring.yaml"), ring).unwrap();
    terminal.run("kubectl apply -f ring.yaml");
    terminal.run("ringside inject default/website-controller --ring websites --with-rbac");
    rolled_out(&terminal);
    let labels = RingLabels::of(&"websites".parse().unwrap());
    let sharded = Timestamp::now();
    println!("sharded {:.0?} after the first command", begun.elapsed());

    a_day(&terminal, &client, &fixture.chart).await;
    let verdict = verdict(node, &labels, sharded);
    assert!(verdict.foreign.is_empty() && verdict.late.is_empty(), "{:#?} {:#?}", verdict.foreign, verdict.late);
    println!("{} writes of replicas, none to an object of another one", verdict.by_shards);

    terminal.run("ringside uninject default/website-controller");
    rolled_out(&terminal);
    until_none_ends(&client).await;
    let rights = terminal.run("ringside rbac websites --shards default/website-controller");
    fs::write(terminal.folder().join("rbac.yaml"), rights).unwrap();
    terminal.run("ringside cleanup websites");
    terminal.run("kubectl delete -f rbac.yaml");
    terminal.run("helm uninstall ringside -n ringside-system --wait");
    terminal.run("kubectl delete namespace ringside-system --ignore-not-found");
    terminal.run("kubectl delete crd clusterrings.sharding.timebertt.dev --ignore-not-found");
    all_are_worked_on(&client, "after").await;
    assert_eq!(template(&client).await, plain, "the controller is as it was");
    let after = Inventory::take(&client).await;
    let left: Vec<_> = after.objects.difference(&before.objects).filter(|name| !is_child(name)).collect();
    assert!(left.is_empty() && after.marked.is_empty(), "left: {left:#?}, marked: {:#?}", after.marked);
}

/// Scales, rolls, upgrades and evicts, under changes of all objects.
async fn a_day(terminal: &Terminal<'_>, client: &Client, chart: &Chart) {
    for replicas in [5, 2] {
        terminal.run(&format!("kubectl scale deployment website-controller --replicas {replicas}"));
        rolled_out(terminal);
        let by = all_are_worked_on(client, &format!("by {replicas}")).await;
        println!("{by:?}");
        assert!(by.len() <= replicas, "{by:?}");
    }
    terminal.run("ringside status websites");
    terminal.run("ringside owner websites default/site-00");
    terminal.run("kubectl rollout restart deployment website-controller");
    rolled_out(terminal);
    all_are_worked_on(client, "after a roll-out of the controller").await;
    terminal.run("kubectl rollout restart deployment ringside-sharder -n ringside-system");
    terminal.run("kubectl rollout status deployment ringside-sharder -n ringside-system --timeout 180s");
    all_are_worked_on(client, "after a roll-out of the sharder").await;
    let next = chart.next_release(terminal.folder()).unwrap();
    let next = next.folder().display();
    terminal.run(&format!("helm upgrade ringside {next} -n ringside-system --wait --timeout 3m"));
    all_are_worked_on(client, "after an upgrade").await;
    terminal.run("helm rollback ringside 1 -n ringside-system --wait --timeout 3m");
    all_are_worked_on(client, "after a rollback").await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let first = pods.list(&ListParams::default().labels("app=website-controller")).await.unwrap().items.remove(0);
    pods.evict(&first.name_any(), &Default::default()).await.unwrap();
    rolled_out(terminal);
    all_are_worked_on(client, "after an eviction").await;
    terminal.run("ringside status websites");
}

fn rolled_out(terminal: &Terminal<'_>) {
    terminal.run("kubectl rollout status deployment website-controller --timeout 180s");
}

/// A Pod that ends keeps its Lease until then, and `kubectl rollout status` does not wait for it.
async fn until_none_ends(client: &Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    eventually("no Pod of the controller ends", DEADLINE, || async {
        let pods = pods.list(&ListParams::default().labels("app=website-controller")).await;
        let pods = pods.map_err(|error| error.to_string())?.items;
        let ending: Vec<_> = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).collect();
        if ending.is_empty() { Ok(()) } else { Err(format!("{} do", ending.len())) }
    })
    .await
    .unwrap();
}

/// The template of the controller's Pods, without what a restart leaves there.
async fn template(client: &Client) -> Value {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let mut template = json!(deployments.get(CONTROLLER).await.unwrap().spec.unwrap().template);
    let metadata = template["metadata"].as_object_mut().unwrap();
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/restartedAt");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    template
}

/// What the sample makes, and Kubernetes for a namespace.
fn is_child(name: &str) -> bool {
    name.contains("kube-root-ca.crt") || name.contains("default/site-")
}
