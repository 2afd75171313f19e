//! Whether the API server reaches the webhook: a configuration of its own calls it in the same way as the rings' do, and
//! refuses the write with the reason when that fails. What the webhook has seen carries its mark.

use std::{convert::Infallible, time::Duration};

use json_patch::Patch;
use k8s_openapi::api::{admissionregistration::v1::MutatingWebhookConfiguration, coordination::v1::Lease};
use kube::{
    Client,
    api::ObjectMeta,
    core::{DynamicObject, TypeMeta},
    discovery::ApiResource,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    Answer, Concerned, Home, NAME, Probe,
    mode::{Switch, WebhookModes},
};
use crate::{
    client_config::{ClientConfig, Trust},
    keep::{
        Kept,
        additions::{keep_foreign, noted},
    },
    news::tell,
    verdict::Verdicts,
};

/// The path of the webhook that is asked about nothing but this.
pub(crate) const PATH: &str = "/webhooks/sharder/probe";

const WEBHOOK: &str = "probe.sharder.ringside.dev";
const WHAT: &str = "webhook";
/// How often it is looked, and how long the webhook may take: where it falls silent, creates wait until that is noticed.
const PAUSE: Duration = Duration::from_secs(2);
const TIMEOUT_SECONDS: i32 = 1;
/// The webhook's mark, an annotation.
const MARK: &str = "ringside.dev/webhook";

/// Looks, for as long as this replica leads.
pub(crate) async fn look(
    (client, watches): (&Client, &Client),
    home: &Home,
    (config, mut trust): (&ClientConfig, watch::Receiver<Option<Trust>>),
    period: Duration,
    (verdicts, modes): (&Verdicts, &WebhookModes),
) -> Infallible {
    let kind = ApiResource::erase::<MutatingWebhookConfiguration>(&());
    let (kept, keeper) = Kept::new((client, watches), &kind, NAME.to_owned(), period);
    let keeper = keeper.keeping_foreign(keep_foreign);
    let switch = Switch::new(modes);
    let probe = Probe {
        client,
        home,
        what: WHAT,
        read: &|made| {
            let answer = read(made);
            switch.heard(&answer);
            answer
        },
        pause: PAUSE,
        does: "it calls webhooks",
        passed: "it calls no webhooks; is its admission plugin MutatingAdmissionWebhook turned off?",
    };
    let steer = async {
        loop {
            if let Some(trust) = &*trust.borrow_and_update() {
                kept.want(Some(configuration(config, trust, home)));
            }
            if trust.changed().await.is_err() {
                // Its sender ends only with the process.
                return std::future::pending::<Infallible>().await;
            }
        }
    };
    let objects = [&kept];
    tokio::select! {
        never = keeper.run() => never,
        never = steer => never,
        never = probe.repeat(&objects, |verdict| _ = tell(verdicts, verdict)) => never,
    }
}

fn read(made: Result<Lease, kube::Error>) -> Answer {
    match made {
        // What admission refuses because it could not ask (`NewInternalError` in k8s.io/apiserver).
        Err(kube::Error::Api(status)) if status.code == 500 && status.message.contains(WEBHOOK) => {
            Answer::Failed(status.message.clone())
        }
        made => Answer::by_mark(made, MARK),
    }
}

/// The webhook's answer to a probe.
pub(crate) fn mark() -> Patch {
    let patch = json!([{"op": "add", "path": "/metadata/annotations", "value": {MARK: "reached"}}]);
    serde_json::from_value(patch).unwrap_or_default()
}

fn configuration(config: &ClientConfig, trust: &Trust, home: &Home) -> DynamicObject {
    let Concerned { rules, objects, namespaces } = home.concerned(WHAT);
    let webhook: Value = json!({
        "name": WEBHOOK,
        "clientConfig": config.of(PATH, trust),
        "rules": rules,
        "objectSelector": objects,
        "namespaceSelector": namespaces,
        // Only the probe's own writes are refused.
        "failurePolicy": "Fail",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        // The API server's defaults, so that what is stored can be compared.
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "Never",
    });
    noted(DynamicObject {
        types: Some(TypeMeta::resource::<MutatingWebhookConfiguration>()),
        metadata: ObjectMeta { annotations: trust.annotations(), ..home.belonging() },
        data: json!({"webhooks": [webhook]}),
    })
}
