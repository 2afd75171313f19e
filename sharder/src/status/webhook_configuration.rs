//! The `MutatingWebhookConfiguration` of a ring (CONTRACT, "Assignment").

use std::collections::BTreeSet;

use k8s_openapi::{
    api::admissionregistration::v1::{
        MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use kube::core::{DynamicObject, TypeMeta};
use ringside_ring::{cluster_ring::GroupResource, grace::CARRIES_GRACE, labels::ACKNOWLEDGER};
use serde_json::{Value, json};

use crate::{
    cel::{POD_NAME, all_of, names_one_of, of_group, of_kinds, quoted},
    client_config::{ClientConfig, Trust},
    keep::additions::noted,
    probe::WebhookMode,
    snapshot::Snapshot,
};

const WEBHOOK_NAME: &str = "sharder.sharding.timebertt.dev";
/// How long a request for an object may wait for the webhook. The contract says 5: where an object is in several rings, and the
/// webhook has fallen silent, a request waits for each of them.
const TIMEOUT_SECONDS: i32 = 2;

/// Whether a configuration has the API server ask about anything.
pub(super) fn asks(configuration: &DynamicObject) -> bool {
    configuration.data.pointer("/webhooks/0/rules").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty())
}

/// The configuration of a ring's webhook. One that is out of the way has no rules, and is there all the same: what others have
/// added stays.
pub(super) fn webhook_configuration(
    snapshot: &Snapshot,
    client_config: &ClientConfig,
    trust: &Trust,
    mode: WebhookMode,
) -> DynamicObject {
    let mut metadata = snapshot.belonging(snapshot.ring.made_for());
    metadata.annotations = trust.annotations();
    let webhook = webhook(snapshot, client_config, trust);
    let rules = webhook.rules.filter(|_| mode != WebhookMode::Disabled);
    noted(DynamicObject {
        types: Some(TypeMeta::resource::<MutatingWebhookConfiguration>()),
        metadata,
        data: json!({"webhooks": [MutatingWebhook { rules, ..webhook }]}),
    })
}

fn webhook(snapshot: &Snapshot, client_config: &ClientConfig, trust: &Trust) -> MutatingWebhook {
    let unassigned = LabelSelectorRequirement {
        key: snapshot.labels.shard.clone(),
        operator: "DoesNotExist".to_owned(),
        values: None,
    };
    MutatingWebhook {
        name: WEBHOOK_NAME.to_owned(),
        client_config: client_config
            .of(&format!("{}{}", snapshot.ring.kind().names().webhook_path, snapshot.ring.name()), trust),
        rules: Some(rules(snapshot)),
        namespace_selector: Some(snapshot.namespace_selector.clone()),
        object_selector: Some(LabelSelector { match_expressions: Some(vec![unassigned]), match_labels: None }),
        match_conditions: Some(vec![to_be_assigned(snapshot)]),
        // Objects must be writable without the sharder: what it misses is assigned later.
        failure_policy: Some("Ignore".to_owned()),
        timeout_seconds: Some(TIMEOUT_SECONDS),
        // Reads only, so it may be called for a dry run too.
        side_effects: "None".to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        // The API server's default, so that what is stored can be compared.
        match_policy: Some("Equivalent".to_owned()),
        // Another webhook may replace all labels, or add the owner reference, after this one ran. The
        // objectSelector keeps it from being called again for what has its label.
        reinvocation_policy: Some("IfNeeded".to_owned()),
    }
}

/// What the webhook is asked about: one condition of three.
fn to_be_assigned(snapshot: &Snapshot) -> MatchCondition {
    let conditions = [Some(not_assigned(snapshot)), of_the_ring(snapshot), not_let_go(snapshot)];
    MatchCondition { name: "to-be-assigned".to_owned(), expression: all_of(conditions.into_iter().flatten()) }
}

/// Leaves out the sharder's own assignments. The selector above is asked of the object before and after a write. The
/// webhook leaves alone what names a shard after it, whichever client writes it (`review` in
/// `ringside_ring::handover`).
fn not_assigned(snapshot: &Snapshot) -> String {
    let shard = quoted(&snapshot.labels.shard);
    format!("!has(object.metadata.labels) || !({shard} in object.metadata.labels)")
}

/// Leaves out objects of controlled resources that nothing of the ring owns, nor did: the webhook would leave them alone.
/// None where nothing is controlled.
///
/// In the same CEL as the next one.
fn of_the_ring(snapshot: &Snapshot) -> Option<String> {
    let is_controlled = |name: &&GroupResource| snapshot.spec.is_controlled(name);
    snapshot.named.iter().find(is_controlled)?;
    // Of what is not served the kind is not known.
    let unresolved: BTreeSet<_> = snapshot.unresolved.iter().map(|name| of_group(&name.group)).collect();
    let owners = of_kinds(snapshot).into_iter().chain(unresolved);
    // Where resources only control each other, nothing of the ring is above any.
    let owners = owners.reduce(|some, other| format!("{some} || {other}")).unwrap_or("false".to_owned());
    let follows = format!(
        "(request.operation == 'UPDATE' ? [object, oldObject] : [object]).exists(it, has(it.metadata.ownerReferences) \
         && it.metadata.ownerReferences.exists(owner, {owners}))"
    );
    let is_root = names_one_of(snapshot.named.iter().filter(|name| snapshot.spec.is_main(name)));
    Some(is_root.map_or(follows.clone(), |is_root| format!("{is_root} || {follows}")))
}

/// Leaves out acknowledgements of objects that then wait for the sharder's controller: the webhook would leave those alone
/// (`review` in `ringside_ring::handover`), and they would have waited for it. None where no objects wait. A shard that
/// promised a grace acknowledges by its proxy alone, and any other by any write of its own.
///
/// By what the spec says alone, so that the configuration stays the same when a leader begins or a resource goes for a while: what
/// controls nothing only as long as its children's resource is not served waits for the controller too.
///
/// In the CEL of the first API servers with such conditions, which refuse a configuration that they don't understand.
fn not_let_go(snapshot: &Snapshot) -> Option<String> {
    let waits = |name: &&GroupResource| !snapshot.spec.is_controlled(name) && snapshot.spec.waits_when_let_go(name);
    let waiting = names_one_of(snapshot.named.iter().filter(waits))?;
    let (shard, drain) = (quoted(&snapshot.labels.shard), quoted(&snapshot.labels.drain));
    let (acknowledger, graced, pod) = (quoted(ACKNOWLEDGER), quoted(CARRIES_GRACE), quoted(POD_NAME));
    Some(format!(
        "!(request.operation == 'UPDATE' && {waiting} \
         && has(oldObject.metadata.labels) && {shard} in oldObject.metadata.labels && {drain} in oldObject.metadata.labels \
         && !(has(object.metadata.labels) && ({shard} in object.metadata.labels || {drain} in object.metadata.labels)) \
         && ((has(request.options.fieldManager) && request.options.fieldManager == {acknowledger}) \
         || !oldObject.metadata.labels[{drain}].matches({graced})) \
         && (!has(request.userInfo.extra) || !({pod} in request.userInfo.extra) \
         || oldObject.metadata.labels[{shard}] in request.userInfo.extra[{pod}]))"
    ))
}

/// One rule a group: each resource in it by name. Those that are not served yet are in it as well, so that
/// no object of theirs is missed later.
fn rules(snapshot: &Snapshot) -> Vec<RuleWithOperations> {
    let mut rules: Vec<RuleWithOperations> = Vec::new();
    for name in &snapshot.named {
        let groups = Some(vec![name.group.clone()]);
        match rules.iter_mut().find(|rule| rule.api_groups == groups) {
            Some(rule) => rule.resources.get_or_insert_default().push(name.resource.clone()),
            None => rules.push(RuleWithOperations {
                api_groups: groups,
                api_versions: Some(vec!["*".to_owned()]),
                operations: Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]),
                resources: Some(vec![name.resource.clone()]),
                scope: Some("*".to_owned()),
            }),
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringside_ring::cluster_ring::Fence;
    use serde_json::json;

    use super::*;
    use crate::client_config::INJECT_CA_FROM;
    use crate::snapshot::tests::snapshot;

    fn client_config(url: Option<&str>) -> ClientConfig {
        ClientConfig { namespace: "ringside-system".into(), url: url.map(|url| url.parse().unwrap()) }
    }

    fn ours() -> Trust {
        Trust::Bundle(b"CA".to_vec())
    }

    #[test]
    fn the_configuration_is_that_of_the_contract() {
        let made = serde_json::to_value(webhook_configuration(
            &snapshot(),
            &client_config(None),
            &ours(),
            WebhookMode::Enabled,
        ))
        .unwrap();
        let wanted = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {
                "name": "sharding-clusterring-50d858e0-example",
                "labels": {"app.kubernetes.io/name": "controller-sharding", "app.kubernetes.io/managed-by": "ringside-sharder",
                    "admissions.enforcer/disabled": "true"},
                "annotations": {"ringside.dev/own-conditions":
                    r#"["shard.alpha.sharding.timebertt.dev/clusterring-50d858e0-example","to-be-assigned"]"#},
                "ownerReferences": [{"apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing",
                    "name": "example", "uid": "ring-uid", "controller": true}],
            },
            "webhooks": [{
                "name": "sharder.sharding.timebertt.dev",
                "clientConfig": {"caBundle": "Q0E=", "service": {"name": "ringside-sharder", "namespace": "ringside-system",
                    "path": "/webhooks/sharder/clusterring/example", "port": 443}},
                "rules": [{"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["configmaps", "secrets"], "scope": "*"}],
                "namespaceSelector": {"matchLabels": {"role": "project"}},
                "objectSelector": {"matchExpressions": [
                    {"key": "shard.alpha.sharding.timebertt.dev/clusterring-50d858e0-example", "operator": "DoesNotExist"}]},
                "matchConditions": [{"name": "to-be-assigned", "expression": format!(
                    "(!has(object.metadata.labels) || !(\"shard.alpha.sharding.timebertt.dev/clusterring-50d858e0-example\" in object.metadata.labels)) \
                     && ({}) && ({})", of_the_ring(&snapshot()).unwrap(), not_let_go(&snapshot()).unwrap())}],
                "failurePolicy": "Ignore", "timeoutSeconds": 2, "sideEffects": "None", "matchPolicy": "Equivalent",
                "admissionReviewVersions": ["v1"], "reinvocationPolicy": "IfNeeded",
            }],
        });
        assert_eq!(made, wanted);
    }

    #[test]
    fn it_is_not_asked_about_acknowledgements_of_what_then_waits_for_the_controller() {
        let core = |name: &str| GroupResource { group: String::new(), resource: name.to_owned() };
        let condition = |fence: Fence, controlled: &[&str]| {
            let mut snapshot = snapshot();
            snapshot.spec.fence = fence;
            for main in &mut snapshot.spec.resources {
                main.controlled_resources = controlled.iter().map(|name| core(name)).collect();
            }
            not_let_go(&snapshot)
        };
        assert_eq!(condition(Fence::Proxy, &[]), None, "the webhook assigns them");
        let names = |expression: Option<String>| {
            let expression = expression.unwrap();
            let (_, names) = expression.split_once(" in [").unwrap();
            names.split_once(']').unwrap().0.to_owned()
        };
        assert_eq!(names(condition(Fence::ApiServer, &[])), r#""/configmaps","/secrets""#);
        let native = condition(Fence::ApiServer, &[]).unwrap();
        assert!(
            native.contains(&format!("|| !oldObject.metadata.labels[{}].matches(", quoted(&snapshot().labels.drain)))
        );
        let parent = names(condition(Fence::ApiServer, &["secrets"]));
        assert_eq!(parent, r#""/configmaps""#, "what has an owner itself is let go of by nobody");
    }

    #[test]
    fn of_controlled_resources_it_is_asked_about_what_something_of_the_ring_owns() {
        let of = |spec: serde_json::Value| {
            let condition =
                of_the_ring(&crate::snapshot::tests::snapshot_of(&crate::snapshot::tests::ring(&spec), &[]));
            condition.unwrap_or_default()
        };
        let ring = |group: &str, resource: &str, controlled: serde_json::Value| {
            of(json!({"resources": [{"group": group, "resource": resource, "controlledResources": controlled}]}))
        };
        assert_eq!(ring("", "configmaps", json!([])), "", "nothing is controlled");
        let kinds = ring("apps", "deployments", json!([{"group": "", "resource": "secrets"}]));
        assert!(kinds.contains(r#" in ["apps/deployments"] || "#), "{kinds}");
        assert!(kinds.contains(r#"(owner.apiVersion.startsWith("apps/") && owner.kind in ["Deployment"])"#), "{kinds}");
        assert!(kinds.contains(r#"(!owner.apiVersion.contains('/') && owner.kind in ["Secret"])"#), "{kinds}");
        let unknown = ring("not.served", "things", json!([{"group": "", "resource": "secrets"}]));
        let circular = of(json!({"resources": [
            {"group": "", "resource": "secrets", "controlledResources": [{"group": "", "resource": "configmaps"}]},
            {"group": "", "resource": "configmaps", "controlledResources": [{"group": "", "resource": "secrets"}]}]}));
        assert!(circular.ends_with("exists(owner, false))"), "{circular}");
        assert!(unknown.ends_with(r#"exists(owner, owner.apiVersion.startsWith("not.served/")))"#), "{unknown}");
    }

    #[test]
    fn out_of_the_way_it_is_there_and_asks_about_nothing() {
        let of = |mode| webhook_configuration(&snapshot(), &client_config(None), &ours(), mode);
        let (mut there, out) = (of(WebhookMode::Enabled), of(WebhookMode::Disabled));
        assert!(asks(&there) && asks(&of(WebhookMode::AsStored)) && !asks(&out));
        there.data["webhooks"][0].as_object_mut().unwrap().remove("rules");
        assert_eq!(out, there);
    }

    #[test]
    fn a_url_takes_the_place_of_the_service() {
        let made = webhook_configuration(
            &snapshot(),
            &client_config(Some("https://127.0.0.1:9443")),
            &ours(),
            WebhookMode::Enabled,
        );
        let made = &made.data["webhooks"][0]["clientConfig"];
        assert_eq!(made["url"], "https://127.0.0.1:9443/webhooks/sharder/clusterring/example");
        assert_eq!(made.get("service"), None);
    }

    #[test]
    fn an_authority_that_cert_manager_injects_is_only_named() {
        let trust = Trust::InjectedFrom("ringside-system/webhook".into());
        let made = webhook_configuration(&snapshot(), &client_config(None), &trust, WebhookMode::Enabled);
        let annotations = made.metadata.annotations.unwrap();
        assert_eq!(annotations["cert-manager.io/inject-ca-from"], "ringside-system/webhook");
        assert_eq!(made.data["webhooks"][0]["clientConfig"].get("caBundle"), None);
        let made = webhook_configuration(&snapshot(), &client_config(None), &ours(), WebhookMode::Enabled);
        assert!(!made.metadata.annotations.unwrap().contains_key(INJECT_CA_FROM));
    }

    #[test]
    fn resources_that_are_not_served_yet_have_their_rule() {
        let mut ring = snapshot();
        ring.named.insert(0, ringside_ring::cluster_ring::GroupResource { group: "a.b".into(), resource: "cs".into() });
        let rules = rules(&ring);
        assert_eq!(rules.len(), 2);
        assert_eq!(rules[0].api_groups.as_deref(), Some(&["a.b".to_owned()][..]));
    }
}
