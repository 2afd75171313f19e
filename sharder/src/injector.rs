//! The webhook configurations of the injector, which adds the proxy to pods at their creation (`webhook::injector`). They are there
//! only where the sharder is told to inject.
//!
//! Pods and not Deployments: Helm, OLM and Argo CD put back what was changed in a Deployment of theirs, and compare no pods.

use std::{convert::Infallible, time::Duration};

use futures::future::join3;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{
    Client,
    api::ObjectMeta,
    core::{DynamicObject, TypeMeta},
    discovery::ApiResource,
};
use serde_json::{Value, json};
use tokio::sync::watch;

pub(crate) mod pods;

use crate::{
    config::Injector,
    keep::Kept,
    probe::Home,
    rings::{ClientConfig, Trust, keep_foreign, noted},
};

/// The path of the webhook.
pub(crate) const PATH: &str = "/inject";
/// The label of pods and namespaces that ask for it. On a pod its value is the ring.
pub(crate) const LABEL: &str = "ringside.dev/inject";
/// Its value on a namespace.
const ENABLED: &str = "enabled";
/// Its value on a pod that must not be injected.
pub(crate) const DISABLED: &str = "disabled";

const WEBHOOK: &str = "inject.ringside.dev";
const TIMEOUT_SECONDS: i32 = 2;
/// The configurations: for pods with the label, and for pods without it in namespaces that have it.
const NAMES: [(&str, Asked); 2] =
    [("ringside-injector", Asked::ByPod), ("ringside-injector-namespaces", Asked::ByNamespace)];

/// Who asks for the injection.
#[derive(Clone, Copy)]
enum Asked {
    ByPod,
    ByNamespace,
}

/// Keeps both for as long as this replica leads, or deletes them where the sharder does not inject.
pub(crate) async fn keep(
    (client, watches): (&Client, &Client),
    home: &Home,
    (config, mut trust): (&ClientConfig, watch::Receiver<Option<Trust>>),
    period: Duration,
    injector: Option<&Injector>,
) -> Infallible {
    let kind = ApiResource::erase::<MutatingWebhookConfiguration>(&());
    let [(pods, by_pod), (namespaces, by_namespace)] = NAMES.map(|(name, asked)| {
        let (kept, keeper) = Kept::new((client, watches), &kind, name.to_owned(), period);
        ((kept, name, asked), keeper.keeping_foreign(keep_foreign))
    });
    let steer = async {
        let Some(injector) = injector else {
            // It was turned off, maybe: no pod that they are about could be created with `Fail`.
            [&pods, &namespaces].iter().for_each(|(kept, ..)| kept.want(None));
            return std::future::pending::<Infallible>().await;
        };
        loop {
            if let Some(trust) = &*trust.borrow_and_update() {
                for (kept, name, asked) in [&pods, &namespaces] {
                    kept.want(Some(configuration(name, *asked, config, trust, home, injector)));
                }
            }
            if trust.changed().await.is_err() {
                // Its sender ends only with the process.
                return std::future::pending::<Infallible>().await;
            }
        }
    };
    let (never, ..) = join3(by_pod.run(), by_namespace.run(), steer).await;
    never
}

fn configuration(
    name: &str,
    asked: Asked,
    config: &ClientConfig,
    trust: &Trust,
    home: &Home,
    injector: &Injector,
) -> DynamicObject {
    let (objects, namespaces) = match asked {
        Asked::ByPod => (
            json!([{"key": LABEL, "operator": "Exists"}, {"key": LABEL, "operator": "NotIn", "values": [DISABLED]}]),
            json!({}),
        ),
        Asked::ByNamespace => {
            (json!([{"key": LABEL, "operator": "DoesNotExist"}]), json!({"matchLabels": {LABEL: ENABLED}}))
        }
    };
    let webhook: Value = json!({
        "name": WEBHOOK,
        "clientConfig": config.of(PATH, trust),
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "Namespaced"}],
        "objectSelector": {"matchExpressions": objects},
        "namespaceSelector": namespaces,
        "failurePolicy": injector.failure_policy.as_str(),
        "timeoutSeconds": TIMEOUT_SECONDS,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        // The API server's defaults, so that what is stored can be compared.
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "Never",
    });
    let metadata = ObjectMeta { name: Some(name.to_owned()), annotations: trust.annotations(), ..home.belonging() };
    noted(DynamicObject {
        types: Some(TypeMeta::resource::<MutatingWebhookConfiguration>()),
        metadata,
        data: json!({"webhooks": [webhook]}),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::time::timeout;

    use super::*;
    use crate::{fixtures::FakeApi, snapshot::belonging_labels};

    #[tokio::test(start_paused = true)]
    async fn configurations_go_where_the_sharder_no_longer_injects_unless_they_are_of_another() {
        let path = |name: &str| format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}");
        let [(ours, _), (foreign, _)] = NAMES;
        let api = FakeApi::default();
        api.put("/api/v1/namespaces/home", json!({"metadata": {"name": "home", "uid": "u"}}));
        for (name, labels) in [(ours, json!(belonging_labels())), (foreign, json!({}))] {
            api.put(&path(name), json!({"metadata": {"name": name, "resourceVersion": "1", "labels": labels}}));
        }
        let home = Home::find(&api.client(), "home").await;
        let config = ClientConfig { namespace: "home".to_owned(), url: None };
        let (_trusted, trust) = watch::channel(None);
        let clients = (&api.client(), &api.client());
        let period = Duration::from_secs(300);
        let kept = timeout(Duration::from_secs(60), keep(clients, &home, (&config, trust), period, None)).await;
        assert!(kept.is_err() && api.get(&path(ours)).is_none() && api.get(&path(foreign)).is_some());
    }
}
