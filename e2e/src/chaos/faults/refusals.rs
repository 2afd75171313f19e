//! Policies of the cluster that refuse what a move needs.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::ConfigMap,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    chaos::{
        run::Run,
        schedule::{Fault, Kind},
    },
    eventually::eventually,
    system::NAMESPACE,
};

/// Within this time the API server knows a policy that is there, or has gone.
const KNOWN: Duration = Duration::from_secs(60);

/// What the policies say.
pub(super) const REFUSED: &str = "refused by chaos";

/// Refuses each update of the children of these objects. Returns how many there are.
pub(super) async fn of_children(run: &mut Run, objects: &[usize]) -> Result<usize> {
    let names: Vec<_> = objects.iter().map(|number| run.workload.name(*number)).collect();
    let expression = format!("!(object.metadata.name in {})", serde_json::to_string(&names)?);
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["configmaps"]});
    make(&run.client, &name(Kind::RefuseChildren, None), &rule, &expression).await?;
    let maps: Api<ConfigMap> = Api::namespaced(run.client.clone(), NAMESPACE);
    until_refused(run, &maps, &names).await?;
    Ok(names.len())
}

/// Refuses what a shard acknowledges: that it takes the ring's label off an object. Returns that it is one shard.
pub(super) async fn of_acknowledgements(run: &mut Run, shard: &str) -> Result<usize> {
    let label = serde_json::to_string(&run.labels.shard)?;
    let pod = "authentication.kubernetes.io/pod-name";
    let labelled = |object: &str| format!("({label} in {object}.metadata.?labels.orValue({{}}))");
    let expression = format!(
        "!({} && !{} && '{shard}' in request.userInfo.?extra[?'{pod}'].orValue([]))",
        labelled("oldObject"),
        labelled("object"),
    );
    let rule = json!({
        "apiGroups": ["web.example.com"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["websites"],
    });
    make(&run.client, &name(Kind::RefuseAcknowledgements, Some(shard)), &rule, &expression).await?;
    Ok(1)
}

/// Ends the refusals, also of one that began in part. What stays would refuse to the end of the run.
pub(super) async fn end(run: &Run, fault: &Fault) -> Result<()> {
    let (client, name) = (run.client.clone(), name(fault.kind, fault.shard.as_deref()));
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone());
    let policies = Api::<ValidatingAdmissionPolicy>::all(client);
    let gone = eventually("the policy is gone", KNOWN, || async {
        delete(&bindings, &name).await?;
        delete(&policies, &name).await
    });
    Ok(gone.await?)
}

async fn delete<K: Clone + DeserializeOwned + std::fmt::Debug>(api: &Api<K>, name: &str) -> Result<(), String> {
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn name(kind: Kind, shard: Option<&str>) -> String {
    format!("chaos-{kind:?}-{}", shard.unwrap_or("of-none")).to_lowercase()
}

async fn make(client: &Client, name: &str, rule: &Value, expression: &str) -> Result<()> {
    let policy = json!({
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": REFUSED}],
        },
    });
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    create::<ValidatingAdmissionPolicy>(client, policy).await?;
    create::<ValidatingAdmissionPolicyBinding>(client, binding).await
}

async fn create<K>(client: &Client, object: Value) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope> + Serialize + DeserializeOwned + Clone,
    K: std::fmt::Debug,
{
    Api::<K>::all(client.clone()).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// Waits until a dry run of an update is refused for one of them that is there.
async fn until_refused(run: &mut Run, maps: &Api<ConfigMap>, names: &[String]) -> Result<()> {
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let change = json!({"data": {"chaos": "refused"}});
    run.until("updates of children are refused", KNOWN, || async {
        for name in names {
            match maps.patch(name, &params, &Patch::Merge(&change)).await {
                Err(kube::Error::Api(status)) if status.message.contains(REFUSED) => return Ok(()),
                // Its owner was made a moment ago.
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error.to_string()),
                Ok(_) => return Err(format!("{name} can be written")),
            }
        }
        Err("none of them is there".to_owned())
    })
    .await
}
