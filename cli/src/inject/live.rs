//! A workload in the cluster.

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
    discovery::ApiResource,
};
use ringside_runtime::explain::{code, explain};
use ringside_sharder::inject::Sidecar;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Action, DryRun, Target, WithRbac, WorkloadKind, lines,
    managed::Managed,
    permissions::{self, FIELD_MANAGER},
};
use crate::{
    cluster::Global,
    exit::Exit,
    output::{Said, render},
};

/// What was done, or would be.
#[derive(Serialize)]
struct Outcome {
    workload: String,
    changes: Vec<String>,
    /// What kept it from being written.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    result: String,
}

/// Does it to the workload in the cluster.
pub(super) async fn act(
    global: &Global,
    target: &Target,
    mut action: Action,
    with_rbac: Option<&WithRbac>,
) -> anyhow::Result<Said> {
    let cluster = global.connect().await?;
    let (namespace, name) = cluster.split(target.workload.as_deref().unwrap_or_default());
    let resource = match target.kind {
        WorkloadKind::Deployment => ApiResource::erase::<Deployment>(&()),
        WorkloadKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
    };
    let workload = format!("{} {namespace}/{name}", resource.kind);
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, &resource);
    let failed = |what: &str, error: &kube::Error| anyhow!("can't {what} {workload}: {}", explain(error));
    let found = api.get_opt(name).await.map_err(|error| failed("read", &error))?;
    let before = found.with_context(|| format!("there is no {workload}"))?;
    let before = serde_json::to_value(before)?;

    if let Action::Inject(injection) = &mut action
        && injection.sidecar == Sidecar::Native
    {
        let version =
            cluster.client.apiserver_version().await.map_err(|error| failed("ask the version for", &error))?;
        injection.sidecar = Sidecar::for_server(&version.major, &version.minor);
    }
    let mut after = before.clone();
    let injected = action.change(&mut after).with_context(|| workload.clone())?;
    let granted = match with_rbac {
        Some(with) => permissions::of(&permissions::find_ring(&cluster.client, with).await?, with, &before, namespace),
        None => Vec::new(),
    };
    let changes = lines(&injected, &granted);
    let refused = Managed::of(&before).filter(|_| !target.force).map(|managed| managed.warning());
    let result = match (&refused, target.dry_run) {
        (Some(_), _) => format!("{workload} was not changed"),
        (None, DryRun::Client) => format!("{workload} was not changed (dry run)"),
        (None, dry_run) => {
            let dry_run = dry_run == DryRun::Server;
            permissions::apply(&cluster.client, &granted, dry_run).await?;
            let written = write(&api, name, (&before, &after), dry_run).await.map_err(|error| match code(&error) {
                Some(409) => anyhow!("{workload} was changed meanwhile: run it again"),
                _ => failed("change", &error),
            })?;
            match (written.data.pointer("/spec/template") == before.pointer("/spec/template"), dry_run) {
                (true, _) => format!("{workload} is as it should be"),
                (false, true) => format!("{workload} was not changed (dry run)"),
                (false, false) => format!("{workload} changed"),
            }
        }
    };
    let exit = if refused.is_some() { Exit::Unhealthy } else { Exit::Good };
    let outcome = Outcome { workload, changes, refused, result };
    let text = render(global.output, &outcome, |outcome| {
        let parts = outcome.changes.iter().chain(&outcome.refused).chain([&outcome.result]);
        parts.map(String::as_str).collect::<Vec<_>>().join("\n")
    })?;
    Ok(Said { text, exit })
}

/// Writes the new pod template, unless the workload was written since it was read: that conflicts, by the version.
async fn write(
    api: &Api<DynamicObject>,
    name: &str,
    (before, after): (&Value, &Value),
    dry_run: bool,
) -> Result<DynamicObject, kube::Error> {
    let changes = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": before["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/spec/template", "value": after["spec"]["template"]},
    ]);
    let patch = Patch::Json::<()>(serde_json::from_value(changes).map_err(kube::Error::SerdeError)?);
    let field_manager = Some(FIELD_MANAGER.to_owned());
    api.patch(name, &PatchParams { dry_run, field_manager, ..PatchParams::default() }, &patch).await
}
