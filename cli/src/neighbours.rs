//! What else is at the pods of a workload, and keeps the sidecar from them: the API server is asked for a Pod by a dry run, before
//! anything is written.

use k8s_openapi::api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
    core::DynamicObject,
    discovery::ApiResource,
};
use ringside_inject::{self as inject, CONTAINER};
use ringside_runtime::explain::explain;
use serde_json::{Map, Value, json};

mod interference;
mod kubelets;

use self::interference::{compare, refused};
pub use self::{
    interference::Interference,
    kubelets::{OLDEST_MINOR, OldKubelets, old_kubelets},
};

/// The page about them.
pub const PAGE: &str = "neighbours";

/// What a dry run showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// What keeps the pods from coming up, or something beside the sidecar from working.
    pub found: Vec<Interference>,
    /// What else its user should know.
    pub notes: Vec<String>,
}

/// Asks for a Pod of a workload that has the sidecar, or gets it by the injector.
pub async fn ask(client: &Client, namespace: &str, workload: &Value) -> Neighbours {
    let asks = Asks { client, pods: Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Pod>(&())) };
    let Some(pod) = pod_of(workload) else { return Neighbours::default() };
    match asks.create(&pod).await {
        Ok(back) => {
            let webhooks = if compare(&pod, &back, &[]).is_empty() { Vec::new() } else { asks.webhooks().await };
            Neighbours { found: compare(&pod, &back, &webhooks), notes: Vec::new() }
        }
        Err(kube::Error::Api(status)) if !is_missing_right(&status.message) => {
            asks.explain(workload, &pod, &status.message).await
        }
        Err(error) => {
            Neighbours { found: Vec::new(), notes: vec![format!("no Pod was asked for: {}", explain(&error))] }
        }
    }
}

struct Asks<'a> {
    client: &'a Client,
    pods: Api<DynamicObject>,
}

impl Asks<'_> {
    /// A Pod as it would come out of admission.
    async fn create(&self, pod: &Value) -> Result<Value, kube::Error> {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let pod = serde_json::from_value(pod.clone()).map_err(kube::Error::SerdeError)?;
        let made = self.pods.create(&dry_run, &pod).await?;
        serde_json::to_value(made).map_err(kube::Error::SerdeError)
    }

    /// Finds out why a Pod with the sidecar is refused.
    async fn explain(&self, workload: &Value, pod: &Value, message: &str) -> Neighbours {
        if let Some(without) = without_sidecar(workload)
            && let Err(kube::Error::Api(before)) = self.create(&without).await
        {
            let note = format!("a Pod of it is refused without the sidecar, too: {}", before.message);
            return Neighbours { found: Vec::new(), notes: vec![note] };
        }
        // Probes and hooks are refused where a sidecar has become an init container, which does not say who did that.
        if let Some(bare) = with_bare_sidecar(pod)
            && let Ok(back) = self.create(&bare).await
        {
            let found = compare(&bare, &back, &self.webhooks().await);
            if !found.is_empty() {
                return Neighbours { found, notes: Vec::new() };
            }
        }
        Neighbours { found: vec![refused(message, pod)], notes: Vec::new() }
    }

    /// The webhooks of others that may change Pods as they are created.
    async fn webhooks(&self) -> Vec<String> {
        let all: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let all = all.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        all.iter().filter(|one| changes_pods(one)).map(ResourceExt::name_any).collect()
    }
}

/// Whether the webhooks of others change Pods as they are created.
fn changes_pods(configuration: &MutatingWebhookConfiguration) -> bool {
    let has = |list: &Option<Vec<String>>, one: &str| list.iter().flatten().any(|it| it == one || it == "*");
    let rules = configuration.webhooks.iter().flatten().flat_map(|webhook| webhook.rules.iter().flatten());
    let mut of_pods = rules.filter(|rule| has(&rule.operations, "CREATE") && has(&rule.resources, "pods"));
    !configuration.name_any().starts_with("ringside-") && of_pods.next().is_some()
}

/// Whether it is the caller's right to create Pods that lacks, and nothing is said about the Pod.
fn is_missing_right(message: &str) -> bool {
    message.contains("cannot create resource \"pods\"")
}

/// A Pod as the workload's controller makes it.
fn pod_of(workload: &Value) -> Option<Value> {
    let template = workload.pointer("/spec/template")?;
    let metadata = |key: &str| template["metadata"].get(key).cloned().unwrap_or_else(|| json!({}));
    let mut spec = template.get("spec")?.clone();
    let claims = workload.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
    for claim in claims.into_iter().flatten() {
        let name = &claim["metadata"]["name"];
        let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        match spec["volumes"].as_array_mut() {
            Some(volumes) => volumes.push(volume),
            None => spec["volumes"] = json!([volume]),
        }
    }
    let name = format!("{}-", workload["metadata"]["name"].as_str().unwrap_or_default());
    Some(json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata":
        {"generateName": name, "labels": metadata("labels"), "annotations": metadata("annotations")}}))
}

/// The Pod of the same workload without the sidecar.
fn without_sidecar(workload: &Value) -> Option<Value> {
    let mut workload = workload.clone();
    if inject::is_injected(&workload) {
        inject::uninject(&mut workload).ok()?;
    }
    let mut pod = pod_of(&workload)?;
    pod["metadata"]["labels"].as_object_mut()?.insert(inject::LABEL.to_owned(), inject::DISABLED.into());
    Some(pod)
}

/// A Pod of which the sidecar has no probes and hooks, as an init container may have none; none where it has no native sidecar.
fn with_bare_sidecar(pod: &Value) -> Option<Value> {
    let mut pod = pod.clone();
    let containers = pod.pointer_mut("/spec/initContainers").and_then(Value::as_array_mut)?;
    let sidecar = containers.iter_mut().find(|container| container["name"] == CONTAINER)?.as_object_mut()?;
    sidecar.retain(|field, _| field != "lifecycle" && !field.ends_with("Probe"));
    Some(pod)
}

/// The containers of a Pod, with what they say.
fn containers(pod: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    let lists = ["initContainers", "containers"].into_iter().filter_map(|key| pod["spec"][key].as_array());
    lists.flatten().filter_map(Value::as_object)
}

#[cfg(test)]
mod tests;
