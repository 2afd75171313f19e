//! Refuses an injection into a controller that elects its leader in another namespace, which the sidecar is not told of.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use serde_json::Value;

use crate::fit::{Rules, Subject, documents::Documents, evaluate::unfit_by, gather::gather_election};

/// The rule about that.
const ELSEWHERE: &str = "R02";

/// What keeps the sidecar from being added to this Deployment of the cluster, which has it already here.
pub(super) async fn refusal_in_cluster(client: &Client, injected: &Value) -> anyhow::Result<Option<String>> {
    let Some(deployment) = deployment(injected) else { return Ok(None) };
    refusal(&gather_election(client, deployment).await)
}

/// The same for one in a file. What stands in the file beside it and can't be read shows nothing.
pub(super) fn refusal_in_file(text: &str, injected: &Value) -> anyhow::Result<Option<String>> {
    let Some(deployment) = deployment(injected) else { return Ok(None) };
    let of_file = Documents::parse(text).and_then(|all| all.subject(deployment.metadata.name.as_deref()));
    refusal(&Subject { deployment, ..of_file.unwrap_or_default() })
}

/// None for a workload of another kind, of which `check` knows nothing.
fn deployment(injected: &Value) -> Option<Deployment> {
    (injected["kind"] == "Deployment").then(|| serde_json::from_value(injected.clone()).ok()).flatten()
}

fn refusal(subject: &Subject) -> anyhow::Result<Option<String>> {
    let unfit = unfit_by(&Rules::load()?, ELSEWHERE, subject);
    Ok(unfit.map(|it| format!("{ELSEWHERE}, {}. {} {} ({})", it.finding, it.consequence, it.remedy, it.page)))
}
