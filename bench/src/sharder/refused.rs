//! Objects that the API server refuses to change, beside those that move.

use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use ringside_e2e::{eventually::eventually, manifests};
use serde_json::json;

use super::{
    ground::{Ground, Outcome},
    objects::secret,
    running::join_namespace,
};
use crate::say;

const NAMESPACE: &str = "refused";
const CREATES: usize = 16;
/// The API server compiles a policy a moment after it was written.
const DEADLINE: Duration = Duration::from_secs(60);
const POLICY: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refused}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [secrets]}]
  validations: [{expression: "false", message: "no client changes these", reason: Forbidden}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refused}
spec:
  policyName: refused
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: refused}}}
"#;

/// So many objects without owner come into the ring that can't be given one; then a shard joins. Returns what became of the
/// others.
///
/// # Errors
/// When it can't be measured.
pub async fn join_beside_refused(ground: &mut Ground, objects: usize) -> anyhow::Result<Outcome> {
    say(format_args!("{objects} objects that the API server refuses to change, and a shard that joins"));
    let client = ground.client();
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    manifests::apply(&client, &manifests::parse(POLICY)?).await?;
    let api: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let creates = stream::iter(0..objects).map(|number| {
        let api = api.clone();
        async move { api.create(&PostParams::default(), &secret(&format!("refused-{number:06}"))).await.map(drop) }
    });
    creates.buffer_unordered(CREATES).try_collect::<()>().await.context("create what is refused")?;
    until_refused(&client).await?;
    join_namespace(&client, NAMESPACE).await?;
    ground.join().await
}

async fn until_refused(client: &Client) -> anyhow::Result<()> {
    let api: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"bare": "1"}}}));
    eventually("the API server refuses", DEADLINE, || async {
        match api.patch("refused-000000", &PatchParams::default(), &patch).await {
            Ok(_) => Err("it takes changes".to_owned()),
            Err(_) => Ok(()),
        }
    })
    .await?;
    Ok(())
}
