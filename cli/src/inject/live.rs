//! A workload in the cluster.

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
    discovery::ApiResource,
};
use ringside_inject::{Refusal, Sidecar, has_proxy};
use ringside_runtime::explain::{code, explain};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Action, DryRun, Target, WithRbac, WorkloadKind, election, lines,
    permissions::{self, FIELD_MANAGER},
};
use crate::{
    cluster::{Cluster, Global},
    exit::Exit,
    managed::Managed,
    neighbours::{self, old_kubelets},
    output::{Said, render},
};

/// How often a workload is read and written that others write meanwhile.
const ATTEMPTS: usize = 10;

/// What was done, or would be.
#[derive(Serialize)]
struct Outcome {
    workload: String,
    changes: Vec<String>,
    /// What kept it from being written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<String>,
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
    let of_versions = action.suit(&cluster).await.map_err(|error| failed("ask the version for", &error))?;
    let mut attempts = ATTEMPTS;
    let (injected, granted, refused, notes, result) = loop {
        let found = api.get_opt(name).await.map_err(|error| failed("read", &error))?;
        let found = found.with_context(|| format!("there is no {workload}"))?;
        let (managed, before) = (Managed::of(&found.metadata), serde_json::to_value(found)?);
        let mut after = before.clone();
        let injected = match action.change(&mut after) {
            // Nothing is left to do.
            Err(Refusal::NotInjected) if !has_proxy(&before) => {
                return Ok(Said::good(format!("{workload} has no sidecar of `ringside inject`")));
            }
            changed => changed.with_context(|| workload.clone())?,
        };
        let granted = match with_rbac {
            Some(with) => {
                permissions::of(&permissions::find_ring(&cluster.client, with).await?, with, &before, namespace)
            }
            None => Vec::new(),
        };
        let (refused, notes) = objections(&cluster, target, &action, (namespace, managed, &after)).await?;
        let notes = of_versions.iter().cloned().chain(notes).collect::<Vec<_>>();
        let result = match (refused.is_empty(), target.dry_run) {
            (false, _) => format!("{workload} was not changed"),
            (true, DryRun::Client) => format!("{workload} was not changed (dry run)"),
            (true, dry_run) => {
                let dry_run = dry_run == DryRun::Server;
                permissions::apply(&cluster.client, &granted, dry_run).await?;
                let written = match write(&api, name, (&before, &after), dry_run).await {
                    // Its controller writes its status at any time.
                    Err(error) if code(&error) == Some(409) && attempts > 1 => {
                        attempts -= 1;
                        continue;
                    }
                    written => written.map_err(|error| failed("change", &error))?,
                };
                match (written.data.pointer("/spec/template") == before.pointer("/spec/template"), dry_run) {
                    (true, _) => format!("{workload} is as it should be"),
                    (false, true) => format!("{workload} was not changed (dry run)"),
                    (false, false) => format!("{workload} changed"),
                }
            }
        };
        break (injected, granted, refused, notes, result);
    };
    let mut changes = lines(&injected, &granted);
    changes.extend(notes.into_iter().map(|note| format!("! {note}")));
    Outcome { workload, changes, refused, result }.said(global)
}

/// What keeps a workload from being written, and what to say beside. What is forced is said; an election elsewhere is never forced.
async fn objections(
    cluster: &Cluster,
    target: &Target,
    action: &Action,
    (namespace, managed, after): (&str, Option<Managed>, &Value),
) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let mut refused: Vec<_> = managed.map(|managed| managed.warning()).into_iter().collect();
    let mut notes = Vec::new();
    if refused.is_empty() && target.dry_run != DryRun::Client && matches!(action, Action::Inject(_)) {
        let neighbours = neighbours::ask(&cluster.client, namespace, after).await;
        notes.extend(neighbours.notes);
        refused.extend(neighbours.found.iter().map(ToString::to_string));
    }
    if target.force {
        notes.append(&mut refused);
    }
    if let Action::Inject(_) = action {
        refused.extend(election::refusal_in_cluster(&cluster.client, after).await?);
    }
    Ok((refused, notes))
}

impl Outcome {
    fn said(&self, global: &Global) -> anyhow::Result<Said> {
        let exit = if self.refused.is_empty() { Exit::Good } else { Exit::Unhealthy };
        let text = render(global.output, self, |outcome| {
            let parts = outcome.changes.iter().chain(&outcome.refused).chain([&outcome.result]);
            parts.map(String::as_str).collect::<Vec<_>>().join("\n")
        })?;
        Ok(Said { text, exit })
    }
}

impl Action {
    /// Adds the proxy as the versions of the API server and of the kubelets can have it; returns what to say of that.
    async fn suit(&mut self, cluster: &Cluster) -> Result<Vec<String>, kube::Error> {
        let mut notes = Vec::new();
        if let Self::Inject(injection) = self
            && injection.sidecar == Sidecar::Native
        {
            let version = cluster.client.apiserver_version().await?;
            injection.sidecar = Sidecar::for_server(&version.major, &version.minor);
            if injection.sidecar == Sidecar::Native {
                match old_kubelets(&cluster.client).await {
                    Ok(None) => {}
                    Ok(Some(old)) => {
                        injection.sidecar = Sidecar::Plain;
                        notes.push(format!(
                            "{}: so it is a plain container. Upgrade them, and inject again",
                            old.told()
                        ));
                    }
                    Err(error) => notes.push(format!("kubelets' versions were not looked at: {}", explain(&error))),
                }
            }
        }
        Ok(notes)
    }
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
