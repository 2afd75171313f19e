//! The command `check --pre`: whether a cluster is fit for Ringside, before it is installed. It writes nothing.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::{
        authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
        core::v1::{Node, ResourceQuota},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, PostParams},
};
use ringside_ring::{RingKind, manifest::definition};
use ringside_runtime::{discovery, explain::explain};
use serde::Serialize;

use crate::{
    cluster::Global,
    fit::Mark,
    neighbours::{OLDEST_MINOR, OldKubelets, old_kubelets},
    output::{Said, render, wrap},
};

/// The namespace that Ringside is installed in.
const NAMESPACE: &str = "ringside-system";

/// What the installation creates: group, resource, and the namespace of those that are in one.
const CREATED: [(&str, &str, Option<&str>); 6] = [
    ("apiextensions.k8s.io", "customresourcedefinitions", None),
    ("rbac.authorization.k8s.io", "clusterroles", None),
    ("rbac.authorization.k8s.io", "clusterrolebindings", None),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", None),
    ("", "namespaces", None),
    ("apps", "deployments", Some(NAMESPACE)),
];

/// The minor versions of Kubernetes 1 that the live tests were run on, as the page `platforms` has it.
pub const TESTED: [u32; 8] = [30, 31, 32, 33, 34, 35, 36, 37];

/// What is known of a cluster.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// The minor version of Kubernetes 1.
    minor: u32,
    groups: Vec<String>,
    keeps_labels: bool,
    nodes: BTreeSet<String>,
    forbidden: Vec<String>,
    quotas: Vec<String>,
    old_kubelets: Option<OldKubelets>,
    definition: Option<CustomResourceDefinition>,
    /// That of the newer kind, if there is one: ours or another project's.
    controller_rings: Option<CustomResourceDefinition>,
    unseen: Vec<String>,
}

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Item {
    mark: Mark,
    finding: String,
}

/// Judges the cluster.
///
/// # Errors
/// When the API server can't be asked.
pub(super) async fn run(global: &Global) -> anyhow::Result<Said> {
    let client = global.connect().await?.client;
    let items = judge(&gather(&client).await?);
    let said = render(global.output, &items, |items| text(items))?;
    let is_fit = items.iter().all(|item| item.mark != Mark::Unfit);
    Ok(if is_fit { Said::good(said) } else { Said::unhealthy(said) })
}

fn text(items: &[Item]) -> String {
    let lines = items.iter().map(|item| wrap(&format!("{} ", item.mark.sign()), &item.finding));
    let count = |mark: Mark| items.iter().filter(|item| item.mark == mark).count();
    let counted = format!("problems: {}, warnings: {}\n", count(Mark::Unfit), count(Mark::Note));
    lines.chain([counted]).collect()
}

fn judge(facts: &Facts) -> Vec<Item> {
    let mut items = Vec::new();
    let mut say = |mark, finding: String| items.push(Item { mark, finding });
    for (mark, finding) in version(facts) {
        say(mark, finding);
    }
    match facts.forbidden.as_slice() {
        [] => say(Mark::Fit, "you may create what the installation creates".to_owned()),
        forbidden => say(Mark::Unfit, format!("you may not create {}: ask for these rights", forbidden.join(", "))),
    }
    for quota in &facts.quotas {
        say(Mark::Note, format!("ResourceQuota {NAMESPACE}/{quota} may refuse the sharder's pods"));
    }
    for finding in platforms(facts) {
        say(Mark::Note, finding);
    }
    if facts.groups.iter().any(|group| group == "sharding.timebertt.dev") {
        if let Some(difference) =
            facts.controller_rings.as_ref().and_then(|other| differs(RingKind::ControllerRing, other))
        {
            let text = format!(
                "the ControllerRing definition {difference}: where Ringside is to serve that kind, apply this version's (docs: reference)"
            );
            say(Mark::Note, text);
        }
        match facts.definition.as_ref().map(|other| differs(RingKind::ClusterRing, other)) {
            Some(None) => say(Mark::Fit, "the ClusterRing definition is this version's".to_owned()),
            Some(Some(difference)) => {
                let text = format!(
                    "the ClusterRing definition {difference}: apply this version's before the sharder (docs: upgrade)"
                );
                say(Mark::Unfit, text);
            }
            None => say(
                Mark::Note,
                "another sharding project serves sharding.timebertt.dev: use ring names of your own beside it"
                    .to_owned(),
            ),
        }
    }
    for unseen in &facts.unseen {
        say(Mark::Note, format!("not looked at: {unseen}"));
    }
    items.sort_by_key(|item| item.mark);
    items
}

/// What the version of Kubernetes means: the table of the page `platforms`.
fn version(facts: &Facts) -> Vec<(Mark, String)> {
    let minor = facts.minor;
    if minor < OLDEST_MINOR {
        let text = format!("Kubernetes 1.{minor} has no native sidecars: upgrade to 1.{OLDEST_MINOR} or newer");
        return vec![(Mark::Unfit, text)];
    }
    let mut found = vec![(Mark::Fit, format!("Kubernetes 1.{minor} (needs 1.{OLDEST_MINOR})"))];
    let mut note = |text: &str| found.push((Mark::Note, text.to_owned()));
    if !TESTED.contains(&minor) {
        let tested = TESTED.map(|minor| format!("1.{minor}")).join(", ");
        note(&format!("the tests were run on Kubernetes {tested} (docs: platforms#versions-of-kubernetes)"));
    }
    if minor < 30 {
        note("no ValidatingAdmissionPolicy before 1.30: `fence: APIServer` is not available");
    }
    if minor < 31 {
        note("before 1.31 etcd answers the first lists of controllers, and not the API server's cache");
    }
    if minor < 32 || minor == 33 {
        note("no streaming lists: a watch that names no resourceVersion is served in JSON alone");
    }
    if minor == 32 {
        note("no streaming lists of Tables in 1.32: such a watch is answered 406, as without Ringside");
    }
    if !facts.keeps_labels {
        note("labels are kept by the webhook alone: MutatingAdmissionPolicy is served by default since 1.36");
    }
    found
}

/// What is to be done for the nodes that there are, and on the platforms that the marks of nodes and groups show.
fn platforms(facts: &Facts) -> Vec<String> {
    let has_label = |start: &str| facts.nodes.iter().any(|label| label.starts_with(start));
    let has_group = |end: &str| facts.groups.iter().any(|group| group.ends_with(end));
    let mut found = Vec::new();
    if let Some(old) = facts.old_kubelets.as_ref().filter(|_| facts.minor >= OLDEST_MINOR) {
        found.push(format!(
            "{}: upgrade them, or inject with --plain-container (annotation ringside.dev/plain-container: \"true\")",
            old.told()
        ));
    }
    if has_label("kubernetes.azure.com/") {
        found
            .push("AKS adds selectors to webhook configurations: use the overlay aks (docs: platforms#aks)".to_owned());
    }
    if has_label("cloud.google.com/gke") {
        let text =
            "GKE: private clusters close port 9443 to the webhook: use the overlay gke-private (docs: platforms#gke)";
        found.push(text.to_owned());
    }
    if has_group("config.openshift.io") {
        found.push("OpenShift: use the overlay openshift (docs: platforms#openshift)".to_owned());
    }
    if has_label("eks.amazonaws.com/") && (has_group("cilium.io") || has_group("projectcalico.org")) {
        let text = "EKS with an overlay network: the API server reaches no pod, so use the overlay eks-overlay-cni (docs: platforms#eks)";
        found.push(text.to_owned());
    }
    found
}

/// How a definition of a kind of ring differs from this version's in the fields of its spec; `None` where it does not.
fn differs(kind: RingKind, other: &CustomResourceDefinition) -> Option<String> {
    let fields = |definition: &CustomResourceDefinition| -> BTreeSet<String> {
        let schema = definition.spec.versions.first().and_then(|version| version.schema.as_ref());
        let schema = schema.and_then(|schema| schema.open_api_v3_schema.as_ref());
        let spec = schema.and_then(|schema| schema.properties.as_ref()).and_then(|all| all.get("spec"));
        spec.and_then(|spec| spec.properties.as_ref()).into_iter().flat_map(|all| all.keys().cloned()).collect()
    };
    let (own, other) = (fields(&definition(kind)), fields(other));
    let list = |fields: &mut dyn Iterator<Item = &String>| fields.cloned().collect::<Vec<_>>().join(", ");
    let lacks = list(&mut own.difference(&other));
    let more = list(&mut other.difference(&own));
    match (lacks.is_empty(), more.is_empty()) {
        (false, _) => Some(format!("lacks {lacks}")),
        (true, false) => Some(format!("has {more} besides")),
        (true, true) => None,
    }
}

async fn gather(client: &Client) -> anyhow::Result<Facts> {
    let version = client.apiserver_version().await.map_err(|error| anyhow::anyhow!(explain(&error)))?;
    let digits: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
    let mut facts = Facts { minor: digits.parse().unwrap_or(0), ..Facts::default() };
    facts.groups = discovery::groups(client).await?;
    let admission = discovery::group(client, "admissionregistration.k8s.io").await?;
    facts.keeps_labels = admission.all().0.iter().any(|served| served.api.plural == "mutatingadmissionpolicies");
    for (group, resource, namespace) in CREATED {
        match may_create(client, group, resource, namespace).await {
            Ok(true) => {}
            Ok(false) => facts.forbidden.push(resource.to_owned()),
            Err(error) => facts.unseen.push(format!("rights to {resource}: {}", explain(&error))),
        }
    }
    let nodes: Api<Node> = Api::all(client.clone());
    match nodes.list_metadata(&ListParams::default().limit(20)).await {
        Ok(nodes) => facts.nodes = nodes.items.iter().flat_map(|node| node.labels().keys().cloned()).collect(),
        Err(error) => facts.unseen.push(format!("Nodes: {}", explain(&error))),
    }
    match old_kubelets(client).await {
        Ok(old) => facts.old_kubelets = old,
        Err(error) => facts.unseen.push(format!("kubelets' versions: {}", explain(&error))),
    }
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), NAMESPACE);
    match quotas.list_metadata(&ListParams::default()).await {
        Ok(quotas) => facts.quotas = quotas.items.iter().map(kube::ResourceExt::name_any).collect(),
        Err(error) => facts.unseen.push(format!("ResourceQuotas: {}", explain(&error))),
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let [older, newer] = RingKind::ALL.map(|kind| definitions.get_opt(kind.names().definition));
    match futures::future::try_join(older, newer).await {
        Ok((older, newer)) => (facts.definition, facts.controller_rings) = (older, newer),
        Err(error) => facts.unseen.push(format!("CustomResourceDefinitions: {}", explain(&error))),
    }
    Ok(facts)
}

async fn may_create(client: &Client, group: &str, resource: &str, namespace: Option<&str>) -> kube::Result<bool> {
    let attributes = ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: namespace.map(str::to_owned),
        verb: Some("create".to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        let definition = Some(definition(RingKind::ClusterRing));
        let groups = vec!["sharding.timebertt.dev".to_owned()];
        Facts { minor: 37, keeps_labels: true, definition, groups, ..Facts::default() }
    }

    /// What is not as it should be.
    fn found(change: impl FnOnce(&mut Facts)) -> Vec<(Mark, String)> {
        let mut facts = good();
        change(&mut facts);
        let items = judge(&facts).into_iter().filter(|item| item.mark != Mark::Fit);
        items.map(|item| (item.mark, item.finding)).collect()
    }

    #[test]
    fn a_cluster_with_all_that_is_needed_is_fit() {
        assert_eq!(found(|_| ()), []);
    }

    #[test]
    fn each_lack_is_told_with_a_remedy() {
        let one = |change: fn(&mut Facts)| match found(change).as_slice() {
            [(mark, text)] => (*mark, text.clone()),
            other => panic!("{other:?}"),
        };
        let mut cases = vec![
            (Mark::Note, "1.36", one(|facts| facts.keeps_labels = false)),
            (Mark::Unfit, "ask for these rights", one(|facts| facts.forbidden = vec!["clusterroles".to_owned()])),
            (Mark::Note, "ringside-system/q", one(|facts| facts.quotas = vec!["q".to_owned()])),
            (
                Mark::Note,
                "2 kubelets are older than 1.29 (node node-0: v1.28.9)",
                one(|facts| {
                    let example = ("node-0".to_owned(), "v1.28.9".to_owned());
                    facts.old_kubelets = Some(OldKubelets { count: 2, example });
                }),
            ),
            (Mark::Note, "another sharding project", one(|facts| facts.definition = None)),
            (
                Mark::Note,
                "the ControllerRing definition lacks ",
                one(|facts| facts.controller_rings = Some(CustomResourceDefinition::default())),
            ),
            (Mark::Note, "platforms#openshift", one(|facts| facts.groups.push("config.openshift.io".to_owned()))),
        ];
        let of_versions = [
            (29, ["tests were run on", "`fence: APIServer`", "etcd answers", "no streaming lists"].as_slice()),
            (30, &["etcd answers", "no streaming lists"]),
            (31, &["no streaming lists"]),
            (32, &["no streaming lists of Tables"]),
            (33, &["no streaming lists"]),
            (37, &[]),
            (38, &["tests were run on"]),
        ];
        for (minor, parts) in of_versions {
            let told = found(|facts| facts.minor = minor);
            assert_eq!(told.len(), parts.len(), "{told:?}");
            for ((mark, text), part) in told.iter().zip(parts) {
                assert!(*mark == Mark::Note && text.contains(part), "{minor}: {text}");
            }
        }
        for (label, page) in [("kubernetes.azure.com/cluster", "#aks"), ("cloud.google.com/gke-nodepool", "#gke")] {
            let told = found(|facts| facts.nodes = [label.to_owned()].into());
            cases.push((Mark::Note, page, told[0].clone()));
        }
        for (mark, part, (told, text)) in cases {
            assert!(told == mark && text.contains(part), "{part}: {text}");
        }
        assert!(
            found(|facts| facts.minor = 28).iter().any(|(mark, text)| *mark == Mark::Unfit && text.contains("upgrade"))
        );
        let old = |facts: &mut Facts| facts.definition = Some(CustomResourceDefinition::default());
        assert!(
            found(old)
                .iter()
                .any(|(mark, text)| *mark == Mark::Unfit && text.contains("lacks ") && text.contains("fence")),
            "{:?}",
            found(old)
        );
    }

    #[test]
    fn an_overlay_network_matters_on_eks_only() {
        let told = |label: &str| {
            found(|facts| {
                facts.nodes = [label.to_owned()].into();
                facts.groups.push("cilium.io".to_owned());
            })
        };
        assert!(told("eks.amazonaws.com/nodegroup")[0].1.contains("#eks") && told("other").is_empty());
    }
}
