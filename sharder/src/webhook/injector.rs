//! Adds the proxy to a pod at its creation.
//!
//! A pod that asks for a ring and can't have the proxy is refused with the reason: without it, its controller would work on all
//! objects beside the others.

use std::{sync::Arc, time::Duration};

use json_patch::Patch;
use kube::Client;
use ringside_inject::{Amounts, INJECTED, Injection, Resources, Sidecar, inject};
use ringside_ring::RingName;
use ringside_runtime::explain::explain;
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::Instant};

use super::{
    request::{Request, Unreadable, parse},
    response::Answer,
};
use crate::{
    injector::ring::{RINGS, ring_of},
    namespaces::Namespaces,
};

/// On a pod: the containers that talk to the proxy, with commas; all without it.
const CONTAINERS: &str = "ringside.dev/containers";
/// On a pod: options of the proxy, as on its command line.
const OPTIONS: &str = "ringside.dev/proxy-options";

/// On a pod: `true` for a plain container, as where a webhook or a kubelet knows no native sidecars.
const PLAIN: &str = "ringside.dev/plain-container";
/// On a pod: what the proxy requests and may use, as `cpu=50m,memory=128Mi`.
const REQUESTS: &str = "ringside.dev/proxy-requests";
const LIMITS: &str = "ringside.dev/proxy-limits";

/// How long the API server's version is remembered: it may be upgraded.
const REMEMBERED: Duration = Duration::from_secs(600);

/// What injections need; clones share it.
#[derive(Clone)]
pub(crate) struct Injector {
    client: Client,
    namespaces: Namespaces,
    image: Arc<str>,
    resources: Resources,
    /// As the API server's version asks for it, and when it was asked.
    sidecar: Arc<Mutex<Option<(Sidecar, Instant)>>>,
}

impl Injector {
    pub(crate) fn new(client: Client, namespaces: Namespaces, (image, resources): (&str, Resources)) -> Self {
        Self { client, namespaces, image: image.into(), resources, sidecar: Arc::default() }
    }

    /// One that has not to ask for the API server's version.
    #[cfg(any(test, fuzzing))]
    pub(super) fn knowing(self, sidecar: Sidecar) -> Self {
        Self { sidecar: Arc::new(Mutex::new(Some((sidecar, Instant::now())))), ..self }
    }

    /// Answers a review. Where it can't be read, it can't be told whether the pod asks for the proxy.
    pub(super) async fn answer(&self, body: &[u8]) -> Result<Answer, Unreadable> {
        let (request, mut pod) = read(body)?;
        let allow = Answer::allow(&request.uid);
        if !request.creates() {
            return Ok(allow);
        }
        if !pod["metadata"].is_object() {
            return Err(Unreadable::new(body, "it has no pod with metadata"));
        }
        if !pod["metadata"]["annotations"][INJECTED].is_null() {
            return Ok(allow);
        }
        let of_namespace =
            request.namespace().and_then(|namespace| self.namespaces.annotation(namespace, RINGS)).unwrap_or_default();
        let Some(ring) = ring_of(&pod, &of_namespace) else { return Ok(allow) };
        // A review says these of the request.
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        let injected = match self.injection(&ring, &pod).await {
            Ok(injection) => inject(&mut pod, &injection).map_err(|refusal| refusal.to_string()),
            Err(why) => Err(why),
        };
        let patched = injected.and_then(|injected| match patch(&pod) {
            Ok(patch) => Ok((injected, patch)),
            Err(error) => Err(error.to_string()),
        });
        let namespace = request.namespace();
        Ok(match patched {
            Ok((injected, patch)) => {
                tracing::info!(ring, namespace, "added the proxy to a pod");
                injected.notes.into_iter().fold(allow.with_patch(&patch), Answer::with_warning)
            }
            Err(why) => {
                tracing::warn!(ring, namespace, why, "refused a pod that can't have the proxy");
                Answer::refuse(&request.uid, format!("can't add the proxy of ring '{ring}': {why}"))
            }
        })
    }

    /// What is to be added, as the pod says.
    async fn injection(&self, ring: &str, pod: &Value) -> Result<Injection, String> {
        let ring: RingName = ring.parse().map_err(|fault: ringside_ring::name::InvalidName| fault.to_string())?;
        let option = |key: &str| pod["metadata"]["annotations"][key].as_str().map(str::to_owned);
        let options = option(OPTIONS).unwrap_or_default();
        let containers = option(CONTAINERS).unwrap_or_default();
        let containers = containers.split(',').map(str::trim).filter(|name| !name.is_empty());
        let amounts = |key: &str| {
            let text = option(key).unwrap_or_default();
            text.parse::<Amounts>().map_err(|fault| format!("{key}: {fault}"))
        };
        let resources = self.resources.clone().chosen(&amounts(REQUESTS)?, &amounts(LIMITS)?);
        let sidecar = match option(PLAIN).as_deref() {
            Some("true") => Sidecar::Plain,
            _ => self.sidecar().await?,
        };
        Ok(Injection {
            ring,
            image: self.image.to_string(),
            containers: containers.map(str::to_owned).collect(),
            options: options.split_whitespace().map(str::to_owned).collect(),
            ports: None,
            metrics: true,
            sidecar,
            resources,
        })
    }

    /// How the API server's version asks for the proxy.
    async fn sidecar(&self) -> Result<Sidecar, String> {
        let mut known = self.sidecar.lock().await;
        if let Some((sidecar, asked)) = *known
            && asked.elapsed() < REMEMBERED
        {
            return Ok(sidecar);
        }
        let sidecar = match (self.client.apiserver_version().await, *known) {
            (Ok(version), _) => Sidecar::for_server(&version.major, &version.minor),
            (Err(_), Some((before, _))) => before,
            (Err(error), None) => return Err(format!("can't read the API server's version: {}", explain(&error))),
        };
        *known = Some((sidecar, Instant::now()));
        Ok(sidecar)
    }
}

/// The request of a review, and the pod that it is about.
fn read(body: &[u8]) -> Result<(Request, Value), Unreadable> {
    let request = parse(body)?;
    let review = serde_json::from_slice::<Value>(body);
    let mut review = review.map_err(|error| Unreadable::new(body, error.to_string()))?;
    Ok((request, review.pointer_mut("/request/object").map(Value::take).unwrap_or_default()))
}

/// Makes the pod of the review this one: injections change nothing else in it.
fn patch(pod: &Value) -> serde_json::Result<Patch> {
    let patch = json!([
        {"op": "add", "path": "/metadata/annotations", "value": pod["metadata"]["annotations"]},
        {"op": "replace", "path": "/spec", "value": pod["spec"]},
    ]);
    serde_json::from_value(patch)
}

pub(super) mod sidecar;
#[cfg(test)]
mod tests;
