//! Whether a Pod of the controller comes up with the sidecar: what is at its pods, as a dry run shows it.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use ringside_inject::{self as inject, DISABLED, Injection, LABEL, Resources, Sidecar};
use serde_json::Value;

use super::{Finding, Mark};
use crate::neighbours::{Neighbours, PAGE, ask, old_kubelets};

/// What stands in place of a rule's id.
const ID: &str = "POD";

/// Asks for a Pod with the sidecar: as the Deployment has it, as the injector adds it, or as `inject` would.
pub(super) async fn findings(client: &Client, deployment: &Deployment) -> anyhow::Result<Vec<Finding>> {
    let namespace = deployment.metadata.namespace.as_deref().unwrap_or("default");
    let mut workload = serde_json::to_value(deployment)?;
    let old = old_kubelets(client).await.ok().flatten();
    let sidecar = if old.is_some() { Sidecar::Plain } else { Sidecar::Native };
    if let Err(refusal) = with_sidecar(&mut workload, sidecar) {
        let remedy = "Change it before you inject.";
        return Ok(vec![finding(
            Mark::Unfit,
            format!("it can't have the sidecar: {refusal}"),
            "It is not shared.",
            remedy,
        )]);
    }
    let Neighbours { found, notes } = ask(client, namespace, &workload).await;
    let old = old.map(|old| format!("{}: it gets a plain container", old.told()));
    let notes = notes.into_iter().chain(old).map(|note| finding(Mark::Note, note, "", ""));
    let found = found.iter().map(|it| finding(Mark::Unfit, it.finding(), it.consequence(), &it.remedy()));
    Ok(found.chain(notes).collect())
}

/// Adds the sidecar where a Pod would not have it otherwise.
fn with_sidecar(workload: &mut Value, sidecar: Sidecar) -> Result<(), inject::Refusal> {
    let asks = workload["spec"]["template"]["metadata"]["labels"].get(LABEL).is_some_and(|ring| ring != DISABLED);
    if asks || inject::has_proxy(workload) {
        return Ok(());
    }
    let Ok(ring) = ID.to_lowercase().parse() else { return Ok(()) };
    let injection = Injection {
        ring,
        image: inject::CONTAINER.to_owned(),
        containers: Vec::new(),
        options: Vec::new(),
        ports: None,
        metrics: true,
        sidecar,
        resources: Resources::default(),
    };
    inject::inject(workload, &injection).map(drop)
}

fn finding(mark: Mark, finding: String, consequence: &str, remedy: &str) -> Finding {
    let (id, page) = (ID.to_owned(), PAGE.to_owned());
    Finding { id, mark, finding, consequence: consequence.to_owned(), remedy: remedy.to_owned(), page }
}
