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
use ringside_sharder::inject::{CONTAINER, Refusal, Sidecar};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Action, DryRun, Target, WithRbac, WorkloadKind, election, lines,
    managed::Managed,
    permissions::{self, FIELD_MANAGER},
};
use crate::{
    cluster::{Cluster, Global},
    exit::Exit,
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
    action.suit(&cluster).await.map_err(|error| failed("ask the version for", &error))?;
    let mut attempts = ATTEMPTS;
    let (injected, granted, refused, result) = loop {
        let found = api.get_opt(name).await.map_err(|error| failed("read", &error))?;
        let before = serde_json::to_value(found.with_context(|| format!("there is no {workload}"))?)?;
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
        let elsewhere = match action {
            Action::Inject(_) => election::refusal_in_cluster(&cluster.client, &after).await?,
            Action::Uninject => None,
        };
        let managed = Managed::of(&before).filter(|_| !target.force).map(|managed| managed.warning());
        let refused = elsewhere.or(managed);
        let result = match (&refused, target.dry_run) {
            (Some(_), _) => format!("{workload} was not changed"),
            (None, DryRun::Client) => format!("{workload} was not changed (dry run)"),
            (None, dry_run) => {
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
        break (injected, granted, refused, result);
    };
    let changes = lines(&injected, &granted);
    Outcome { workload, changes, refused, result }.said(global)
}

impl Outcome {
    fn said(&self, global: &Global) -> anyhow::Result<Said> {
        let exit = if self.refused.is_some() { Exit::Unhealthy } else { Exit::Good };
        let text = render(global.output, self, |outcome| {
            let parts = outcome.changes.iter().chain(&outcome.refused).chain([&outcome.result]);
            parts.map(String::as_str).collect::<Vec<_>>().join("\n")
        })?;
        Ok(Said { text, exit })
    }
}

impl Action {
    /// Adds the proxy as the server's version can have it.
    async fn suit(&mut self, cluster: &Cluster) -> Result<(), kube::Error> {
        if let Self::Inject(injection) = self
            && injection.sidecar == Sidecar::Native
        {
            let version = cluster.client.apiserver_version().await?;
            injection.sidecar = Sidecar::for_server(&version.major, &version.minor);
        }
        Ok(())
    }
}

/// Whether a container has the proxy's name, also one that was added by hand.
fn has_proxy(workload: &Value) -> bool {
    ["initContainers", "containers"].iter().any(|list| {
        let containers = workload["spec"]["template"]["spec"][list].as_array();
        containers.into_iter().flatten().any(|container| container["name"] == CONTAINER)
    })
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
