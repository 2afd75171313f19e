//! Sharder and shards in pods, from the manifests in `deploy/` as they stand.

mod changes;
mod confinement;
mod restarted;
mod rollout;
mod webhook;

use std::{collections::BTreeMap, process::Command, sync::Arc, time::Duration};

use anyhow::Result;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Pod, Secret},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, CustomResourceExt, Resource as _, ResourceExt,
    api::{DynamicObject, ListParams, ObjectMeta, PostParams},
};
use ringside_e2e::{
    eventually::{TimedOut, eventually},
    helm::deploy,
    live::Group,
    manifests,
    node::Node,
    toolchain::{self, built},
    website::{Website, WebsiteSpec},
};
use ringside_ring::labels::RingLabels;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{Fixture, case};

/// Pods start and end, Leases are taken and objects move: seconds each, on a loaded machine more.
const DEADLINE: Duration = Duration::from_secs(120);

/// Enough for each of four shards to have some.
const WEBSITES: usize = 40;

const RING: &str = "websites";

/// Where the sharder is, and its Deployment.
const SHARDER_NAMESPACE: &str = "ringside-system";
const SHARDER: &str = "ringside-sharder";

/// The example's Deployment.
const EXAMPLE: &str = "website-controller";

/// The same with a controller that has nothing but the in-cluster folder.
const IN_CLUSTER: &str = "in-cluster-controller";

/// The cases, the longest first.
pub(crate) fn group() -> Group {
    let cases = [
        case!(rollout::from_one_leader_to_shards_and_back_no_pod_works_beside_another),
        case!(restarted::a_controller_from_before_a_gap_is_restarted_by_its_liveness_probe),
        case!(changes::a_new_pod_whose_controller_can_not_start_gets_no_object),
        case!(changes::a_deleted_pod_hands_over_ends_in_order_and_releases_its_lease),
        case!(webhook::a_replica_that_ends_or_is_killed_fails_no_create),
        case!(confinement::pods_are_as_confined_as_their_manifests_say),
        case!(each_shard_has_a_share),
        case!(the_leader_tells_what_it_is_doing),
        case!(a_proxy_tells_what_it_is_doing),
    ];
    crate::group("deployed", cases)
}

/// Those with the kubeconfig, and the one with nothing but the in-cluster folder.
async fn each_shard_has_a_share(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    let shares = deployed.settled().await;
    for pod in deployed.shards().await {
        assert!(shares.contains_key(&pod.name_any()), "{} has no share: {shares:?}", pod.name_any());
    }
}

/// The admin server of its Pod answers, by way of the API server.
async fn the_leader_tells_what_it_is_doing(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    deployed.settled().await;
    says(&fixture, &["status", RING, "--moves"], &[&format!("Ring {RING}: 0 objects move")]);
}

/// So does that of a shard's proxy.
async fn a_proxy_tells_what_it_is_doing(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    deployed.settled().await;
    let pod = format!("default/{}", deployed.pods(EXAMPLE).await[0].name_any());
    let parts =
        ["lease       held", "controller  working", " objects are to be released", "websites.web.example.com  watch"];
    says(&fixture, &["owner", "--proxy", &pod], &parts);
}

/// Asserts that the command line prints all of these.
fn says(fixture: &Fixture, arguments: &[&str], parts: &[&str]) {
    let mut command = Command::new(&fixture.programs.cli);
    command.args(arguments).arg("--kubeconfig").arg(fixture.node.control_plane().kubeconfig_path());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(parts.iter().all(|part| said.contains(part)), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// What was installed, and how it is now.
pub(crate) struct Deployed {
    client: Client,
    labels: RingLabels,
    /// Held by who changes which shards there are.
    membership: Mutex<()>,
}

impl Deployed {
    /// Installs what the documentation says, in its order.
    pub(crate) async fn install(node: &Node) -> Result<Self> {
        let client = node.client();
        manifests::define(&client, &Website::crd()).await?;
        let kubectl = built(toolchain::kubectl).await?;
        let objects = manifests::kustomize(&kubectl, &deploy("kustomize/overlays/default"))?;
        manifests::apply(&client, &objects).await?;
        manifests::served(&client, "clusterrings.sharding.timebertt.dev").await?;
        for file in ["proxy-roles.yaml", "example/roles.yaml", "example/ring.yaml", "example/deployment.yaml"] {
            apply(&client, file).await?;
        }
        let example = manifests::read(&deploy("example/deployment.yaml"))?;
        manifests::apply(&client, &[in_cluster(&example[0])]).await?;
        let labels = RingLabels::of(&RING.parse()?);
        let deployed = Self { client, labels, membership: Mutex::new(()) };
        deployed.complete().await?;
        for number in 0..WEBSITES {
            let website = Website {
                metadata: ObjectMeta { name: Some(format!("site-{number}")), ..ObjectMeta::default() },
                spec: WebsiteSpec { content: "first".to_owned(), work_millis: 10 },
                status: None,
            };
            deployed.websites().create(&PostParams::default(), &website).await?;
        }
        Ok(deployed)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    fn websites(&self) -> Api<Website> {
        self.api()
    }

    /// The pods of a Deployment that are not ending.
    async fn pods(&self, deployment: &str) -> Vec<Pod> {
        not_ending(self.api(), &ListParams::default().labels(&format!("app={deployment}"))).await
    }

    /// The pods of both kinds of shards that are not ending.
    async fn shards(&self) -> Vec<Pod> {
        [self.pods(EXAMPLE).await, self.pods(IN_CLUSTER).await].concat()
    }

    /// The pods of the sharder that are not ending.
    async fn sharders(&self) -> Vec<Pod> {
        not_ending(Api::namespaced(self.client.clone(), SHARDER_NAMESPACE), &ListParams::default()).await
    }

    /// Waits until all replicas of a Deployment are there as it now says, and no others.
    async fn rolled_out(&self, namespace: &str, name: &str) -> Result<(), TimedOut> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        eventually(&format!("{name} is rolled out"), DEADLINE, || async {
            let deployment = deployments.get(name).await.map_err(|error| error.to_string())?;
            let (status, wanted) =
                (deployment.status.unwrap_or_default(), deployment.spec.and_then(|spec| spec.replicas));
            // What is none is left out.
            let wanted = wanted.filter(|wanted| *wanted > 0);
            let complete = status.observed_generation >= deployment.metadata.generation
                && [status.replicas, status.updated_replicas, status.available_replicas].iter().all(|n| *n == wanted);
            if complete { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await
    }

    /// Waits until the sharder and both kinds of shards have all their replicas, and no others.
    async fn complete(&self) -> Result<(), TimedOut> {
        self.rolled_out(SHARDER_NAMESPACE, SHARDER).await?;
        self.rolled_out("default", EXAMPLE).await?;
        self.rolled_out("default", IN_CLUSTER).await
    }

    /// Waits until each Website and its children belong to a shard that is there, which has done its work; and returns how
    /// many each has.
    async fn settled(&self) -> BTreeMap<String, usize> {
        eventually("every Website is worked on by its shard", DEADLINE, || async {
            let members: Vec<_> = self.shards().await.iter().map(ResourceExt::name_any).collect();
            let children = self.children().await?;
            let mut shares = BTreeMap::new();
            let websites = self.websites().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            for website in &websites {
                let shard = self.owner(website, &members, &children)?;
                *shares.entry(shard).or_default() += 1;
            }
            Ok(shares)
        })
        .await
        .unwrap()
    }

    /// The shard that a Website is settled with.
    fn owner(&self, website: &Website, members: &[String], children: &[ObjectMeta]) -> Result<String, String> {
        let unsettled = |what: &str| Err(format!("{}: {what}: {website:?}", website.name_any()));
        let Some(shard) = website.labels().get(&self.labels.shard) else { return unsettled("without owner") };
        if website.labels().contains_key(&self.labels.drain) {
            return unsettled("draining");
        }
        if !members.contains(shard) {
            return unsettled("of a shard that is gone");
        }
        if !is_worked_on_by(website, shard) {
            return unsettled("not worked on by its shard");
        }
        let of_it = |child: &&ObjectMeta| {
            let owner = |reference: &OwnerReference| Some(&reference.uid) == website.meta().uid.as_ref();
            child.owner_references.iter().flatten().any(owner)
        };
        let its: Vec<_> = children.iter().filter(of_it).collect();
        let with_it = |child: &&ObjectMeta| {
            child.labels.as_ref().and_then(|labels| labels.get(&self.labels.shard)) == Some(shard)
        };
        if its.len() != 2 || !its.iter().all(with_it) {
            return Err(format!("{}: its children: {its:?}", website.name_any()));
        }
        Ok(shard.clone())
    }

    async fn children(&self) -> Result<Vec<ObjectMeta>, String> {
        let maps = self.api::<ConfigMap>().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let secrets = self.api::<Secret>().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let maps = maps.items.into_iter().map(|map| map.metadata);
        Ok(maps.chain(secrets.items.into_iter().map(|secret| secret.metadata)).collect())
    }

    /// Changes all Websites: so a pod that says that it works on one does so now.
    async fn change_all(&self, content: &str) {
        let change = kube::api::Patch::Merge(json!({"spec": {"content": content}}));
        for website in &self.websites().list(&ListParams::default()).await.unwrap() {
            let patched = self.websites().patch(&website.name_any(), &Default::default(), &change).await;
            patched.unwrap();
        }
    }
}

/// A pod that ends in order is listed for as long as that takes, beside the one in its place.
async fn not_ending(pods: Api<Pod>, which: &ListParams) -> Vec<Pod> {
    let listed = pods.list(which).await.unwrap().items;
    listed.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
}

/// Whether a pod has done its work on a Website as it is.
fn is_worked_on_by(website: &Website, pod: &str) -> bool {
    let status = website.status.clone().unwrap_or_default();
    Some(status.observed_generation) == website.metadata.generation && status.reconciled_by == pod
}

/// The example under another name, with one pod.
fn one_of(example: &DynamicObject, name: &str) -> DynamicObject {
    let mut deployment = example.clone();
    deployment.metadata.name = Some(name.to_owned());
    let spec = &mut deployment.data["spec"];
    spec["replicas"] = json!(1);
    spec["selector"]["matchLabels"]["app"] = json!(name);
    spec["template"]["metadata"]["labels"]["app"] = json!(name);
    deployment
}

/// The example for clients that read only the folder of the service account and two variables: it has both ways to the
/// proxy, and loses the other one.
fn in_cluster(example: &DynamicObject) -> DynamicObject {
    let mut deployment = one_of(example, IN_CLUSTER);
    let controller: &mut Value = &mut deployment.data["spec"]["template"]["spec"]["containers"][0];
    for (list, key, other) in [("env", "name", "KUBECONFIG"), ("volumeMounts", "mountPath", "/var/run/ringside")] {
        controller[list].as_array_mut().unwrap().retain(|item| item[key] != other);
    }
    deployment
}

async fn apply(client: &Client, file: &str) -> Result<()> {
    manifests::apply(client, &manifests::read(&deploy(file))?).await
}
