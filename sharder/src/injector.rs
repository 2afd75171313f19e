//! The webhook configurations of the injector, which adds the proxy to pods at their creation (`webhook::injector`). They are there
//! only where the sharder is told to inject.
//!
//! Pods and not Deployments: Helm, OLM and Argo CD put back what was changed in a Deployment of theirs, and compare no pods.

use std::{convert::Infallible, time::Duration};

use futures::future::{join, join_all};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{
    Client,
    api::ObjectMeta,
    core::{DynamicObject, TypeMeta},
    discovery::ApiResource,
};
pub(crate) use ringside_inject::{DISABLED, LABEL};
use serde_json::{Value, json};
use tokio::sync::watch;

pub(crate) mod pods;
pub(crate) mod ring;

use crate::{
    client_config::{ClientConfig, Trust},
    config::Injector,
    keep::{
        Kept,
        additions::{keep_foreign, noted},
    },
    probe::Home,
};

/// The path of the webhook.
pub(crate) const PATH: &str = "/inject";
/// The path of the webhook that keeps the proxy a sidecar.
pub(crate) const SIDECAR_PATH: &str = "/sidecar";
/// The label's value on a namespace.
const ENABLED: &str = "enabled";

const WEBHOOK: &str = "inject.ringside.dev";
const TIMEOUT_SECONDS: i32 = 2;
/// The configurations, each with what its webhook is called for.
const NAMES: [(&str, Calls); 3] = [
    ("ringside-injector", Calls::WithLabel),
    ("ringside-injector-namespaces", Calls::OfNamespace),
    ("ringside-injector-sidecars", Calls::WithSidecar),
];
/// Pods with the proxy as a native sidecar at their creation, and such as lose that by an update. It is called as the pod is created
/// whatever the pod looks like then: a webhook that was not called is not called again after others changed the pod.
const HAS_SIDECAR: &str = "has(object.spec.initContainers) && object.spec.initContainers.exists(c, c.name == 'ringside-proxy' \
     && (request.operation == 'CREATE' || !has(c.restartPolicy) && has(oldObject.spec.initContainers) \
     && oldObject.spec.initContainers.exists(o, o.name == c.name && has(o.restartPolicy))))";

/// What a webhook is called for.
#[derive(Clone, Copy)]
enum Calls {
    /// Pods that ask for the injection.
    WithLabel,
    /// Pods of a namespace that asks for it.
    OfNamespace,
    /// Pods that have the proxy, by whichever way: webhooks and clients with old types drop what makes it a sidecar.
    WithSidecar,
}

/// Keeps them for as long as this replica leads, or deletes them where the sharder does not inject.
pub(crate) async fn keep(
    (client, watches): (&Client, &Client),
    home: &Home,
    (config, mut trust): (&ClientConfig, watch::Receiver<Option<Trust>>),
    period: Duration,
    injector: Option<&Injector>,
) -> Infallible {
    let kind = ApiResource::erase::<MutatingWebhookConfiguration>(&());
    let (kept, keepers): (Vec<_>, Vec<_>) = NAMES
        .into_iter()
        .map(|(name, calls)| {
            let (kept, keeper) = Kept::new((client, watches), &kind, name.to_owned(), period);
            ((kept, name, calls), keeper.keeping_foreign(keep_foreign).run())
        })
        .unzip();
    let steer = async {
        let Some(injector) = injector else {
            // It was turned off, maybe: no pod that they are about could be created with `Fail`.
            kept.iter().for_each(|(kept, ..)| kept.want(None));
            return std::future::pending::<Infallible>().await;
        };
        loop {
            if let Some(trust) = &*trust.borrow_and_update() {
                for (kept, name, calls) in &kept {
                    kept.want(Some(configuration(name, *calls, config, trust, home, injector)));
                }
            }
            if trust.changed().await.is_err() {
                // Its sender ends only with the process.
                return std::future::pending::<Infallible>().await;
            }
        }
    };
    let (never, _) = join(steer, join_all(keepers)).await;
    never
}

fn configuration(
    name: &str,
    calls: Calls,
    config: &ClientConfig,
    trust: &Trust,
    home: &Home,
    injector: &Injector,
) -> DynamicObject {
    let (objects, namespaces) = match calls {
        Calls::WithLabel => (
            json!({"matchExpressions": [{"key": LABEL, "operator": "Exists"}, {"key": LABEL, "operator": "NotIn", "values": [DISABLED]}]}),
            json!({}),
        ),
        Calls::OfNamespace => (
            json!({"matchExpressions": [{"key": LABEL, "operator": "DoesNotExist"}]}),
            json!({"matchLabels": {LABEL: ENABLED}}),
        ),
        Calls::WithSidecar => (json!({}), json!({})),
    };
    let (path, operations, again) = match calls {
        Calls::WithLabel | Calls::OfNamespace => (PATH, json!(["CREATE"]), "Never"),
        Calls::WithSidecar => (SIDECAR_PATH, json!(["CREATE", "UPDATE"]), "IfNeeded"),
    };
    let mut webhook: Value = json!({
        "name": WEBHOOK,
        "clientConfig": config.of(path, trust),
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["pods"], "scope": "Namespaced"}],
        "objectSelector": objects,
        "namespaceSelector": namespaces,
        "failurePolicy": injector.failure_policy.as_str(),
        "timeoutSeconds": TIMEOUT_SECONDS,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        // The API server's defaults, so that what is stored can be compared.
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": again,
    });
    if matches!(calls, Calls::WithSidecar) {
        webhook["matchConditions"] = json!([{"name": "has-the-sidecar", "expression": HAS_SIDECAR}]);
    }
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
    use crate::{belonging::belonging_labels, fixtures::FakeApi};

    #[tokio::test(start_paused = true)]
    async fn configurations_go_where_the_sharder_no_longer_injects_unless_they_are_of_another() {
        let path = |name: &str| format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}");
        let [(ours, _), (foreign, _), _] = NAMES;
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
