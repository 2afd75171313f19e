//! Whether the API server reaches the webhook. Nobody but the API server can say: it lets a write pass that it could not
//! ask about (`failurePolicy: Ignore`), and what another client reaches says nothing about its way.
//!
//! So the leader makes a write that only this is about: a Lease, dry-run, for which a webhook configuration of its own calls
//! the webhook in the same way as the rings' do, and refuses the write with the reason when it can't. The answer carries the
//! webhook's mark: a write that passes without it was not asked about.

use std::{convert::Infallible, time::Duration};

use json_patch::Patch;
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, coordination::v1::Lease, core::v1::Namespace,
};
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{ObjectMeta, PostParams},
    core::{DynamicObject, TypeMeta},
    discovery::ApiResource,
};
use ringside_runtime::explain::{code, explain};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    keep::{Kept, Standing},
    pauses::Pauses,
    rings::{ClientConfig, Trust},
    snapshot::BELONGING,
};

/// The path of the webhook that is asked about nothing but this.
pub(crate) const PATH: &str = "/webhooks/sharder/probe";

const NAME: &str = "ringside-sharder-probe";
const WEBHOOK: &str = "probe.sharder.ringside.dev";
/// On the Lease of a probe, so that no other is asked about.
const LABEL: (&str, &str) = ("ringside.dev/probe", "webhook");
/// The webhook's mark.
const MARK: &str = "ringside.dev/webhook";
/// How often it is looked. For as long nobody looks for children that the webhook was not asked about.
const PAUSE: Duration = Duration::from_secs(10);
/// How long an API server may take to act on a new configuration: it follows them by a watch.
const MARGIN: Duration = Duration::from_secs(10);

/// Whether the API server reaches the webhook, or why not; none while that is not known.
pub(crate) type Reached = Option<Result<(), String>>;

/// What is known of that. Clones share it.
pub(crate) type Reach = watch::Sender<Reached>;

/// Looks, for as long as this replica leads.
pub(crate) async fn look(
    (client, watches): (&Client, &Client),
    (config, mut trust): (&ClientConfig, watch::Receiver<Option<Trust>>),
    period: Duration,
    reach: &Reach,
) -> Infallible {
    let left_to_others = trust.borrow().as_ref().map(Trust::left_to_others).unwrap_or_default();
    let kind = ApiResource::erase::<MutatingWebhookConfiguration>(&());
    let (kept, keeper) = Kept::new((client, watches), &kind, NAME.to_owned(), period);
    let keeper = keeper.leaving_to_others(left_to_others);
    let ask = async {
        let namespace = namespace(client, config).await;
        let mut stands = kept.changes();
        loop {
            stands.borrow_and_update();
            if let Some(trust) = &*trust.borrow_and_update() {
                kept.want(Some(configuration(config, trust, namespace.clone())));
            }
            let found = ask(client, &config.namespace, &kept).await;
            reach.send_if_modified(|before| {
                let changed = found.is_some() && *before != found;
                if changed {
                    before.clone_from(&found);
                }
                changed
            });
            tokio::select! {
                // The sender lives in `kept`.
                _ = stands.changed() => {}
                // Its sender ends only with the process.
                Ok(()) = trust.changed() => {}
                () = sleep(PAUSE) => {}
            }
        }
    };
    tokio::select! {
        never = keeper.run() => never,
        never = ask => never,
    }
}

/// The sharder's namespace, whose end is the configuration's.
async fn namespace(client: &Client, config: &ClientConfig) -> ObjectMeta {
    let mut pauses = Pauses::new();
    loop {
        match Api::<Namespace>::all(client.clone()).get_metadata(&config.namespace).await {
            Ok(namespace) => return namespace.metadata,
            Err(error) => {
                tracing::warn!(error = explain(&error), "can't read the sharder's own namespace; trying again");
            }
        }
        pauses.next().await;
    }
}

async fn ask(client: &Client, namespace: &str, kept: &Kept) -> Option<Result<(), String>> {
    let since = match kept.standing() {
        Standing::InPlace { since, .. } => since,
        Standing::Refused { why, .. } => {
            tracing::debug!(why, "can't look whether the API server reaches the webhook");
            return None;
        }
        Standing::Pending | Standing::Absent => return None,
    };
    let begun = Instant::now();
    let probe: Lease =
        serde_json::from_value(json!({"metadata": {"name": NAME, "labels": {LABEL.0: LABEL.1}}})).ok()?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    match Api::<Lease>::namespaced(client.clone(), namespace).create(&dry_run, &probe).await {
        Ok(answer) if answer.annotations().contains_key(MARK) => Some(Ok(())),
        Ok(_) if begun.duration_since(since) < MARGIN => None,
        Ok(_) => {
            Some(Err("it calls no webhooks; is its admission plugin MutatingAdmissionWebhook turned off?".to_owned()))
        }
        // What admission refuses because it could not ask (`NewInternalError` in k8s.io/apiserver).
        Err(kube::Error::Api(status)) if status.code == 500 && status.message.contains(WEBHOOK) => {
            Some(Err(status.message.clone()))
        }
        Err(error) => {
            tracing::debug!(
                code = code(&error),
                error = explain(&error),
                "can't look whether the API server reaches the webhook"
            );
            None
        }
    }
}

/// The webhook's answer to a probe.
pub(crate) fn mark() -> Patch {
    let patch = json!([{"op": "add", "path": "/metadata/annotations", "value": {MARK: "reached"}}]);
    serde_json::from_value(patch).unwrap_or_default()
}

fn configuration(config: &ClientConfig, trust: &Trust, namespace: ObjectMeta) -> DynamicObject {
    let owner = Namespace { metadata: namespace, ..Namespace::default() }.owner_ref(&());
    let webhook: Value = json!({
        "name": WEBHOOK,
        "clientConfig": config.of(PATH, trust),
        "rules": [{"apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["leases"],
            "scope": "Namespaced"}],
        "objectSelector": {"matchLabels": {LABEL.0: LABEL.1}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": config.namespace}},
        // Nobody but the probe is refused anything.
        "failurePolicy": "Fail",
        "timeoutSeconds": 5,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    });
    DynamicObject {
        types: Some(TypeMeta::resource::<MutatingWebhookConfiguration>()),
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            labels: Some([(BELONGING.0.to_owned(), BELONGING.1.to_owned())].into()),
            annotations: trust.annotations(),
            owner_references: Some(owner.into_iter().collect()),
            ..ObjectMeta::default()
        },
        data: json!({"webhooks": [webhook]}),
    }
}
